"""What an account bills. Owns the arithmetic of its own meter, in integers; the dispatcher never sees it.

A VM costs its rate from running until its cloud stops the clock, at least the minimum, in whole increments; a spot VM
costs what the market asked at each moment of that time. Rounded up once a line, to micro-dollars.
"""

from __future__ import annotations

from cloud_dispatch.domain.money import HOUR_MS, Amount, billed_ms
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.simulation.clouds.records import ExtraRecord, Record
from cloud_dispatch.simulation.clouds.settings import AccountSettings
from cloud_dispatch.simulation.clouds.stock import Stock
from cloud_dispatch.simulation.ports import BillLine

_NANO_PER_MICRO = 1_000


def of_vm(record: Record, settings: AccountSettings, stock: Stock, now: int) -> BillLine:
    """The line of a VM to now, its extras apart."""
    start = record.billed_from_ms
    running = start is not None and record.billed_until_ms is None
    if start is None:
        return BillLine(record.id, record.batch, Amount(0), 0, running=False)
    until = now if record.billed_until_ms is None else record.billed_until_ms
    length = billed_ms(until - start, minimum_ms=settings.minimum_ms, increment_ms=settings.increment_ms)
    if record.market is Market.SPOT:
        nano_ms = stock.walk(record.type, record.zone).nano_ms(start, start + length)
    else:
        nano_ms = stock.ceiling(record.type) * length
    return BillLine(record.id, record.batch, _amount(nano_ms), length, running)


def of_extra(extra: ExtraRecord, now: int) -> BillLine:
    """The line of a disk, NIC or address to now; it bills from creation to deletion, whatever its VM does."""
    length = (now if extra.until_ms is None else extra.until_ms) - extra.since_ms
    return BillLine(extra.id, extra.batch, _amount(extra.rate * length), length, extra.until_ms is None)


def _amount(nano_ms: int) -> Amount:
    return Amount(-(-nano_ms // (HOUR_MS * _NANO_PER_MICRO)))
