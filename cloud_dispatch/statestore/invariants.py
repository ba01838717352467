"""What must hold in a healthy store. Owns the questions that `check` asks, of the tables and of the memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, case, exists, func, or_, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.task import HELD, TERMINAL, TaskState
from cloud_dispatch.statestore.lineage import HINT, describe
from cloud_dispatch.statestore.loading import load
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.schema import attempts, counters, facts, instances, intents, ledger, shares, specs, tasks

#: At most this many offenders of a kind are named.
_NAMED = 10
_HELD = [state.value for state in HELD]
_TERMINAL = [state.value for state in TERMINAL]
_LEASE = (tasks.c.token, tasks.c.instance, tasks.c.claimed_ms)


def problems_in(connection: Connection) -> list[str]:
    """Problems of the tables by themselves."""
    found = list(_database(connection))
    for sentence, query in _questions():
        offenders = list(connection.scalars(query))
        if offenders:
            found.append(f"{sentence}: {', '.join(map(str, offenders))}")
    found.extend(_counters(connection))
    fallen_back = describe({row.name: row.value for row in connection.execute(select(facts))})
    return [*found, f"{fallen_back}: {HINT}"] if fallen_back else found


def problems_of_memory(connection: Connection, memory: Memory) -> list[str]:
    """Where the memory differs from what a restart would load."""
    try:
        loaded = load(connection)
    except DispatchError as error:
        return [str(error)]
    pairs = (
        ("waiting tasks", {t: lot[:5] for t, lot in memory.queue.lots.items()},
         {t: lot[:5] for t, lot in loaded.queue.lots.items()}),
        ("leases", _leases(memory), _leases(loaded)),
        ("counts", memory.counts, loaded.counts),
        ("instances", _instances(memory), _instances(loaded)),
        ("loads", {i: s.load() for i, s in memory.seats.items()}, {i: s.load() for i, s in loaded.seats.items()}),
        ("targets", memory.targets, loaded.targets),
        ("facts", memory.facts, loaded.facts),
        ("what is gone", memory.past.all(), loaded.past.all()),
        ("spot VMs", memory.past.spot.living, loaded.past.spot.living),
        ("VMs that are gone", _parted(memory), loaded.parted),
        ("shapes", {n: s for n, s in memory.shapes.items() if n > 0}, loaded.shapes),
        ("last numbers", (memory.last_task, memory.last_token, memory.last_plan),
         (loaded.last_task, loaded.last_token, loaded.last_plan)),
    )  # fmt: skip
    found = [] if memory.payers.adds_up() else ["what claims may cost their payers does not add up"]
    if not memory.knows_its_shapes():
        found.append("what is remembered of a shape, of a machine or a payer's line, is not of that shape")
    return found + [f"memory and tables differ in {what}: {_difference(a, b)}" for what, a, b in pairs if a != b]


def _instances(memory: Memory) -> dict[str, Instance]:
    return {instance: seat.instance for instance, seat in memory.seats.items()}


def _parted(memory: Memory) -> dict[BatchId, set[VmId]]:
    """Of the launches that a start would ask for."""
    return {batch: memory.parted[batch] for batch in memory.open_batches() if batch in memory.parted}


def _leases(memory: Memory) -> dict[int, tuple[Any, ...]]:
    return {
        task: (h.token, h.seat.instance.id, h.claimed_ms, h.started_ms, h.cancelling, h.lot[:5])
        for task, h in memory.holds.items()
    }


def _difference(ours: Any, theirs: Any) -> str:
    if isinstance(ours, dict):
        keys = [key for key in (ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key)][:_NAMED]
        return "; ".join(f"{key}: {ours.get(key)} / {theirs.get(key)}" for key in keys)
    return f"{ours} / {theirs}"


def _database(connection: Connection) -> Iterator[str]:
    """SQLite's own checks; PostgreSQL keeps its foreign keys by itself."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({_NAMED})"):
        if line != "ok":
            yield f"integrity: {line}"
    for row in connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(_NAMED):
        yield f"foreign key: row {row[1]} of {row[0]} names a missing row of {row[2]}"


