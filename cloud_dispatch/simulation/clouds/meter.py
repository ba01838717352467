"""What an account bills. Owns the arithmetic of its own meter, in integers; the dispatcher never sees it.

A VM costs its rate from running until its cloud stops the clock, at least the minimum, in whole increments; a spot VM
costs what the market asked at each moment of that time. Rounded up once a line, to micro-dollars.

What falls into a stretch of time (`metered`) is not rounded at all: nano-dollars an hour x milliseconds. What is billed
beyond a VM's end, a minimum or an increment, is billed for the time right after it.
"""

from __future__ import annotations

from cloud_dispatch.domain.money import HOUR_MS, Amount, billed_ms
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.simulation.clouds.records import ExtraRecord, Record
from cloud_dispatch.simulation.clouds.settings import AccountSettings
from cloud_dispatch.simulation.clouds.stock import Stock
from cloud_dispatch.simulation.ports import BillLine, Metered, TrueVm

_NANO_PER_MICRO = 1_000


def of_vm(record: Record, settings: AccountSettings, stock: Stock, now: int) -> BillLine:
    """The line of a VM to now, its extras apart."""
    start = record.billed_from_ms
    running = start is not None and record.billed_until_ms is None
    if start is None:
        return BillLine(record.id, record.batch, Amount(0), 0, running=False)
    length = _billed_ms(record, start, settings, now)
    nano_ms = _price(record, stock, start, start + length)
    return BillLine(record.id, record.batch, _amount(nano_ms), length, running)


class MeteredVm:
    """`ports.Metered`: what a VM, and what came with it, is billed by now."""

    __slots__ = ("_begins_ms", "_ends_ms", "_extras", "_record", "_stock", "closed")

    def __init__(self, record: Record, settings: AccountSettings, stock: Stock, now: int) -> None:
        self._record, self._stock = record, stock
        self.closed = record.ended_ms is not None
        until = now if record.ended_ms is None else record.ended_ms
        start = record.billed_from_ms
        self._begins_ms = until if start is None else start
        self._ends_ms = until if start is None else start + _billed_ms(record, start, settings, now)
        #: Disks and addresses bill by themselves; what outlives its VM is nobody's any more.
        self._extras = [
            (one.rate, one.since_ms, until if one.until_ms is None else min(one.until_ms, until))
            for one in record.came
            if one.rate
        ]

    @property
    def vm(self) -> TrueVm:
        return self._record

    @property
    def ends_ms(self) -> int:
        told = self._record.tags.get(ENDS_AT, "")
        return int(told) if told.isdecimal() else 0

    @property
    def from_ms(self) -> int:
        return min([self._begins_ms, *(since for _, since, _ in self._extras)])

    @property
    def until_ms(self) -> int:
        return max([self._ends_ms, *(until for _, _, until in self._extras)])

    def nano_ms(self, from_ms: int, until_ms: int) -> int:
        own = _price(self._record, self._stock, max(from_ms, self._begins_ms), min(until_ms, self._ends_ms))
        return own + sum(
            rate * max(min(until_ms, until) - max(from_ms, since), 0) for rate, since, until in self._extras
        )

    def prices(self) -> list[tuple[int, int]]:
        stretches = [(self._begins_ms, self._ends_ms), *((since, until) for _, since, until in self._extras)]
        moments = {moment for stretch in stretches for moment in stretch}
        if self._record.market is Market.SPOT and self._begins_ms < self._ends_ms:
            walk = self._stock.walk(self._record.type, self._record.zone)
            moments.update(walk.changes(self._begins_ms, self._ends_ms))
        return [(moment, self.nano_ms(moment, moment + 1)) for moment in sorted(moments)]


def metered(record: Record, settings: AccountSettings, stock: Stock, now: int) -> Metered:
    """The VM with all that came with it, to now."""
    return MeteredVm(record, settings, stock, now)


def _billed_ms(record: Record, start: int, settings: AccountSettings, now: int) -> int:
    until = now if record.billed_until_ms is None else record.billed_until_ms
    return billed_ms(until - start, minimum_ms=settings.minimum_ms, increment_ms=settings.increment_ms)


def _price(record: Record, stock: Stock, from_ms: int, until_ms: int) -> int:
    """Of the VM alone, for the whole stretch: nano-dollars an hour x milliseconds."""
    if until_ms <= from_ms:
        return 0
    if record.market is Market.SPOT:
        return stock.walk(record.type, record.zone).nano_ms(from_ms, until_ms)
    return stock.ceiling(record.type, record.zone) * (until_ms - from_ms)


def of_extra(extra: ExtraRecord, now: int) -> BillLine:
    """The line of a disk, NIC or address to now; it bills from creation to deletion, whatever its VM does."""
    length = (now if extra.until_ms is None else extra.until_ms) - extra.since_ms
    running = extra.until_ms is None
    return BillLine(extra.id, extra.batch, _amount(extra.rate * length), length, running, extra.made_for)


def _amount(nano_ms: int) -> Amount:
    return Amount(-(-nano_ms // (HOUR_MS * _NANO_PER_MICRO)))
