"""From the tables to the memory, at start. Owns the reading of everything that lives; writes nothing but a new store's
first rows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.task import TERMINAL, TaskState
from cloud_dispatch.ports.store import Target
from cloud_dispatch.spend.breaker import Departed
from cloud_dispatch.spend.past import MOST
from cloud_dispatch.spend.spot_past import FADED_MS
from cloud_dispatch.statestore.lineage import COMMIT
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.statestore.rows import instance_of, retry_of, shape_of
from cloud_dispatch.statestore.schema import counters, facts, instances, ledger, shapes, targets, tasks
from cloud_dispatch.statestore.seats import Hold, Seat

STORE_ID = "store-id"
#: More than are handed out in one; times the milliseconds since 1970 they stay below what JSON's numbers hold.
_TOKENS_A_MS = 1_000
#: Rows fetched at a time.
_PART = 10_000
_BATCHES = 500
_COUNTERS = ("task", "token", "plan", COMMIT, *sorted(state.value for state in TERMINAL))


def initialise(connection: Connection, store_id: str, now_ms: int) -> None:
    """Give a new store its identity and its counters; leaves an old one as it is.

    A store may have been there before it, and be lost: VMs whose agents hold claims of that one may be taken over by
    this one, and what its attempts have stored is in the same folders. So no token is one of that one's."""
    first = {}
    if identity_of(connection) is None:
        connection.execute(insert(facts).values(name=STORE_ID, value=store_id))
        first["token"] = tokens_by(now_ms)
    known = set(connection.scalars(select(counters.c.name)))
    missing = [{"name": name, "value": first.get(name, 0)} for name in _COUNTERS if name not in known]
    if missing:
        connection.execute(insert(counters), missing)


def tokens_by(now_ms: int) -> int:
    """More tokens than any store can have handed out by then."""
    return now_ms * _TOKENS_A_MS


def identity_of(connection: Connection) -> str | None:
    """The id of the store; None before it has one."""
    known: str | None = connection.scalar(select(facts.c.value).where(facts.c.name == STORE_ID))
    return known


def load(connection: Connection) -> Memory:
    """A memory that says what the tables say. StoreUnavailable when they contradict themselves."""
    memory = Memory()
    with _without_collection():
        _load_small(connection, memory)
        _load_tasks(connection, memory)
    memory.keep()
    return memory


def _load_small(connection: Connection, memory: Memory) -> None:
    for number, body in connection.execute(select(shapes.c.id, shapes.c.body)):
        memory.add_shape(number, shape_of(body))
    for row in connection.execute(select(instances).where(instances.c.state != InstanceState.GONE.value)):
        memory.put_instance(instance_of(row))
    _load_parted(connection, memory)
    memory.facts = {row.name: row.value for row in connection.execute(select(facts))}
    for pool, source, count, expires_ms in connection.execute(select(targets)):
        memory.targets[pool, source] = Target(PoolName(pool), source, count, expires_ms)
    numbers = {row.name: row.value for row in connection.execute(select(counters))}
    memory.last_task, memory.last_token, memory.last_plan = numbers["task"], numbers["token"], numbers["plan"]
    memory.commits = numbers[COMMIT]
    for state in TERMINAL:
        memory.counts[state] = numbers[state.value]
    for gone in _departed(connection):
        memory.past.add(gone)
    for taken in _spot_past(connection):
        memory.past.spot.ended(taken)


def _load_parted(connection: Connection, memory: Memory) -> None:
    open_ = sorted(memory.open_batches())
    c = instances.c
    gone = select(c.batch, c.vm).where(c.state == InstanceState.GONE.value, c.vm != "")
    for first in range(0, len(open_), _BATCHES):
        for batch, vm in connection.execute(gone.where(c.batch.in_(open_[first : first + _BATCHES]))):
            memory.parted.setdefault(BatchId(batch), set()).add(VmId(vm))


def _departed(connection: Connection) -> list[Departed]:
    """The newest rows of the ledger, in order."""
    rows = connection.execute(select(ledger).order_by(ledger.c.id.desc()).limit(MOST)).all()
    return [
        Departed(
            InstanceId(row.instance), PoolName(row.pool), ProfileName(row.profile), row.template, row.image, row.zone,
            row.bound_from_ms, row.registered_ms, row.booked_ms, row.bound, row.lost, row.tasks, row.waiting, row.cause,
        )
        for row in reversed(rows)
    ]  # fmt: skip


def _spot_past(connection: Connection) -> list[Instance]:
    """The spot VMs that were gone last, in order: what is long before the last one counts no more."""
    c = instances.c
    gone = select(instances).where(c.state == InstanceState.GONE.value, c.ended_ms.is_not(None))
    found: list[Instance] = []
    for row in connection.execute(gone.order_by(c.ended_ms.desc()).limit(MOST)):
        if found and row.ended_ms < (found[0].ended_ms or 0) - FADED_MS:
            break
        if row.market == Market.SPOT.value:
            found.append(instance_of(row))
    return found[::-1]


def _load_tasks(connection: Connection, memory: Memory) -> None:
    c = tasks.c
    query = (
        select(
            c.id, c.state, c.priority, c.attempts, c.token, c.instance, c.claimed_ms, c.started_ms, c.submitted_ms,
            c.expected_ms, c.shape, c.retry, c.project, c.user_name,
        )
        .where(c.ended_ms.is_(None))
        .order_by(c.id)
    )  # fmt: skip
    lots: dict[tuple[Any, ...], Lot] = {}
    payers: dict[tuple[str, str], Payer] = {("", ""): NOBODY}
    add, queued = memory.queue.add, TaskState.QUEUED.value
    with connection.execute(query.execution_options(yield_per=_PART)) as rows:
        for task, state, priority, tried, token, instance, claimed, started, *of_lot in rows:
            kind = (priority, tried, *of_lot)
            lot = lots.get(kind)
            if lot is None:
                submitted, expected, shape, retry, project, user = of_lot
                payer = payers.setdefault((project, user), Payer(project, user))
                lot = lots[kind] = Lot(
                    shape, priority, submitted, expected, tried, retry_of(retry), memory.line_of(shape, payer), payer
                )
            if state == queued:
                add(task, lot)
                continue
            seat = _seat_of(memory, task, instance)
            hold = Hold(task, token, seat, claimed, started, lot, cancelling=state == TaskState.CANCELLING.value)
            memory.seat(hold)
            memory.counts[hold.state] += 1
    memory.counts[TaskState.QUEUED] = len(memory.queue)


def _seat_of(memory: Memory, task: int, instance: Any) -> Seat:
    seat = memory.seats.get(instance)
    if seat is None:
        raise StoreUnavailable(
            f"task {task} is held by instance {instance}, which the statestore does not have",
            hint="the tables contradict themselves: restore a backup, and keep this one for a report",
        )
    return seat


@contextmanager
def _without_collection() -> Iterator[None]:
    """A million new objects that all stay would be walked again and again by the cycle collector."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
