"""The operator's side of the API: its routes behind one token. Owns authentication of them and the answers about the
dispatcher as a whole: health, metrics, summary, events, shutdown. A task token opens the way to its task's inputs."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from cloud_dispatch.api.breakers import BreakerRoutes
from cloud_dispatch.api.budgets import BudgetRoutes
from cloud_dispatch.api.costs import CostRoutes
from cloud_dispatch.api.http import ClientGone, MethodNotAllowed, answer_failure, header, log
from cloud_dispatch.api.instances import InstanceRoutes, UsageReader
from cloud_dispatch.api.poll import Polls
from cloud_dispatch.api.requests import body_of, json_response, number, page_size, route, text
from cloud_dispatch.api.results import ResultRoutes
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.stop import StopRoutes
from cloud_dispatch.api.task_files import TaskFiles
from cloud_dispatch.api.tasks import TaskRoutes
from cloud_dispatch.api.views import event_view, usage_table
from cloud_dispatch.domain.errors import Denied, DispatchError, InvalidInput, NotFound
from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import TaskFilter

HEALTH_PATH = "/v1/health"
_PAST = 10_000
_MOST_EVENT = 10**18
_MOST_GRACE_MS = 86_400_000


class ShutdownBody(msgspec.Struct, forbid_unknown_fields=True):
    terminate: bool = False
    grace_ms: int = 60_000


_SHUTDOWN = msgspec.json.Decoder(ShutdownBody)


class OperatorApp:
    """All operator routes as one ASGI app. Whatever path is asked for, the token is asked for first."""

    def __init__(self, services: Services, polls: Polls) -> None:
        self._s = services
        self._started_ms = services.clock.monotonic()
        self._usage = UsageReader(services)
        self._results = ResultRoutes(services)
        self._files = TaskFiles(services)
        self._router = Router(
            [
                *self._routes(),
                *TaskRoutes(services, polls).routes(),
                *self._results.routes(),
                *InstanceRoutes(services, self._usage).routes(),
                *BudgetRoutes(services).routes(),
                *StopRoutes(services).routes(),
                *BreakerRoutes(services).routes(),
                *CostRoutes(services).routes(),
            ],
            redirect_slashes=False,
        )

    @property
    def routes(self) -> list[Route]:
        return [route for route in self._router.routes if isinstance(route, Route)]

    def close(self) -> None:
        """Let no follower wait any more: the dispatcher ends."""
        self._results.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if scope["path"] != HEALTH_PATH:
                await self._admit(scope)
            await self._router({**scope, "app": self}, receive, watched)
        except ClientGone:
            return
        except Exception as error:
            if begun:  # half an answer can't be taken back: the server closes the connection
                log.error("api.broken-off", path=scope["path"], error=repr(error))
                raise
            await answer_failure(send, self._of_router(error, scope), scope["path"])

    def _of_router(self, error: Exception, scope: Scope) -> Exception:
        """The router's own errors in our words; any other as it is."""
        if isinstance(error, DispatchError) or not isinstance(error, HTTPException):
            return error
        where = scope["path"][:200]
        if error.status_code == 405:
            here = [route for route in self.routes if route.matches(scope)[0] is not Match.NONE]
            allowed = sorted({method for route in here for method in route.methods or ()})
            return MethodNotAllowed(f"{scope['method']} is not for {where}", allowed=allowed)
        return NotFound(f"there is nothing at {where}", hint="docs/reference/rest-api.md lists all routes")

    async def _admit(self, scope: Scope) -> None:
        """Go on for the operator, and for a task that reads its inputs."""
        authorization = header(scope, b"authorization")
        claim = self._s.tokens.claim_of(authorization)
        if claim is None:
            self._s.tokens.check_operator(authorization)
        else:
            await self._files.check_input(claim, scope)

    def _routes(self) -> list[Route]:
        return [
            route("GET", HEALTH_PATH, self.health),
            route("GET", "/v1/metrics", self.metrics),
            route("GET", "/v1/summary", self.summary),
            route("GET", "/v1/events", self.events, query=("task", "instance", "before", "after", "limit")),
            route("POST", "/v1/shutdown", self.shutdown),
        ]

    async def health(self, request: Request) -> Response:
        """For everybody; what is wrong is for the operator alone: providers' words name accounts, others name files."""
        problems = list(self._s.problems())
        said = {
            "status": "degraded" if problems else "ok",
            "deployment": self._s.deployment,
            "store": self._s.store.id,
            "version": self._s.version,
            "uptime_ms": self._s.clock.monotonic() - self._started_ms,
        }
        try:
            self._s.tokens.check_operator(header(request.scope, b"authorization"))
        except Denied:
            return json_response(said)
        return json_response({**said, "problems": problems})

    async def metrics(self, request: Request) -> Response:
        return Response(self._s.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def summary(self, request: Request) -> Response:
        """What was done and what it cost, over the instances that the store remembers: where they are too many to be
        counted it says so, and not what a task cost, since tasks are all counted."""
        store = self._s.store
        counts = store.task_counts()
        past = await store.past_instances(limit=_PAST)
        partial = len(past) >= _PAST
        rows = [*store.instances().values(), *past]
        used = list(zip(rows, await self._usage.of(rows), strict=True))
        table = usage_table(used)
        total = sum(line["cost_micro"] for line in table)
        done = counts.get(TaskState.SUCCEEDED, 0) + counts.get(TaskState.FAILED, 0)
        first = await store.tasks(TaskFilter(), limit=1)
        ends = [usage.worked_ms for _, usage in used if usage.worked_ms is not None]
        return json_response(
            {
                "tasks": dict(counts),
                "instances": table,
                "cost_micro": total,
                "unpriced": sum(own.launched_ms is not None and usage.cost is None for own, usage in used),
                "partial": partial,
                "cost_per_task_micro": -(-total // done) if done and not partial else None,
                "tasks_done": done,
                "first_ms": first[0].submitted_ms if first else None,
                "last_ms": max(ends, default=None),
            }
        )

    async def events(self, request: Request) -> Response:
        task = number(request, "task", 0, 10**18)
        instance = text(request, "instance")
        before, after = (number(request, name, -1, _MOST_EVENT) for name in ("before", "after"))
        found = await self._s.store.events(
            instance=InstanceId(instance) if instance else None,
            task=TaskId(task) if task else None,
            before=before if before >= 0 else None,
            after=after if after >= 0 else None,
            limit=page_size(request, 100, 1000),
        )
        return json_response({"events": [event_view(event) for event in found]})

    async def shutdown(self, request: Request) -> Response:
        asked = await body_of(request, _SHUTDOWN, self._s.limits.operator_bytes)
        if not 0 <= asked.grace_ms <= _MOST_GRACE_MS:
            raise InvalidInput(f"expected milliseconds from 0 to {_MOST_GRACE_MS}", place="grace_ms")
        self._s.shutdown(asked.terminate, asked.grace_ms)
        return json_response({"terminate": asked.terminate, "grace_ms": asked.grace_ms}, 202)
