"""What a VM has cost, once it is gone: the ledger's row. Owns how its life is split into boot, work, idle and lost.

A row is rounded up once; its parts sum to it exactly. `bound` is what counts against limits: the most that it can have
been billed, by the highest price and from the earliest moment to the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cloud_dispatch.domain.money import Amount, Rate, billed_ms, charge, cost, split
from cloud_dispatch.spend.commitment import Commitment

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Parts:
    """One number for each thing that a VM does: milliseconds, or micro-dollars."""

    boot: int = 0
    work: int = 0
    idle: int = 0
    lost: int = 0

    @property
    def whole(self) -> int:
        return self.boot + self.work + self.idle + self.lost


@dataclass(frozen=True, slots=True)
class Life:
    """A VM that is gone, as far as it costs: epoch milliseconds, nano-dollars an hour.

    It was billed from `began_ms` until `ended_ms`, as far as known; `bound` is the most that it can have been billed.
    `served_ms`: when its service registered, None if never. `worked`: when tasks ran whose results count; `lost`: when
    tasks ran whose work is lost.
    """

    began_ms: int
    ended_ms: int
    rate: Rate
    bound: Commitment
    served_ms: int | None = None
    worked: Sequence[Interval] = ()
    lost: Sequence[Interval] = ()
    minimum_ms: int = 0
    increment_ms: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """What is booked: `amount` as far as the price is known, `parts` of it, and the `bound`, with the interval in which
    it falls and how long of that is billed at most."""

    from_ms: int
    until_ms: int
    time: Parts
    amount: Amount
    parts: Parts
    bound: Amount
    bound_rate: Rate
    bound_from_ms: int
    bound_until_ms: int
    bound_most_ms: int


def row_of(life: Life) -> Row:
    """The row of a VM that is gone. What is billed beyond its end (a minimum, an increment) is in proportion to what it
    did; a VM that never served only booted."""
    ended = max(life.ended_ms, life.began_ms)
    billed = billed_ms(ended - life.began_ms, minimum_ms=life.minimum_ms, increment_ms=life.increment_ms)
    time, bound = time_of(life), life.bound
    amount = cost(life.rate, billed)
    boot, work, idle, lost = split(amount, (time.boot, time.work, time.idle, time.lost))
    return Row(
        from_ms=life.began_ms,
        until_ms=life.began_ms + billed,
        time=time,
        amount=amount,
        parts=Parts(boot, work, idle, lost),
        bound=charge(bound.rate, bound.most_ms),
        bound_rate=bound.rate,
        bound_from_ms=bound.from_ms,
        bound_until_ms=bound.billed_until_ms,
        bound_most_ms=bound.most_ms,
    )


def time_of(life: Life) -> Parts:
    """How long it did what. Where work that counts and work that is lost overlap, it worked."""
    began, ended = life.began_ms, max(life.ended_ms, life.began_ms)
    served = ended if life.served_ms is None else min(max(life.served_ms, began), ended)
    worked = _within(life.worked, served, ended)
    busy = _length(_within([*life.worked, *life.lost], served, ended))
    work = _length(worked)
    return Parts(served - began, work, ended - served - busy, busy - work)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as intervals that do not touch, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _within(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    cut = ((max(begins, start), min(ends, end)) for begins, ends in intervals)
    return union(interval for interval in cut if interval[0] < interval[1])


def _length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)
