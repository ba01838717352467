"""The API as it is served: real HTTP, statestore and files; only the fleet is a stand-in that the test directs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.adapters.entropy import SystemEntropy
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.api.admission import Admission
from cloud_dispatch.api.app import Api, make_app
from cloud_dispatch.api.auth import Tokens
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.api.server import serve
from cloud_dispatch.api.services import AgentBundle, Limits, Script, Services, Terms
from cloud_dispatch.domain.errors import Denied, InvalidInput, NotFound
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId, instance_id
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState, LaunchIntent
from cloud_dispatch.domain.money import Amount, parse_rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import EndRules, HealthCheck, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.domain.task import TaskSpec
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.fleet import BootWord, Directive, Heard
from cloud_dispatch.ports.store import InstanceChange, Store
from cloud_dispatch.reconcile import boot
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore import open_store
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import (
    REGISTER_PATH,
    SYNC_PATH,
    HeldClaim,
    Policy,
    RegisterReply,
    RegisterRequest,
    Result,
    SyncReply,
    SyncRequest,
)
from tests.migrated import migrated_store

POOL = Pool(
    PoolName("default"),
    (ProfileName("local"),),
    end=EndRules(idle_ms=7_000, max_tasks=3, empty_claims=4, lifetime_ms=3_600_000),
    health_checks=(HealthCheck(("true",)),),
)
SCRIPTS = [Script("a.sh", "#!/bin/sh\n"), Script("b.py", "#!/usr/bin/python3\n")]
AGENT = AgentBundle(b"PK agent", "ab" * 32, {"cd" * 32: b"PK former"})
#: Where VMs would reach the dispatcher.
URL = "https://dispatcher.example:7717"


class AheadClock(SystemClock):
    """The system's, `ahead_ms` later, by a wall clock that was set forward by `set_ms`."""

    ahead_ms = set_ms = 0

    def now(self) -> int:
        return super().now() + self.ahead_ms + self.set_ms

    def monotonic(self) -> int:
        return super().monotonic() + self.ahead_ms


