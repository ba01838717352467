"""Operator routes about tasks: submit, run again, list, look, cancel, priority. Owns their inputs, not the rules of
tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.http import decode_exact, read_body
from cloud_dispatch.api.poll import Polls
from cloud_dispatch.api.requests import (
    body_of,
    check_text,
    json_response,
    number,
    page_size,
    path_task,
    route,
    states,
    text,
)
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.views import attempt_view, spec_view, task_view
from cloud_dispatch.demand.fields import MAX_PRIORITY
from cloud_dispatch.demand.notes import notes_of
from cloud_dispatch.demand.submission import SubmissionLimits, may_be_many, parse, size_of
from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound
from cloud_dispatch.domain.ids import ArrayId, TaskId
from cloud_dispatch.domain.resources import MIB
from cloud_dispatch.domain.task import TERMINAL, Task, TaskSpec, TaskState
from cloud_dispatch.ports.store import TaskFilter

#: A submission larger than this is parsed off the loop, as is one that may stand for more tasks than it has words for.
_SMALL_BYTES = 65_536
_PAGE = 1000
#: What a page of a list may hold: a thousand tasks of megabytes each would stop the loop while they are written out.
_PAGE_BYTES = 8 * MIB
_MOST_ID = 2**63 - 1
_FILTER = ("state", "project", "user", "array", "name")


class SubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    tasks: list[Any]


class WhichBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks: those that match all that is given."""

    ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    array: str | msgspec.UnsetType = msgspec.UNSET
    project: str | msgspec.UnsetType = msgspec.UNSET
    user: str | msgspec.UnsetType = msgspec.UNSET
    states: list[str] | msgspec.UnsetType = msgspec.UNSET


class PriorityBody(msgspec.Struct, forbid_unknown_fields=True):
    priority: int


_SUBMIT = msgspec.json.Decoder(SubmitBody)
_WHICH = msgspec.json.Decoder(WhichBody)
_PRIORITY = msgspec.json.Decoder(PriorityBody)


