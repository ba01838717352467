"""What instances did that leave for good. Owns the reading of their attempts, and the ledger's row that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, insert
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.task import MACHINE_CAUSES, Cause
from cloud_dispatch.spend.instances import booking_of, departed
from cloud_dispatch.spend.ledger import Interval, union
from cloud_dispatch.statestore.batch import ATTEMPT_ORDER, Batch
from cloud_dispatch.statestore.purse import ledger_row
from cloud_dispatch.statestore.schema import attempts, ledger
from cloud_dispatch.statestore.stretches import of_instance

#: Ends of attempts whose work is lost with their instance.
LOST = frozenset({Cause.INSTANCE_LOST.value, Cause.PREEMPTED.value})
_MACHINE = frozenset(cause.value for cause in MACHINE_CAUSES)
_INSTANCE, _STARTED, _ENDED, _CAUSE = (
    ATTEMPT_ORDER.index(name) for name in ("instance", "started_ms", "ended_ms", "cause")
)
_RAN: Any = of_instance(
    bindparam("which"), attempts.c.started_ms, attempts.c.ended_ms, attempts.c.cause
)  # fmt: skip
_RAN = _RAN.where(attempts.c.started_ms.is_not(None))
Ran = tuple[int, int, str]


class Departures:
    """The attempts of instances that leave, read before the group is planned."""

    def __init__(self, leaving: Sequence[InstanceId]) -> None:
        self._leaving = leaving
        self._ran: dict[str, list[Ran]] = {}

    def __bool__(self) -> bool:
        return bool(self._leaving)

    def read(self, connection: Connection) -> None:
        for instance in self._leaving:
            rows = connection.execute(_RAN, {"which": instance}).all()
            self._ran[instance] = [(row[0], row[1], row[2]) for row in rows]

    def leave(self, batch: Batch, own: Instance, now: int) -> Instance:
        """`own` as it is kept, with how long something ran on it; what it cost goes into the ledger."""
        ran = [*self._ran.get(own.id, ()), *_fresh(batch, own.id)]
        worked = [(start, end) for start, end, cause in ran if cause not in LOST]
        lost = [(start, end) for start, end, cause in ran if cause in LOST]
        _book(batch, own, worked, lost, sum(cause not in _MACHINE for _, _, cause in ran), now)
        return replace(own, busy_ms=sum(end - start for start, end in union([*worked, *lost])))


def _fresh(batch: Batch, instance: InstanceId) -> list[Ran]:
    """What this group is about to store."""
    return [
        (row[_STARTED], row[_ENDED], row[_CAUSE])
        for row in batch.attempts
        if row[_INSTANCE] == instance and row[_STARTED] is not None
    ]


def _book(
    batch: Batch, own: Instance, worked: Sequence[Interval], lost: Sequence[Interval], tasks: int, now: int
) -> None:
    row = booking_of(own, now if own.ended_ms is None else own.ended_ms, worked, lost)
    gone = departed(own, row, tasks, 0 if tasks else _waiting_for(batch, own), now)
    batch.write(insert(ledger), ledger_row(own, row, gone, batch.memory.purse.drivers))
    batch.effects.append(lambda: batch.memory.purse.book(own, row))
    batch.effects.append(lambda: batch.memory.past.add(gone))


def _waiting_for(batch: Batch, own: Instance) -> int:
    """How many tasks wait that it could have run."""
    return sum(one.count for one in batch.memory.waiting() if not own.machine.misfit(one.shape))
