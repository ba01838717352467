"""Prices and room that move by themselves. Owns the walk of a spot price and the tides of capacity, both computed when
somebody looks and never before; knows no VM.

What a pool does depends on the seed and the pool alone, not on who looked when.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from cloud_dispatch.domain.money import Rate
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


class PriceWalk:
    """The spot price of one type in one zone. Rates are nano-dollars an hour, held for a whole step.

    What is forced counts from the first step that begins in its window.
    """

    def __init__(self, usual: Rate, ceiling: Rate, spot: Spot, stream: Stream, born_ms: int, forced: Forced) -> None:
        self._usual, self._ceiling = usual, ceiling
        self._spot, self._stream, self._born_ms, self._forced = spot, stream, born_ms, forced
        self._free: list[int] = []  # the walk as chance has it
        self._rates: list[int] = []  # as it is, what is forced included
        self._nano_ms: list[int] = [0]  # what it has cost from birth to the step's start

    def rate_at(self, at_ms: int) -> Rate:
        """The price at that moment."""
        step = self._step(at_ms)
        self._reach(step)
        return Rate(self._rates[step])

    def nano_ms(self, from_ms: int, until_ms: int) -> int:
        """The price integrated over the time, in nano-dollars an hour x milliseconds."""
        return self._integral(until_ms) - self._integral(from_ms) if until_ms > from_ms else 0

    def changes(self, from_ms: int, until_ms: int) -> list[int]:
        """The moments within the window at which the price becomes another one."""
        first, last = self._step(from_ms) + 1, self._step(until_ms)
        self._reach(last)
        moved = (step for step in range(first, last + 1) if self._rates[step] != self._rates[step - 1])
        return [self._born_ms + step * self._spot.step_ms for step in moved]

    def first_above(self, limit: Rate, from_ms: int, until_ms: int) -> int | None:
        """The first moment in the window at which the price is above `limit`."""
        if limit >= self._ceiling:
            return None
        first, last = self._step(from_ms), self._step(until_ms)
        self._reach(last)
        for step in range(first, last + 1):
            if self._rates[step] > limit:
                return max(self._born_ms + step * self._spot.step_ms, from_ms)
        return None

    def _step(self, at_ms: int) -> int:
        return max(at_ms - self._born_ms, 0) // self._spot.step_ms

    def _integral(self, at_ms: int) -> int:
        step = self._step(at_ms)
        self._reach(step)
        into = max(at_ms - self._born_ms, 0) - step * self._spot.step_ms
        return self._nano_ms[step] + self._rates[step] * into

    def _reach(self, step: int) -> None:
        while len(self._rates) <= step:
            self._free.append(self._next())
            forced = self._forced.at(self._born_ms + len(self._rates) * self._spot.step_ms)
            self._rates.append(self._free[-1] if forced is None else min(forced, self._ceiling))
            self._nano_ms.append(self._nano_ms[-1] + self._rates[-1] * self._spot.step_ms)

    def _next(self) -> int:
        if not self._free:
            return min(self._usual, self._ceiling)
        moved = self._free[-1] * (1 + self._spot.swing * (2 * self._stream.fraction() - 1))
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