class ArrayNames:
    """Ids for the arrays of one submission, from a fresh random name. A class, so that it travels to any executor."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return self._base if self._count == 1 else f"{self._base}{self._count}"


def parse_submission(body: bytes, limits: SubmissionLimits, names: ArrayNames) -> tuple[TaskSpec, ...]:
    """The tasks in the body of a submission; InvalidInput with the place of the first bad one."""
    submitted: SubmitBody = decode_exact(_SUBMIT, body)
    if not submitted.tasks:
        raise InvalidInput("expected at least one task", place="tasks")
    return parse(submitted.tasks, "tasks", limits=limits, new_array=names)


def _takes_long(body: bytes) -> bool:
    return len(body) > _SMALL_BYTES or may_be_many(decode_exact(_SUBMIT, body).tasks)


def _by_number_alone(where: TaskFilter) -> bool:
    """Whether it names its tasks and asks nothing else of them: then each that it names is meant to be there."""
    return bool(where.ids) and where == TaskFilter(ids=where.ids)


def _refuse_unknown(where: TaskFilter, found: Sequence[Task]) -> None:
    """NotFound where one that `where` names is not among those that were found."""
    missing = sorted(set(where.ids) - {task.id for task in found})
    if missing:
        raise NotFound(
            f"there is no task {missing[0]}", place="ids", hint="nothing was changed; see `cloud-dispatch tasks`"
        )


def copies_of(ended: Sequence[Task]) -> list[TaskSpec]:
    """What runs in the place of tasks that have ended: by its key, which nobody can submit (`fields.word`), each is the
    only one for its task."""
    return [replace(task.spec, idempotency_key=f"\trerun of {task.id}") for task in ended]


class TaskRoutes:
    """The routes under /v1/tasks, and the counts of them."""

    def __init__(self, services: Services, polls: Polls) -> None:
        self._s = services
        self._polls = polls
        limits = services.limits
        self._limits = SubmissionLimits(
            limits.tasks_per_submission, limits.environment_bytes, limits.task_bytes_per_submission
        )

    def routes(self) -> list[Route]:
        return [
            route("POST", "/v1/tasks", self.submit),
            route("GET", "/v1/tasks", self.listing, query=(*_FILTER, "after", "before", "limit")),
            route("POST", "/v1/tasks/cancel", self.cancel),
            route("POST", "/v1/tasks/rerun", self.rerun),
            route("GET", "/v1/tasks/{task}", self.one),
            route("POST", "/v1/tasks/{task}/priority", self.priority),
            route("GET", "/v1/tasks/{task}/explain", self.explain),
            route("GET", "/v1/counts", self.counts, query=(*_FILTER,)),
        ]

    async def submit(self, request: Request) -> Response:
        body = await read_body(request.scope, request.receive, self._s.limits.request_bytes)
        names = ArrayNames(self._s.entropy.name("array"))
        pools = self._s.terms().pools
        if _takes_long(body):
            specs = await self._s.executor.run(parse_submission, body, self._limits, names)
            notes = await self._s.executor.run(notes_of, specs, pools)
        else:
            specs = parse_submission(body, self._limits, names)
            notes = notes_of(specs, pools)
        ids = await self._s.store.submit(specs)
        self._s.fleet.wake()
        arrays = list(dict.fromkeys(spec.array_id for spec in specs if spec.array_id))
        return json_response({"ids": list(ids), "arrays": arrays, "notes": notes}, 201)

    async def listing(self, request: Request) -> Response:
        where = self._filter(request)
        limit = page_size(request, 100, _PAGE)
        after, before = TaskId(number(request, "after", 0, 10**18)), number(request, "before", 0, 10**18)
        upto = TaskId(before) if before else None
        page = await self._s.store.page(where, after=after, before=upto, limit=limit, size=_PAGE_BYTES)
        return json_response({"tasks": [task_view(task) for task in page.tasks], "next": page.next})

    async def one(self, request: Request) -> Response:
        task = await self._s.store.task(path_task(request))
        attempts = await self._s.store.attempts(task.id)
        view = task_view(task)
        view["attempts_list"] = [attempt_view(attempt) for attempt in attempts]
        view["spec"] = spec_view(task.spec)
        return json_response(view)

    async def cancel(self, request: Request) -> Response:
        where = await self._which(request)
        if _by_number_alone(where):
            for at in range(0, len(where.ids), _PAGE):
                part = TaskFilter(ids=where.ids[at : at + _PAGE])
                _refuse_unknown(part, await self._s.store.tasks(part, limit=_PAGE))
        cancelled = await self._s.store.cancel(where)
        self._polls.cancelled(cancelled)
        for task_id in cancelled:
            self._s.logs.notify(task_id)
        self._s.fleet.wake()
        return json_response({"cancelled": list(cancelled)})

    async def rerun(self, request: Request) -> Response:
        """New tasks like those that have ended. A task has one such copy, however often it is asked for."""
        where = await self._which(request)
        if where == TaskFilter():
            raise InvalidInput("expected at least one of ids, array, project, user, states")
        if not (where.ids or where.states):
            where = replace(where, states=frozenset({TaskState.FAILED}))
        ended = await self._all(where)
        if _by_number_alone(where):
            _refuse_unknown(where, ended)
        if live := [task for task in ended if task.state not in TERMINAL]:
            raise Conflict(f"task {live[0].id} is {live[0].state}", hint="only tasks that have ended run again")
        copies = copies_of(ended) if len(ended) < _PAGE else await self._s.executor.run(copies_of, ended)
        again = await self._s.store.submit(copies)
        self._s.fleet.wake()
        now = {
            task.id: task.state
            for at in range(0, len(again), _PAGE)
            for task in await self._s.store.tasks(TaskFilter(ids=tuple(again[at : at + _PAGE])), limit=_PAGE)
        }
        views = [
            {"task": task.id, "again": copy, "state": now.get(copy, TaskState.QUEUED)}
            for task, copy in zip(ended, again, strict=True)
        ]
        return json_response({"tasks": views}, 201)

    async def _which(self, request: Request) -> TaskFilter:
        """The tasks that a body speaks of."""
        asked = await body_of(request, _WHICH, self._s.limits.operator_bytes)
        given = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not msgspec.UNSET}
        for name, value in given.items():
            if not value:  # to the store it is no restriction, to who gave it no task
                raise InvalidInput("is empty: no task is meant", place=name, hint="leave it out where it is not asked")
        ids = given.get("ids", ())
        for at, task in enumerate(ids):
            if not 0 < task <= _MOST_ID:
                raise InvalidInput(f"{task} is no task id", place=f"ids[{at}]")
        return TaskFilter(
            ids=tuple(TaskId(task) for task in ids),
            states=states(given.get("states", []), "states"),
            project=check_text(given.get("project", ""), "project"),
            user=check_text(given.get("user", ""), "user"),
            array_id=ArrayId(check_text(given.get("array", ""), "array")),
        )

    async def _all(self, where: TaskFilter) -> list[Task]:
        """All that match, as many and as large as may be submitted at once; InvalidInput where there is more."""
        found: list[Task] = []
        size, limits = 0, self._limits
        ids = sorted(set(where.ids))
        for part in [replace(where, ids=tuple(ids[at : at + _PAGE])) for at in range(0, len(ids), _PAGE)] or [where]:
            after: TaskId | None = TaskId(0)
            while after is not None:
                page = await self._s.store.page(part, after=after, limit=_PAGE, size=_PAGE_BYTES)
                found += page.tasks
                size += sum(size_of(task.spec) for task in page.tasks)
                if len(found) > limits.tasks:
                    raise InvalidInput(f"more than {limits.tasks} tasks match", hint="take them in parts")
                if size > limits.task_bytes:
                    raise InvalidInput(
                        f"the tasks that match come to more than {limits.task_bytes} bytes", hint="take them in parts"
                    )
                after = page.next
        return found

    async def priority(self, request: Request) -> Response:
        asked = await body_of(request, _PRIORITY, self._s.limits.operator_bytes)
        if not -MAX_PRIORITY <= asked.priority <= MAX_PRIORITY:
            raise InvalidInput(f"expected a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}", place="priority")
        return json_response(task_view(await self._s.store.prioritise(path_task(request), asked.priority)))

    async def explain(self, request: Request) -> Response:
        return json_response(await self._s.fleet.explain_task(path_task(request)))

    async def counts(self, request: Request) -> Response:
        where = self._filter(request)
        counts = self._s.store.task_counts() if where == TaskFilter() else await self._s.store.count(where)
        return json_response({"counts": dict(counts)})

    def _filter(self, request: Request) -> TaskFilter:
        words = [word for word in text(request, "state").split(",") if word]
        return TaskFilter(
            states=states(words, "state"),
            project=text(request, "project"),
            user=text(request, "user"),
            array_id=ArrayId(text(request, "array")),
            name=text(request, "name"),
        )
