"""Prices and room that move by themselves. Owns the walk of a spot price and the tides of capacity, both computed when
somebody looks and never before; knows no VM.

What a pool does depends on the seed and the pool alone, not on who looked when.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.simulation.clouds.faults import NEVER_MS
from cloud_dispatch.simulation.clouds.settings import Spot, Tide
from cloud_dispatch.simulation.ports import Stream


class Forced:
    """Prices that faults demand: `(from, until, nano-dollars an hour)`, the first that holds wins. Asked in order of
    time, so that a trace of thousands costs no more than it has entries."""

    def __init__(self, demands: Sequence[tuple[int, int, int]]) -> None:
        self._coming = sorted(((start, place) for place, (start, _, _) in enumerate(demands)), reverse=True)
        self._demands = demands
        self._holding: list[int] = []

    def at(self, moment_ms: int) -> int | None:
        """The price demanded at this moment, none earlier than the last one asked for."""
        while self._coming and self._coming[-1][0] <= moment_ms:
            heappush(self._holding, self._coming.pop()[1])
        while self._holding and self._demands[self._holding[0]][1] <= moment_ms:
            heappop(self._holding)
        return self._demands[self._holding[0]][2] if self._holding else None

    @property
    def until_ms(self) -> int:
        """Until when the last answer holds."""
        coming = self._coming[-1][0] if self._coming else NEVER_MS
        return min(coming, self._demands[self._holding[0]][1]) if self._holding else coming


class PriceWalk:
    """The spot price of one type in one zone. Rates are nano-dollars an hour, held for a whole step.

    What is forced counts from the first step that begins in its window. Kept is where the price becomes another one:
    one that does not swing costs as much as it is forced to change, however long the run.
    """

    def __init__(self, usual: Rate, ceiling: Rate, spot: Spot, stream: Stream, born_ms: int, forced: Forced) -> None:
        self._usual, self._ceiling = usual, ceiling
        self._spot, self._stream, self._born_ms, self._forced = spot, stream, born_ms, forced
        self._free: int = min(usual, ceiling)  # the walk as chance has it, at the last step that is known
        self._known = 0  # steps
        self._starts: list[int] = []  # the steps at which the price becomes another one
        self._rates: list[int] = []  # as it is from each of them on, what is forced included
        self._nano_ms: list[int] = []  # what it has cost from birth to each of them

    def rate_at(self, at_ms: int) -> Rate:
        """The price at that moment."""
        return Rate(self._rates[self._reach(self._step(at_ms))])

    def nano_ms(self, from_ms: int, until_ms: int) -> int:
        """The price integrated over the time, in nano-dollars an hour x milliseconds."""
        return self._integral(until_ms) - self._integral(from_ms) if until_ms > from_ms else 0

    def changes(self, from_ms: int, until_ms: int) -> list[int]:
        """The moments within the window at which the price becomes another one."""
        last = self._reach(self._step(until_ms))
        first = bisect_right(self._starts, self._step(from_ms))
        return [self._begin_ms(place) for place in range(first, last + 1)]

    def first_above(self, limit: Rate, from_ms: int, until_ms: int) -> int | None:
        """The first moment in the window at which the price is above `limit`."""
        if limit >= self._ceiling:
            return None
        last = self._reach(self._step(until_ms))
        first = self._reach(self._step(from_ms))
        for place in range(first, last + 1):
            if self._rates[place] > limit:
                return max(self._begin_ms(place), from_ms)
        return None

    def _step(self, at_ms: int) -> int:
        return max(at_ms - self._born_ms, 0) // self._spot.step_ms

    def _begin_ms(self, place: int) -> int:
        return self._born_ms + self._starts[place] * self._spot.step_ms

    def _integral(self, at_ms: int) -> int:
        place = self._reach(self._step(at_ms))
        return self._nano_ms[place] + self._rates[place] * max(at_ms - self._begin_ms(place), 0)

    def _reach(self, step: int) -> int:
        """The place of the price that holds at `step`."""
        while self._known <= step:
            begins_ms = self._born_ms + self._known * self._spot.step_ms
            self._free = self._next()
            forced = self._forced.at(begins_ms)
            rate = self._free if forced is None else min(forced, self._ceiling)
            if not self._rates or rate != self._rates[-1]:
                self._nano_ms.append(self._integral_so_far(begins_ms))
                self._starts.append(self._known)
                self._rates.append(rate)
            self._known = self._known + 1 if self._spot.swing else self._stands_until()
        return bisect_right(self._starts, step) - 1

    def _integral_so_far(self, begins_ms: int) -> int:
        if not self._rates:
            return 0
        return self._nano_ms[-1] + self._rates[-1] * (begins_ms - self._begin_ms(-1))

    def _stands_until(self) -> int:
        """The first step at which something else may be forced."""
        return -(-(self._forced.until_ms - self._born_ms) // self._spot.step_ms)

    def _next(self) -> int:
        if not self._known or not self._spot.swing:
            return self._free
        moved = self._free * (1 + self._spot.swing * (2 * self._stream.fraction() - 1))
        return min(max(round(moved), self._usual // 2), self._usual * 2, self._ceiling)


class Tides:
    """Whether one type in one zone on one market is sold out, step by step."""

    def __init__(self, tide: Tide, dry: float, stream: Stream, born_ms: int) -> None:
        self._step_ms, self._dry, self._stream, self._born_ms = tide.step_ms, dry, stream, born_ms
        self._steps: list[bool] = []

    def dry_at(self, at_ms: int) -> bool:
        """Whether nothing is to be had at that moment."""
        if not self._dry:
            return False
        step = max(at_ms - self._born_ms, 0) // self._step_ms
        while len(self._steps) <= step:
            self._steps.append(self._stream.chance(self._dry))
        return self._steps[step]