class StubFleet:
    """Admits the VMs of batches that the test launched, notes what it hears, says what the test sets."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.said: list[Heard] = []
        self.boots: list[tuple[BatchId, BootWord]] = []
        self.directives: dict[InstanceId, Directive] = {}
        self.woken = 0
        self.failure: Exception | None = None
        self.stop_asked = Stop()
        self.broken: list[dict[str, Any]] = []
        self.unreached: dict[InstanceId, str] = {}
        self._listeners: list[Callable[[InstanceId], None]] = []

    def direct(self, instance: InstanceId, directive: Directive) -> None:
        self.directives[instance] = directive
        for listener in self._listeners:
            listener(instance)

    async def admit(self, batch: BatchId, vm: VmId, incarnation: str, proof: str) -> Instance:
        rows = [row for row in self.store.instances().values() if row.batch == batch]
        for row in rows:
            if row.vm == vm:
                return row
        for row in rows:
            if row.state is InstanceState.LAUNCHING:
                change = InstanceChange(row.id, InstanceEvent.REGISTERED, {"vm": vm, "registered_ms": 2_000})
                return (await self.store.change([change]))[0]
        raise Denied(f"all instances of batch {batch} are taken", hint="end this VM")

    async def boot_said(self, batch: BatchId, word: BootWord) -> None:
        if self.failure is not None:
            raise self.failure
        self.boots.append((batch, word))

    def booting(self, batch: BatchId, vm: str) -> Instance:
        return boot.speaker([row for row in self.store.instances().values() if row.batch == batch], vm)

    def heard(self, said: Heard) -> None:
        self.said.append(said)
        if self.store.living(said.instance) is None:
            raise NotFound("no such instance")

    def directive(self, instance: InstanceId) -> Directive:
        living = self.store.living(instance) is not None
        return self.directives.get(instance, Directive() if living else Directive(claiming=False, end=True))

    def on_directive(self, listener: Callable[[InstanceId], None]) -> None:
        self._listeners.append(listener)

    async def _act(self, verb: str, instance: InstanceId, reason: str) -> Instance:
        if self.failure is not None:
            raise self.failure
        changed = await self.store.change([InstanceChange(instance, None, {"reason": f"{verb}: {reason}"})])
        return changed[0]

    async def stop(self, level: StopLevel, reason: str) -> Stop:
        self.stop_asked = Stop(level, reason, 5)
        return self.stop_asked

    async def set_limit(self, key: Key, window: Window, limit: Amount | None, reason: str) -> None:
        await self.store.set_limit(key, window, limit)

    async def reconcile(self) -> None:
        await self.store.reconcile()

    def check_spender(self, key: Key) -> None:
        if key == Key(Scope.POOL, "typo"):
            raise InvalidInput("no such pool 'typo'", place="of")

    def risk(self) -> list[str]:
        return ["pool default: any number"]

    def breakers(self) -> list[dict[str, Any]]:
        return self.broken

    async def reset_breakers(self, name: str) -> None:
        if name and name not in [one["name"] for one in self.broken]:
            raise NotFound(f"there is no breaker {name}")
        self.broken = [one for one in self.broken if name not in ("", one["name"])]

    def stopped(self) -> Stop:
        return self.stop_asked

    async def hold(self, instance: InstanceId, reason: str) -> Instance:
        return await self._act("hold", instance, reason)

    async def drain(self, instance: InstanceId, reason: str) -> Instance:
        return await self._act("drain", instance, reason)

    async def resume(self, instance: InstanceId, reason: str) -> Instance:
        return await self._act("resume", instance, reason)

    async def kill(self, instance: InstanceId, reason: str) -> Instance:
        return await self._act("kill", instance, reason)

    def unreachable(self, instance: Instance) -> str:
        return self.unreached.get(instance.id, "")

    async def preview(self) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        return {"actions": [], "waiting": [], "unsatisfiable": []}

    async def offers(self, shape: Shape, limit: int) -> dict[str, Any]:
        return {"asked": shape.describe(), "gpu_type": shape.gpu_type, "labels": shape.labels, "limit": limit}

    async def explain_task(self, task: int) -> dict[str, Any]:
        return {"subject": f"task {task}", "state": "queued", "reasons": ["why not"], "events": []}

    async def explain_instance(self, instance: InstanceId) -> dict[str, Any]:
        return {"subject": f"instance {instance}", "state": "idle", "reasons": ["cheap"], "events": []}

    def wake(self) -> None:
        self.woken += 1


@dataclass
class Agent:
    """What an agent says over HTTP, by hand. `held` is what it believes to hold."""

    http: httpx.AsyncClient
    instance: InstanceId
    token: str
    policy: Policy
    incarnation: str = "one"
    seq: int = 0
    heard: int = 0
    held: list[HeldClaim] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def post(self, request: SyncRequest) -> httpx.Response:
        return await self.http.post(SYNC_PATH, content=codec.encode(request), headers=self.headers)

    def request(self, **said: Any) -> SyncRequest:
        """The next sync: a rising seq, what is held, and `said`."""
        self.seq += 1
        known = {"incarnation": self.incarnation, "seq": self.seq, "held": list(self.held), "heard": self.heard}
        return SyncRequest(**{**known, **said})

    async def sync(self, **said: Any) -> SyncReply:
        """One round trip that must succeed; decoded with the agent's own codec."""
        response = await self.post(self.request(**said))
        assert response.status_code == 200, response.text
        reply = codec.decode(SyncReply, response.content)
        self.heard = reply.seq
        self.held.extend(HeldClaim(order.task, order.token, -1) for order in reply.claims)
        return reply

    async def finish(self, claim: HeldClaim, cause: str = "success", **more: Any) -> SyncReply:
        """Report that `claim` ended."""
        self.held.remove(claim)
        result = Result(claim.task, claim.token, cause, ran_ms=5, **more)
        return await self.sync(results=[result])


