"""Pruning and checking, as operations of the group commit. Owns what is old; what must hold is in `invariants`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Delete, Table, delete, func, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import Retention
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import at_length
from cloud_dispatch.statestore.invariants import problems_in, problems_of_memory
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.schema import events, instances, intents, plans, tasks

MAX_PRUNE = 100_000
_CHUNK = 500


class Prune:
    """Delete what ended longer ago than its retention; attempts and specifications go with their task."""

    reads = True

    def __init__(self, now_ms: int, retention: Retention, most: int) -> None:
        if not 1 <= most <= MAX_PRUNE:
            raise InvalidInput(f"batch {most}", place="batch", hint=f"between 1 and {MAX_PRUNE}")
        self._most = most
        self._rules: list[tuple[Table, str, ColumnElement[bool]]] = []
        gone = instances.c.state == InstanceState.GONE.value
        for table, age, column, condition in (
            (tasks, retention.tasks_ms, tasks.c.ended_ms, None),
            (events, retention.events_ms, events.c.at_ms, None),
            (plans, retention.plans_ms, plans.c.at_ms, None),
            (instances, retention.instances_ms, instances.c.ended_ms, gone),
        ):
            if age is not None:
                old = column < now_ms - age
                if table is events:  # ids go on from the newest: who follows them asks for those after it
                    old &= table.c.id < select(func.max(events.c.id)).scalar_subquery()
                self._rules.append((table, table.name, old if condition is None else old & condition))
        self._found: dict[str, list[Any]] = {}
        self._states: dict[int, TaskState] = {}
        self._batches: set[str] = set()  # of the instances

    def prepare(self, connection: Connection) -> None:
        with at_length(connection):  # there may be nothing to be found in many rows
            for table, name, old in self._rules:
                query = select(table.c.id).where(old).order_by(table.c.id).limit(self._most)
                self._found[name] = list(connection.scalars(query))
        for part in _chunks(self._found.get("tasks", [])):
            for task, state in connection.execute(select(tasks.c.id, tasks.c.state).where(tasks.c.id.in_(part))):
                self._states[task] = TaskState(state)
        for part in _chunks(self._found.get("instances", [])):
            self._batches.update(connection.scalars(select(instances.c.batch).where(instances.c.id.in_(part))))

    def plan(self, batch: Batch) -> None:
        for table, name, _ in self._rules:
            for part in _chunks(self._found[name]):
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