@cache
def _questions() -> tuple[tuple[str, Select[Any]], ...]:
    """What shall have no answer; at most `_NAMED` of each are asked for."""
    return tuple((sentence, query.limit(_NAMED)) for sentence, query in _asked())


def _asked() -> Iterator[tuple[str, Select[Any]]]:
    t, i = tasks.c, instances.c
    has_lease = and_(*[column.is_not(None) for column in _LEASE])
    no_lease = and_(t.started_ms.is_(None), *[column.is_(None) for column in _LEASE])
    ids = select(t.id).order_by(t.id)
    yield "held tasks without a whole lease", ids.where(t.state.in_(_HELD), ~has_lease)
    yield "tasks with a lease that are not held", ids.where(t.state.not_in(_HELD), ~no_lease)
    yield "running tasks without a start", ids.where(t.state == TaskState.RUNNING.value, t.started_ms.is_(None))
    yield "claimed tasks with a start", ids.where(t.state == TaskState.CLAIMED.value, t.started_ms.is_not(None))
    yield "ended tasks without an end", ids.where(t.state.in_(_TERMINAL), t.ended_ms.is_(None))
    yield "live tasks with an end", ids.where(t.state.not_in(_TERMINAL), t.ended_ms.is_not(None))
    holder = exists().where(i.id == t.instance, i.state != InstanceState.GONE.value)
    yield "tasks held by an instance that is unknown or gone", ids.where(t.state.in_(_HELD), ~holder)
    yield "tasks without a specification", ids.where(~exists().where(specs.c.task == t.id))
    tried = select(func.count()).where(attempts.c.task == t.id).scalar_subquery()
    yield "tasks whose attempts are not all there", ids.where(t.attempts != tried)
    newest = select(counters.c.value).where(counters.c.name == "token").scalar_subquery()
    yield "tasks with a token from the future", ids.where(or_(t.token > newest))
    # An adopted one may stand beside the slot that nobody can tell to be its own, and which has no VM then.
    launched, with_vm = func.count(case((i.boot_deadline_ms > 0, 1))), func.count(case((i.vm != "", 1)))
    # Counted once for all: there is no index by batch, and thousands of each are kept.
    of_batch = select(i.batch, launched.label("launched"), with_vm.label("with_vm")).group_by(i.batch).subquery()
    many = or_(of_batch.c.launched > intents.c.slots, of_batch.c.with_vm > intents.c.slots)
    split = select(func.sum(shares.c.work + shares.c.retry + shares.c.idle)).where(
        shares.c.instance == ledger.c.instance
    )
    whole = func.coalesce(split.scalar_subquery(), -1)
    yield (
        "instances whose shares do not sum to what was booked",
        select(ledger.c.instance).where(ledger.c.amount != whole),
    )
    living = and_(i.state != InstanceState.GONE.value, i.vm != "")
    yield "VMs of more than one instance", select(i.vm).where(living).group_by(i.vm).having(func.count() > 1)
    yield (
        "batches with more instances than slots",
        select(intents.c.batch).join(of_batch, of_batch.c.batch == intents.c.batch).where(many),
    )


def _pairs(connection: Connection, query: Select[Any]) -> dict[str, int]:
    return {row[0]: row[1] for row in connection.execute(query)}


def _counters(connection: Connection) -> Iterator[str]:
    counted = dict.fromkeys(_TERMINAL, 0)
    query = select(tasks.c.state, func.count()).where(tasks.c.state.in_(_TERMINAL)).group_by(tasks.c.state)
    counted.update(_pairs(connection, query))
    kept = _pairs(connection, select(counters.c.name, counters.c.value))
    for state, count in sorted(counted.items()):
        if kept.get(state) != count:
            yield f"{count} tasks are {state}, the counter says {kept.get(state)}"
    newest = connection.scalar(select(func.max(tasks.c.id))) or 0
    if newest > kept.get("task", 0):
        yield f"task {newest} is newer than the counter, {kept.get('task')}"
