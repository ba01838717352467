"""Plans, events, targets and facts, as operations of the group commit: rows that hang on nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Executable, bindparam, delete, insert, update
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.events import Event
from cloud_dispatch.ports.store import StoredPlan, Target
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.schema import events, facts, plans, targets


class Write:
    """Rows to write, and what the memory learns once they are durable."""

    reads = False

    def __init__(
        self,
        *statements: tuple[Executable, Sequence[Mapping[str, Any]]],
        effect: Callable[[], object] | None = None,
    ) -> None:
        self._statements = statements
        self._effect = effect

    def prepare(self, connection: Connection) -> None:
        """Reads nothing."""

    def plan(self, batch: Batch) -> None:
        for statement, rows in self._statements:
            batch.write(statement, *rows)
        if self._effect is not None:
            batch.effects.append(self._effect)

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None


def record_events(recorded: Sequence[Event]) -> Write:
    rows = [{name: getattr(event, name) for name in Event.__slots__ if name != "id"} for event in recorded]
    return Write((insert(events), rows))


def set_target(target: Target, memory: Memory) -> Write:
    key = (target.pool, target.source)
    old = delete(targets).where(targets.c.pool == target.pool, targets.c.source == target.source)
    row = {name: getattr(target, name) for name in Target.__slots__}
    return Write((old, ()), (insert(targets), [row]), effect=lambda: memory.targets.__setitem__(key, target))


def drop_target(pool: str, source: str, memory: Memory) -> Write:
    old = delete(targets).where(targets.c.pool == pool, targets.c.source == source)
    return Write((old, ()), effect=lambda: memory.targets.pop((pool, source), None))


class DropExpired(Write):
    """Drop the targets that had expired at `before_ms`: a script may name its run as their source."""

    def __init__(self, before_ms: int) -> None:
        super().__init__()
        self._before_ms = before_ms

    def plan(self, batch: Batch) -> None:
        known = batch.memory.targets

        def old() -> list[tuple[str, str]]:
            return [
                key for key, one in known.items() if one.expires_ms is not None and one.expires_ms < self._before_ms
            ]

        def forget() -> None:
            """As the tables are then: others of this group may have been set anew."""
            for key in old():
                del known[key]

        if old():
            batch.write(delete(targets).where(targets.c.expires_ms < self._before_ms))
            batch.effects.append(forget)


def the_same() -> Write:
    """Nothing becomes other by it."""
    return Write((update(facts).values(value=facts.c.value), ()))


def set_facts(changed: Mapping[str, str | None], memory: Memory) -> Write:
    """None: forget it."""
    known = {name: value for name, value in changed.items() if value is not None}

    def learn() -> None:
        for name in changed:
            memory.facts.pop(name, None)
        memory.facts.update(known)

    return Write(
        (delete(facts).where(facts.c.name == bindparam("of")), [{"of": name} for name in changed]),
        *([(insert(facts), [{"name": name, "value": value} for name, value in known.items()])] if known else ()),
        effect=learn,
    )


class RecordPlan:
    """A plan that had actions, with its compressed snapshot. Numbers come from memory, so that the answer is known."""

    reads = True

    def __init__(self, at_ms: int, snapshot: bytes, plan: bytes) -> None:
        self._row = {"at_ms": at_ms, "plan": plan}
        self._snapshot = snapshot
        self._number = 0

    def prepare(self, connection: Connection) -> None:
        self._row["snapshot"] = zlib.compress(self._snapshot, 1)  # three times as fast as the usual 6

    def plan(self, batch: Batch) -> None:
        batch.memory.last_plan += 1
        self._number = batch.memory.last_plan
        batch.write(insert(plans), {"id": self._number, **self._row})

    def answer(self, specs: Mapping[int, bytes]) -> int:
        return self._number


def amend_plan(number: int, plan: bytes) -> Write:
    """What is stored of a plan becomes this; its snapshot stays."""
    return Write((update(plans).where(plans.c.id == number).values(plan=plan), ()))


def plan_of(row: Any) -> StoredPlan:
    return StoredPlan(row.id, row.at_ms, zlib.decompress(row.snapshot), row.plan)