class House:
    """The served API and everything around it."""

    def __init__(self, services: Services, api: Api, fleet: StubFleet, url: str, http: httpx.AsyncClient) -> None:
        self.services = services
        self.store = services.store
        self.tokens = services.tokens
        self.api = api
        self.fleet = fleet
        self.url = url
        self.http = http  # without any token
        operator = services.outputs._root.parent / "operator.token"
        self.op = asking(url, operator.read_text().strip())
        self.stops: list[tuple[bool, int]] = []
        self.told: list[Terms] = []  # the last holds
        self.bounds: Admission | None = None  # once it is served
        self.batches = 0

    async def submit(self, count: int = 1, **spec: Any) -> list[int]:
        return list(await self.store.submit([TaskSpec(**{"argv": ("true",), **spec})] * count))

    async def launch(self, slots: int = 1, cpus: int = 4) -> BatchId:
        """A batch of instances that were launched and have not registered."""
        self.batches += 1
        batch = BatchId(f"b{self.batches:011d}")
        rows = [
            Instance(
                id=instance_id(batch, slot), batch=batch, pool=POOL.name, profile=ProfileName("local"), type="t4",
                zone="z", market=Market.ON_DEMAND,
                machine=Machine(Resources(cpus * 1000, 16 * GIB, 100 * GIB), pool=POOL.name, max_tasks=8),
                vcpus=cpus, rate=parse_rate("0.36"), state=InstanceState.INTENDED, intended_ms=500, ends_ms=10**13,
                boot_deadline_ms=10**13,
            )
            for slot in range(slots)
        ]  # fmt: skip
        await self.store.intend(LaunchIntent(batch, POOL.name, "local/t4/z/on-demand", slots, 500, "test"), rows)
        await self.store.change([InstanceChange(row.id, InstanceEvent.LAUNCH, {"launched_ms": 1_000}) for row in rows])
        return batch

    async def agent(self, incarnation: str = "one", cpus: int = 4) -> Agent:
        """A registered agent on an instance of its own."""
        batch = await self.launch(cpus=cpus)
        response = await self.register(self.tokens.join(batch, 1, 10**15), f"vm-{batch}", incarnation)
        assert response.status_code == 200, response.text
        reply = codec.decode(RegisterReply, response.content)
        return Agent(self.http, InstanceId(reply.instance), reply.token, reply.policy, incarnation)

    async def register(self, join: str, vm: str, incarnation: str = "one", **more: Any) -> httpx.Response:
        body = codec.encode(RegisterRequest(**{"vm": vm, "incarnation": incarnation, **more}))
        return await self.http.post(REGISTER_PATH, content=body, headers={"Authorization": f"Bearer {join}"})

    async def until_held(self, count: int = 1) -> None:
        """Wait until `count` syncs are held back."""
        async with asyncio.timeout(5):
            while len(self.api.sync.polls) < count:
                await asyncio.sleep(0.002)

    async def done(self, agent: Agent, **spec: Any) -> int:
        """A task that ran on `agent` and succeeded; its id."""
        (task,) = await self.submit(**spec)
        (order,) = (await agent.sync(want=1)).claims
        assert order.task == task
        await agent.finish(agent.held[-1])
        return task


def error_of(response: httpx.Response) -> tuple[int, str, str]:
    """Status, code and place of an error, which must have the form of all errors."""
    body = response.json()
    assert set(body) == {"code", "message", "place", "hint"}, body
    assert body["message"]
    return response.status_code, body["code"], body["place"]


def asking(url: str, token: str = "") -> httpx.AsyncClient:
    """Asks what is served at `url` without TLS, so that no CAs are read: that took longer than many a test."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=20, verify=nobody)


@asynccontextmanager
async def served(
    folder: Path,
    *,
    limits: Limits = Limits(),
    poll_ms: int = 20_000,
    output_bytes: int = GIB,
    connections: tuple[int, int] = (2048, 512),
    executor: Executor = Inline(),
) -> AsyncIterator[House]:
    """The API served at a free port of this machine until the block ends."""
    clock, entropy = AheadClock(), SystemEntropy()
    store = await open_store(migrated_store(folder / "store.sqlite"), clock=clock, entropy=entropy, executor=Inline())
    fleet = StubFleet(store)
    stops: list[tuple[bool, int]] = []
    told = [Terms(Policy(poll_ms=poll_ms), {POOL.name: POOL}, {POOL.name: SCRIPTS})]
    services = Services(
        store=store,
        fleet=fleet,
        clock=clock,
        entropy=entropy,
        tokens=Tokens.open(folder, entropy),
        logs=LogStore(folder / "logs", 100_000),
        outputs=OutputStore(folder / "outputs", output_bytes, Inline()),
        terms=lambda: told[-1],
        agent=AGENT,
        executor=executor,
        shutdown=lambda terminate, grace_ms: stops.append((terminate, grace_ms)),
        metrics=lambda: b"tasks 1\n",
        deployment="lab",
        version="1.2.3",
        limits=limits,
        url=URL,
    )
    api = make_app(services)
    stop = asyncio.Event()
    address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    bounds = Admission(*connections, clock)
    serving = asyncio.create_task(
        serve(api, "127.0.0.1:0", stop, bounds, ready=lambda *at: address.set_result(at), grace_ms=1000)
    )
    host, port = await asyncio.wait_for(address, 10)
    url = f"http://{host}:{port}"
    async with asking(url) as http:
        house = House(services, api, fleet, url, http)
        house.stops, house.told, house.bounds = stops, told, bounds
        try:
            yield house
        finally:
            stop.set()
            await asyncio.wait_for(serving, 10)
            await house.op.aclose()
            await store.close()
