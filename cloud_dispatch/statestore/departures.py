"""What instances did that leave for good. Owns the reading of their attempts, and what is booked: the ledger's row, and
whose money it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import bindparam, func, insert
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.task import MACHINE_CAUSES
from cloud_dispatch.spend.instances import booking_of, departed
from cloud_dispatch.spend.ledger import Interval, union
from cloud_dispatch.spend.shares import shares_of, use_of
from cloud_dispatch.statestore.batch import ATTEMPT_ORDER, Batch
from cloud_dispatch.statestore.paying import lines_of, refused_at
from cloud_dispatch.statestore.purse import ledger_row, share_rows
from cloud_dispatch.statestore.schema import attempts, ledger, shares
from cloud_dispatch.statestore.stretches import of_instance
from cloud_dispatch.statestore.uses import LOST, Alike, askers_of, counts, used_on, weigher

_MACHINE = frozenset(cause.value for cause in MACHINE_CAUSES)
_TASK, _INSTANCE, _STARTED, _ENDED, _CAUSE = (
    ATTEMPT_ORDER.index(name) for name in ("task", "instance", "started_ms", "ended_ms", "cause")
)
_WHICH: Any = bindparam("which")
_RAN: Any = of_instance(_WHICH, attempts.c.started_ms, attempts.c.ended_ms, attempts.c.cause).where(
    attempts.c.started_ms.is_not(None)
)
_HOW_MANY: Any = of_instance(_WHICH, func.count(), func.max(attempts.c.token))


class Ran(NamedTuple):
    """When something ran whose work is not lost, when something whose work is, and how many attempts ended by their own
    doing."""

    worked: Sequence[Interval] = ()
    lost: Sequence[Interval] = ()
    tasks: int = 0


@dataclass
class Past:
    """What one instance did before this group. `many` tells whether there are more attempts by now."""

    many: Any = None
    ran: Ran = Ran()
    used: list[Alike] = field(default_factory=list)
    askers: Mapping[int, tuple[Payer, int]] = field(default_factory=dict)  # of the tasks that it holds


class Departures:
    """The attempts of instances that leave, read before the group is planned. `leaving`: by instance the moment, if one
    is known, after which it did nothing any more; `held`: the tasks that it holds."""

    def __init__(
        self, leaving: Mapping[InstanceId, int | None], held: Callable[[InstanceId], Iterable[int]]
    ) -> None:  # fmt: skip
        self._leaving = leaving
        self._held = held
        self._past: dict[str, Past] = {}

    def __bool__(self) -> bool:
        return bool(self._leaving)

    def look(self, connection: Connection) -> None:
        """Read ahead, beside the commits: there may be hundreds of thousands of attempts."""
        for instance, until_ms in self._leaving.items():
            many = tuple(connection.execute(_HOW_MANY, {"which": instance}).one())
            ran = _split(connection.execute(_RAN, {"which": instance}))
            self._past[instance] = Past(many, ran, used_on(connection, instance, until_ms))

    def read(self, connection: Connection) -> None:
        """Read, or make sure that nothing has come since it was."""
        for instance in self._leaving:
            past = self._past.get(instance)
            if past is None or past.many != tuple(connection.execute(_HOW_MANY, {"which": instance}).one()):
                self.look(connection)
                break
        for instance in self._leaving:
            self._past[instance].askers = askers_of(connection, self._held(instance))

    def leave(self, batch: Batch, own: Instance, now: int) -> Instance:
        """`own` as it is kept, with how long something ran on it; what it cost goes into the ledger."""
        past = self._past.get(own.id) or Past()
        fresh = _fresh(batch, own.id)
        late = _split((row[_STARTED], row[_ENDED], row[_CAUSE]) for row in fresh)
        ran = Ran([*past.ran.worked, *late.worked], [*past.ran.lost, *late.lost], past.ran.tasks + late.tasks)
        used = [*past.used, *_used(batch, fresh, past.askers, self._leaving.get(own.id))]
        _book(batch, own, ran, used, now)
        return replace(own, busy_ms=sum(end - start for start, end in union([*ran.worked, *ran.lost])))


def _split(ran: Iterable[Any]) -> Ran:
    """Sort attempts (start, end, cause). Joined, the intervals are few where there are many attempts."""
    tasks = 0
    worked: list[Interval] = []
    lost: list[Interval] = []
    for started, ended, cause in ran:
        (lost if cause in LOST else worked).append((started, ended))
        tasks += cause not in _MACHINE
    return Ran(union(worked), union(lost), tasks)


def _fresh(batch: Batch, instance: InstanceId) -> list[tuple[Any, ...]]:
    """What this group is about to store."""
    return [row for row in batch.attempts if row[_INSTANCE] == instance and row[_STARTED] is not None]


def _used(
    batch: Batch, fresh: Iterable[tuple[Any, ...]], askers: Mapping[int, tuple[Payer, int]], until_ms: int | None
) -> Iterator[Alike]:
    """As `used_on` has those that are stored."""
    for row in fresh:
        task, started, ended = row[_TASK], row[_STARTED], row[_ENDED]
        if until_ms is not None:
            started, ended = min(started, until_ms), min(ended, until_ms)
        if task in askers:
            payer, shape = askers[task]
            end = batch.ended.get(task)
            counted = counts(row[_CAUSE], None if end is None else end[0])
            yield Alike(shape, use_of(payer, counted, 1, started, ended))


def _book(batch: Batch, own: Instance, ran: Ran, used: Sequence[Alike], now: int) -> None:
    drivers = batch.memory.purse.drivers
    row = booking_of(own, now if own.ended_ms is None else own.ended_ms, ran.worked, ran.lost)
    gone = departed(own, row, ran.tasks, 0 if ran.tasks else _waiting_for(batch, own, now), now)
    weighed = map(weigher(own.machine, batch.memory.shapes.__getitem__), used)
    batch.write(insert(ledger), ledger_row(own, row, gone, drivers))
    batch.write(insert(shares), *share_rows(own, shares_of(row.amount, row.from_ms, row.until_ms, weighed), drivers))
    batch.effects.append(lambda: batch.memory.purse.book(own, row))
    batch.effects.append(lambda: batch.memory.past.add(gone))


def _waiting_for(batch: Batch, own: Instance, now: int) -> int:
    """How many tasks wait that it could have run, and that their payers could have paid for there."""
    seat = batch.memory.seats.get(own.id)
    refused = frozenset(lines_of(batch.memory, refused_at(batch.memory, seat))) if seat is not None else frozenset()
    waiting = (one for one in batch.memory.waiting(now) if not one.withheld and (one.shape, one.payer) not in refused)
    return sum(one.count for one in waiting if not own.machine.misfit(one.shape))
