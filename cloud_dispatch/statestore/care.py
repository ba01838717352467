"""Pruning and checking, as operations of the group commit. Owns what is old, and what becomes of it; what must hold is
in `invariants`, what is left of money in `folding` and `sums`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Delete, Table, delete, exists, func, literal, select, true
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import Retention
from cloud_dispatch.spend.windows import DAY_MS
from cloud_dispatch.statestore import sums, unasked
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import at_length
from cloud_dispatch.statestore.folding import WINDOWS_MS, Fold
from cloud_dispatch.statestore.invariants import problems_in, problems_of_memory
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.records import DropExpired
from cloud_dispatch.statestore.schema import (
    Number,
    attempts,
    charges,
    events,
    instances,
    intents,
    ledger,
    plans,
    shapes,
    tasks,
)

MAX_PRUNE = 100_000
#: Rows that are looked at by one question.
WINDOW = 100_000
_CHUNK = 500

Found = Mapping[str, Sequence[Any]]
_RAN_WHERE_SOME_LIVE = (
    exists()
    .where(attempts.c.task == tasks.c.id, attempts.c.instance == instances.c.id)
    .where(instances.c.state != InstanceState.GONE.value)
)


class _Rule(NamedTuple):
    """Which rows of a table may go: those whose moment `since` is longer ago than their retention, if `may`, too."""

    table: Table
    since: ColumnElement[int]
    may: ColumnElement[bool]


_RULES: Mapping[str, _Rule] = {
    rule.table.name: rule
    for rule in (
        _Rule(tasks, tasks.c.ended_ms, ~_RAN_WHERE_SOME_LIVE),
        # Ids go on from the newest: who follows them asks for those after it.
        _Rule(events, events.c.at_ms, events.c.id < select(func.max(events.c.id)).scalar_subquery()),
        _Rule(plans, plans.c.at_ms, true()),
        _Rule(instances, instances.c.ended_ms, instances.c.state == InstanceState.GONE.value),
        _Rule(ledger, ledger.c.bound_until_ms, sums.may_be_added_up()),
        _Rule(shapes, literal(0, Number), unasked.is_unasked()),  # whenever that was
    )
}


async def prune(
    ask: Callable[..., Awaitable[Any]], run: Callable[..., Awaitable[Any]], now_ms: int, retention: Retention,
    most: int, of: Collection[str], no_page: Callable[[], AbstractAsyncContextManager[bool]],
) -> Mapping[str, int]:  # fmt: skip
    """Let what is past retention go, at most `most` rows a table, and say how many went: `ask` as for `look`, `run` has
    operations committed. Rows of the ledger are added up where there is `no_page` of them (`costs.ByTask`)."""
    found = dict(await look(ask, now_ms, retention, most, of))
    others = {name: found.pop(name) for name in (ledger.name, shapes.name) if name in found}
    pruned = dict(await run(Prune(found)) if any(found.values()) else dict.fromkeys(found, 0))
    pruned |= dict.fromkeys(others, 0)
    for piece in await ask(sums.pieces, others[ledger.name]) if others.get(ledger.name) else ():
        async with no_page() as adds_up:
            pruned[ledger.name] += await run(sums.FoldLedger(piece)) if adds_up else 0
    unasked_for = others.get(shapes.name, ())
    while unasked_for:
        forget = unasked.Forget(unasked_for)
        pruned[shapes.name] += await run(forget)
        unasked_for = forget.left
    if not of:
        await run(DropExpired(now_ms - DAY_MS))
    if not of or charges.name in of:
        pruned[charges.name] = await run(Fold(now_ms, most))
    return pruned


async def look(
    ask: Callable[..., Awaitable[Any]], now_ms: int, retention: Retention, most: int, of: Collection[str] = ()
) -> Found:
    """By table, the ids of at most `most` rows that are past their retention; of these tables alone, if any are named.
    `ask` asks one question, of a connection and what goes with it, and lets others have their turn between two."""
    if not 1 <= most <= MAX_PRUNE:
        raise InvalidInput(f"batch {most}", place="batch", hint=f"between 1 and {MAX_PRUNE}")
    ages = {
        "tasks": retention.tasks_ms,
        "events": retention.events_ms,
        "plans": retention.plans_ms,
        "instances": retention.instances_ms,
        "ledger": None if retention.instances_ms is None else max(retention.instances_ms, WINDOWS_MS),
        "shapes": retention.tasks_ms,
    }
    found: dict[str, list[Any]] = {}
    for name, age in ages.items():
        if age is None or (of and name not in of):
            continue
        ids, after = await ask(past_retention, name, now_ms - age, None, most)
        while after is not None and len(ids) < most:
            more, after = await ask(past_retention, name, now_ms - age, after, most - len(ids))
            ids += more
        found[name] = ids
    return found


def past_retention(connection: Connection, name: str, before_ms: int, after: Any, most: int) -> tuple[list[Any], Any]:
    """Of `WINDOW` rows of this table, from the id `after` on (None: the first), the ids of at most `most` that ended
    before then: those stay what they are, whatever is committed meanwhile. And the id after which there are more, None
    where there are none.

    Tasks stay as long as an instance lives that they ran on: who used it, and pays for it, is told by their attempts
    once it is gone. Where nothing is to be found all rows are gone through, a million in 0.05 to 0.8 s: that has no
    place in a commit, and others who ask have their turn between two windows.
    """
    table, since, may = _RULES[name]
    rest = true() if after is None else table.c.id > after
    last = connection.scalar(select(table.c.id).where(rest).order_by(table.c.id).offset(WINDOW - 1).limit(1))
    within = rest if last is None else rest & (table.c.id <= last)
    query = select(table.c.id).where(within, since < before_ms, may)
    return list(connection.scalars(query.order_by(table.c.id).limit(most))), last


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
            table = _RULES[name].table
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
