"""Submitting, cancelling and prioritising tasks, as operations of the group commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, insert, select, text
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskSpec, TaskState
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import at_length
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.statestore.reader import PATIENCE_S
from cloud_dispatch.statestore.rows import encode, retry_row, spec_of
from cloud_dispatch.statestore.schema import shapes, specs, tasks

MAX_SUBMIT = 200_000
#: Past this many specifications a submission is encoded off the loop.
_LARGE = 500
_CHUNK = 500
_PRIORITIES = range(-(2**31), 2**31)
#: As text, like the condition of an index: SQLite compares the two.
_EMPTY = text("''")


class Submit:
    """Queue all of `wanted` or none."""

    def __init__(self, wanted: Sequence[TaskSpec], clock: Clock) -> None:
        if len(wanted) > MAX_SUBMIT:
            raise InvalidInput(f"{len(wanted)} tasks in one submission", hint=f"at most {MAX_SUBMIT} at once")
        self._wanted = wanted
        self._clock = clock
        self._bodies: list[bytes] = []
        self._known: dict[str, tuple[int, TaskSpec]] = {}
        self._ids: list[TaskId] = []
        self._keys = sorted({spec.idempotency_key for spec in wanted if spec.idempotency_key})
        self.reads = bool(self._keys) or len(wanted) > _LARGE

    def prepare(self, connection: Connection) -> None:
        self._encode()
        for at in range(0, len(self._keys), _CHUNK):
            query = select(tasks.c.idempotency_key, tasks.c.id, specs.c.body).join_from(tasks, specs)
            found = connection.execute(query.where(tasks.c.idempotency_key.in_(self._keys[at : at + _CHUNK])))
            self._known.update({key: (task, spec_of(body)) for key, task, body in found})

    def plan(self, batch: Batch) -> None:
        if not self._bodies:
            self._encode()
        memory, now = batch.memory, self._clock.now()
        self._ids = []
        fresh: list[tuple[int, TaskSpec, bytes]] = []
        mine: dict[str, tuple[int, TaskSpec]] = {}
        following = memory.last_task + 1
        for at, (spec, body) in enumerate(zip(self._wanted, self._bodies, strict=True)):
            key = spec.idempotency_key
            known = (self._known.get(key) or batch.keys.get(key) or mine.get(key)) if key else None
            if known is not None:
                if known[1] != spec:
                    raise _taken(known[0], self._wanted, at)
                self._ids.append(TaskId(known[0]))
                continue
            if key:
                mine[key] = (following, spec)
            self._ids.append(TaskId(following))
            fresh.append((following, spec, body))
            following += 1
        if fresh:
            batch.keys.update(mine)
            self._queue(batch, fresh, now)

    def answer(self, specs: Mapping[int, bytes]) -> Sequence[TaskId]:
        return self._ids

    def _encode(self) -> None:
        self._bodies = [_encoded(spec, f"task {at}") for at, spec in enumerate(self._wanted)]

    def _queue(self, batch: Batch, fresh: Sequence[tuple[int, TaskSpec, bytes]], now: int) -> None:
        memory = batch.memory
        lots: dict[Any, tuple[Lot, bytes | None]] = {}
        queued: list[tuple[int, Lot]] = []
        for task, spec, body in fresh:
            kind = (spec.shape, spec.priority, spec.expected_runtime_ms, spec.retry, spec.project, spec.user)
            made = lots.get(kind)
            if made is None:
                number = _shape_number(batch, spec.shape)
                payer = Payer(spec.project, spec.user) if spec.project or spec.user else NOBODY
                line = memory.line_of(number, payer)
                lot = Lot(number, spec.priority, now, spec.expected_runtime_ms, 0, spec.retry, line, payer)
                made = lots[kind] = lot, retry_row(spec.retry)
            lot, retry = made
            queued.append((task, lot))
            batch.new_tasks.append(
                (
                    task, "queued", spec.priority, 0, None, None, None, None, None, now, lot.expected_ms, lot.shape,
                    retry, spec.project, spec.user, spec.name, spec.array_id, spec.idempotency_key or None,
                )
            )  # fmt: skip
            batch.new_specs.append((task, body))
            batch.queued[lot.shape] = batch.queued.get(lot.shape, 0) + 1
        memory.enqueue_all(queued)
        memory.last_task = fresh[-1][0]


def _encoded(spec: TaskSpec, place: str) -> bytes:
    """The specification as it is kept; InvalidInput for what no database can keep."""
    if spec.priority not in _PRIORITIES:
        raise InvalidInput(f"priority {spec.priority}", place=place, hint="between -2147483648 and 2147483647")
    if not 0 <= spec.expected_runtime_ms < 2**53:
        raise InvalidInput(f"expected runtime {spec.expected_runtime_ms} ms", place=place, hint="at least 0")
    names = (spec.name, spec.project, spec.user, spec.array_id, spec.idempotency_key)
    if any("\0" in name for name in names):
        raise InvalidInput("a NUL character in a name", place=place)
    try:
        return encode(spec)
    except UnicodeEncodeError:
        raise InvalidInput("text that is not Unicode (a lone surrogate)", place=place) from None


def _taken(task: int, wanted: Sequence[TaskSpec], at: int) -> InvalidInput:
    """The key of `wanted[at]` is that of another specification. The place is that of what somebody wrote: one input
    that was expanded is there from its member 0 on, and the key names the member."""
    written = max(sum(spec.array_index == 0 for spec in wanted[: at + 1]) - 1, 0)
    return InvalidInput(
        f"the idempotency key {wanted[at].idempotency_key!r} is that of task {task}, which is another specification",
        place=f"tasks[{written}].idempotency_key",
        hint="give another key, or send the same specification",
    )


def _shape_number(batch: Batch, shape: Shape) -> int:
    memory = batch.memory
    number = memory.shape_numbers.get(shape)
    if number is None:
        number = memory.last_shape + 1
        memory.add_shape(number, shape)
        batch.before.append((insert(shapes), [{"id": number, "key": shape.key, "body": encode(shape)}]))
    return number


class Cancel:
    """Cancel every matching task that has not ended."""

    reads = True

    def __init__(self, where: TaskFilter, clock: Clock) -> None:
        if where == TaskFilter():
            raise InvalidInput("cancelling everything by an empty filter", hint="name tasks, an array, a project ...")
        self._where = where
        self._clock = clock
        self._found: list[int] = []
        self._changed: list[TaskId] = []

    def prepare(self, connection: Connection) -> None:
        where = matching(self._where, states=False)
        query = select(tasks.c.id).where(and_(tasks.c.ended_ms.is_(None), where)).order_by(tasks.c.id)
        with at_length(connection, PATIENCE_S):
            self._found = list(connection.scalars(query))

    def plan(self, batch: Batch) -> None:
        memory, now = batch.memory, self._clock.now()
        states = self._where.states or frozenset(TaskState)
        self._changed = []
        for task in self._found:
            hold = memory.holds.get(task)
            if hold is not None:
                if hold.state not in states or hold.cancelling:
                    continue
                memory.mark_cancelling(hold)
                batch.task_held(hold)
            elif task in memory.queue and TaskState.QUEUED in states:
                lot = memory.dequeue(task)
                memory.counts[TaskState.CANCELLED] += 1
                batch.task_ended(task, TaskState.CANCELLED, lot.attempts, now)
            else:
                continue
            self._changed.append(TaskId(task))

    def answer(self, specs: Mapping[int, bytes]) -> Sequence[TaskId]:
        return self._changed


class Prioritise:
    """A new priority for a task that has not ended."""

    reads = False

    def __init__(self, task: TaskId, priority: int) -> None:
        if priority not in _PRIORITIES:
            raise InvalidInput(f"priority {priority}", hint="between -2147483648 and 2147483647")
        self._task = task
        self._priority = priority

    def prepare(self, connection: Connection) -> None:
        """Reads nothing."""

    def plan(self, batch: Batch) -> None:
        memory, task = batch.memory, self._task
        hold = memory.holds.get(task)
        if hold is not None:
            memory.relot(hold, hold.lot._replace(priority=self._priority))
            batch.task_held(hold)
        elif task in memory.queue:
            memory.reprioritise(task, self._priority)
            batch.task_queued(task, memory.queue.lots[task])
        elif 0 < task <= memory.last_task:
            raise Conflict(f"task {task} has ended", hint="a priority matters only until then")
        else:
            raise NotFound(f"there is no task {task}")

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None


def matching(where: TaskFilter, *, states: bool = True) -> ColumnElement[bool]:
    """The filter as SQL over `tasks`; without `states` of any state. A column whose index leaves out what is empty
    is said not to be: no database takes such an index for a value that it is not told when it plans."""
    indexed = ((tasks.c.project, where.project), (tasks.c.user_name, where.user), (tasks.c.array_id, where.array_id))
    terms = [and_(column == value, column != _EMPTY) for column, value in indexed if value]
    if where.name:
        terms.append(tasks.c.name == where.name)
    if where.ids:
        terms.append(tasks.c.id.in_(where.ids))
    if states and where.states:
        terms.append(tasks.c.state.in_([state.value for state in where.states]))
    return and_(True, *terms)
