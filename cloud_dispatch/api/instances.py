"""Operator routes about instances, pools and plans. Owns how an instance's working time is found in its attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.requests import (
    body_of,
    check_text,
    flag,
    json_response,
    number,
    page_size,
    path_instance,
    path_number,
    path_pool,
    route,
    text,
)
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.views import Usage, View, busy_ms, instance_view, pool_view, target_view, usage_of
from cloud_dispatch.domain.errors import InvalidInput, NotFound
from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.plain import plain_actions
from cloud_dispatch.planner.replay import Record, decode_begun, decode_plan
from cloud_dispatch.ports.store import Target, TaskFilter

#: Milliseconds spent on tasks, and when the last attempt ended (None: none has).
Worked = tuple[int, int | None]
_VERBS = ("hold", "drain", "resume", "kill")
#: Twice what is asked for at once: the first that is forgotten is then one that nobody asks for any more.
_KNOWN = 20_000
_MOST_AMOUNT = 2**53
_LEASES_A_QUERY = 1000


class ReasonBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


class AdoptBody(msgspec.Struct, forbid_unknown_fields=True):
    store: str


class TargetBody(msgspec.Struct, forbid_unknown_fields=True):
    count: int
    source: str = "rest"
    expires_ms: int | None = None


_REASON = msgspec.json.Decoder(ReasonBody)
_ADOPT = msgspec.json.Decoder(AdoptBody)
_TARGET = msgspec.json.Decoder(TargetBody)


class UsageReader:
    """How long instances worked, from their attempts and from what runs on them now. What is gone does not change any
    more and is remembered."""

    def __init__(self, services: Services) -> None:
        self._s = services
        self._gone: dict[InstanceId, Worked] = {}

    async def of(self, instances: Sequence[Instance]) -> list[Usage]:
        """The usage of each instance up to now."""
        now = self._s.clock.now()
        started = await self._started(instance.id for instance in instances)
        usages = []
        for instance in instances:
            work_ms, last_ms = await self._worked(instance, started.get(instance.id, ()), now)
            usages.append(usage_of(instance, work_ms, now, last_ms))
        return usages

    async def _worked(self, instance: Instance, started: Iterable[int], now: int) -> Worked:
        known = self._gone.get(instance.id)
        if known is not None:
            return known
        attempts = await self._s.store.attempts_of(instance.id)
        ended = [(a.started_ms, a.ended_ms) for a in attempts if a.started_ms is not None]
        work = busy_ms([*ended, *((moment, now) for moment in started)])
        last = max((a.ended_ms for a in attempts), default=None)
        if instance.state is InstanceState.GONE:
            if len(self._gone) >= _KNOWN:
                del self._gone[next(iter(self._gone))]
            self._gone[instance.id] = (work, last)
        return work, last

    async def _started(self, instances: Iterable[InstanceId]) -> dict[InstanceId, list[int]]:
        """When the tasks that run now were started, by instance."""
        held = [task for instance in instances for task in self._s.store.leases_of(instance)]
        started: dict[InstanceId, list[int]] = {}
        for at in range(0, len(held), _LEASES_A_QUERY):
            page = TaskFilter(ids=tuple(held[at : at + _LEASES_A_QUERY]))
            for task in await self._s.store.tasks(page, limit=_LEASES_A_QUERY):
                if task.lease is not None and task.lease.started_ms is not None:
                    started.setdefault(task.lease.instance, []).append(task.lease.started_ms)
        return started


class InstanceRoutes:
    """The routes under /v1/instances and /v1/pools, and those of plans."""

    def __init__(self, services: Services, usage: UsageReader) -> None:
        self._s = services
        self._usage = usage
        self._acts = {verb: getattr(services.fleet, verb) for verb in _VERBS}

    def routes(self) -> list[Route]:
        return [
            route("GET", "/v1/instances", self.listing, query=("past", "limit")),
            route("GET", "/v1/instances/{instance}", self.one),
            route("GET", "/v1/instances/{instance}/explain", self.explain),
            route("POST", "/v1/instances/{instance}/{verb}", self.act),
            route("POST", "/v1/adopt", self.adopt),
            route("GET", "/v1/pools", self.pools),
            route("PUT", "/v1/pools/{pool}/target", self.set_target),
            route("DELETE", "/v1/pools/{pool}/target", self.drop_target, query=("source",)),
            route("GET", "/v1/plan", self.plan),
            route(
                "GET",
                "/v1/offers",
                self.offers,
                query=("cpus_milli", "memory", "disk", "gpus", "gpu_type", "arch", "market", "pool", "limit"),
            ),
            route("GET", "/v1/plans", self.plans, query=("before", "limit")),
            route("GET", "/v1/plans/{plan}", self.stored_plan),
        ]

    async def listing(self, request: Request) -> Response:
        found = list(self._s.store.instances().values())
        if flag(request, "past"):
            found.extend(await self._s.store.past_instances(limit=page_size(request, 1000, 10_000)))
        return json_response({"instances": await self._views(found)})

    async def one(self, request: Request) -> Response:
        return json_response(await self._view(await self._s.store.instance(path_instance(request))))

    async def act(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        if verb not in self._acts:
            raise NotFound(f"nothing like {verb[:40]!r} can be done to an instance", hint=", ".join(_VERBS))
        asked = await body_of(request, _REASON, self._s.limits.operator_bytes)
        await self._acts[verb](path_instance(request), check_text(asked.reason, "reason"))
        return json_response(await self._view(await self._s.store.instance(path_instance(request))))

    async def adopt(self, request: Request) -> Response:
        asked = await body_of(request, _ADOPT, self._s.limits.operator_bytes)
        seen = dict(await self._s.fleet.adopt(check_text(asked.store, "store")))
        return json_response({"store": asked.store, "vms": seen.pop(asked.store, 0), "others": seen})

    async def explain(self, request: Request) -> Response:
        return json_response(await self._s.fleet.explain_instance(path_instance(request)))

    async def pools(self, request: Request) -> Response:
        targets = self._s.store.targets()
        living = [instance.pool for instance in self._s.store.instances().values()]
        views = [
            pool_view(pool, living.count(name), [target for target in targets if target.pool == name])
            for name, pool in sorted(self._s.terms().pools.items())
        ]
        return json_response({"pools": views})

    async def set_target(self, request: Request) -> Response:
        pool = self._known_pool(request)
        asked = await body_of(request, _TARGET, self._s.limits.operator_bytes)
        if not 0 <= asked.count <= 1_000_000:
            raise InvalidInput("expected a number of instances from 0 to 1000000", place="count")
        if asked.expires_ms is not None and not 0 <= asked.expires_ms < 2**53:
            raise InvalidInput("expected milliseconds since 1970, or null for never", place="expires_ms")
        target = Target(pool, _source(asked.source), asked.count, asked.expires_ms)
        await self._s.store.set_target(target)
        self._s.fleet.wake()
        return json_response(target_view(target))

    async def drop_target(self, request: Request) -> Response:
        pool, source = self._known_pool(request), _source(text(request, "source", "rest"))
        if all((target.pool, target.source) != (pool, source) for target in self._s.store.targets()):
            raise NotFound(f"pool {pool} has no target from {source!r}", place="source")
        await self._s.store.drop_target(pool, source)
        self._s.fleet.wake()
        return json_response({"dropped": {"pool": pool, "source": source}})

    async def plan(self, request: Request) -> Response:
        return json_response(await self._s.fleet.preview())

    async def offers(self, request: Request) -> Response:
        amounts = Resources(
            number(request, "cpus_milli", 1_000, _MOST_AMOUNT), number(request, "memory", 0, _MOST_AMOUNT),
            number(request, "disk", 0, _MOST_AMOUNT), number(request, "gpus", 0, _MOST_AMOUNT),
        )  # fmt: skip
        labels = [(name, value) for name in ("arch", "market") if (value := text(request, name))]
        pool = text(request, "pool")
        if pool and pool not in self._s.terms().pools:
            known = ", ".join(self._s.terms().pools)
            raise NotFound(f"there is no pool {pool[:80]!r}", place="pool", hint=f"pools: {known}")
        shape = Shape(amounts, gpu_type=text(request, "gpu_type"), labels=tuple(labels), pool=pool)
        return json_response(await self._s.fleet.offers(shape, page_size(request, 20, 1000)))

    async def plans(self, request: Request) -> Response:
        before = number(request, "before", _MOST_AMOUNT, _MOST_AMOUNT)
        stored = await self._s.store.plans(before=before, limit=page_size(request, 20, 1000))
        views = [
            {"id": p.id, "at_ms": p.at_ms, "actions": plain_actions(decode_plan(p.plan), decode_begun(p.plan))}
            for p in stored
        ]
        return json_response({"plans": views})

    async def stored_plan(self, request: Request) -> Response:
        found = await self._s.store.plan(path_number(request, "plan"))
        return json_response(Record(found.id, found.at_ms, msgspec.Raw(found.snapshot), msgspec.Raw(found.plan)))

    def _known_pool(self, request: Request) -> PoolName:
        pool = path_pool(request)
        if pool not in self._s.terms().pools:
            known = ", ".join(sorted(self._s.terms().pools)) or "none is configured"
            raise NotFound(f"there is no pool {pool[:80]!r}", place="pool", hint=f"pools: {known}")
        return pool

    async def _views(self, instances: Sequence[Instance]) -> list[View]:
        usages = await self._usage.of(instances)
        load_of, unreachable = self._s.store.load_of, self._s.fleet.unreachable
        return [
            instance_view(instance, usage, load_of(instance.id).tasks, unreachable(instance))
            for instance, usage in zip(instances, usages, strict=True)
        ]

    async def _view(self, instance: Instance) -> View:
        return (await self._views([instance]))[0]


def _source(name: str) -> str:
    if not 0 < len(name) <= 64 or not name.isprintable():
        raise InvalidInput("a source is a name of 1 to 64 characters", place="source")
    return name
