"""Pruning and checking, as operations of the group commit. Owns what is old; what must hold is in `invariants`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Delete, Table, delete, exists, func, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import Retention
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import at_length
from cloud_dispatch.statestore.invariants import problems_in, problems_of_memory
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.schema import attempts, events, instances, intents, plans, tasks

MAX_PRUNE = 100_000
_CHUNK = 500


Found = Mapping[str, Sequence[Any]]
_RAN_WHERE_SOME_LIVE = (
    exists()
    .where(attempts.c.task == tasks.c.id, attempts.c.instance == instances.c.id)
    .where(instances.c.state != InstanceState.GONE.value)
)
_TABLES: Mapping[str, Table] = {table.name: table for table in (tasks, events, plans, instances)}


def past_retention(connection: Connection, now_ms: int, retention: Retention, most: int) -> Found:
    """By table, the ids of at most `most` rows that ended longer ago than their retention: those stay what they are,
    whatever is committed meanwhile. Tasks stay as long as an instance lives that they ran on: who used it, and pays for
    it, is told by their attempts once it is gone. Goes through all rows where there is nothing to be found, and so has
    no place in a commit (a million of each: 0.15 s)."""
    if not 1 <= most <= MAX_PRUNE:
        raise InvalidInput(f"batch {most}", place="batch", hint=f"between 1 and {MAX_PRUNE}")
    gone = instances.c.state == InstanceState.GONE.value
    found = {}
    for table, age, column, condition in (
        (tasks, retention.tasks_ms, tasks.c.ended_ms, ~_RAN_WHERE_SOME_LIVE),
        (events, retention.events_ms, events.c.at_ms, None),
        (plans, retention.plans_ms, plans.c.at_ms, None),
        (instances, retention.instances_ms, instances.c.ended_ms, gone),
    ):
        if age is None:
            continue
        old: ColumnElement[bool] = column < now_ms - age
        if table is events:  # ids go on from the newest: who follows them asks for those after it
            old &= table.c.id < select(func.max(events.c.id)).scalar_subquery()
        query = select(table.c.id).where(old if condition is None else old & condition)
        with at_length(connection):
            found[table.name] = list(connection.scalars(query.order_by(table.c.id).limit(most)))
    return found


class Prune:
    """Delete what `past_retention` found; attempts and specifications go with their task."""

    reads = True

    def __init__(self, found: Found) -> None:
        self._found = found
        self._states: dict[int, TaskState] = {}
        self._batches: set[str] = set()  # of the instances

    def prepare(self, connection: Connection) -> None:
        """Another may have deleted some of it since: tasks that are gone are not counted off once more."""
        self._states, self._batches = {}, set()
        for part in _chunks(self._found.get("tasks", [])):
            for task, state in connection.execute(select(tasks.c.id, tasks.c.state).where(tasks.c.id.in_(part))):
                self._states[task] = TaskState(state)
        for part in _chunks(self._found.get("instances", [])):
            self._batches.update(connection.scalars(select(instances.c.batch).where(instances.c.id.in_(part))))

    def plan(self, batch: Batch) -> None:
        for name, ids in self._found.items():
            table = _TABLES[name]
            for part in _chunks(ids):
                batch.write(delete(table).where(table.c.id.in_(part)))
        for part in _chunks(sorted(self._batches)):
            batch.write(_without_instances(part))
        for task in self._states.keys() - batch.pruned:
            batch.memory.counts[self._states[task]] -= 1
        batch.pruned.update(self._states)

    def answer(self, specs: Mapping[int, bytes]) -> Mapping[str, int]:
        return {name: len(found) for name, found in self._found.items()}


class Check:
    """Problems of the tables, and between the tables and the memory.

    All of it happens in `prepare`: between two groups, when every move is durable, so both must say the same. Commits
    wait meanwhile.
    """

    reads = True

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._problems: list[str] = []

    def prepare(self, connection: Connection) -> None:
        with at_length(connection):
            self._problems = [*problems_in(connection), *problems_of_memory(connection, self._memory)]

    def plan(self, batch: Batch) -> None:
        """Moves nothing."""

    def answer(self, specs: Mapping[int, bytes]) -> Sequence[str]:
        return self._problems


def _without_instances(batches: Sequence[str]) -> Delete:
    """Delete the intents of those of these batches that have no instance any more. The instances are read once: no
    index has them by batch, and a look for each intent took minutes where a hundred thousand of them were kept."""
    left = select(instances.c.batch).where(instances.c.batch.in_(batches))
    return delete(intents).where(intents.c.batch.in_(batches), intents.c.batch.not_in(left))


def _chunks(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + _CHUNK] for at in range(0, len(items), _CHUNK)]
