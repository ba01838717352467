"""Prices and room that move by themselves. Owns the walk of a spot price and the tides of capacity, both computed when
somebody looks and never before; knows no VM.

What a pool does depends on the seed and the pool alone, not on who looked when.
"""

from __future__ import annotations

from collections.abc import Callable

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.simulation.clouds.settings import Spot, Tide
from cloud_dispatch.simulation.ports import Stream

#: The price that a fault demands at a moment, None where there is no such fault.
Override = Callable[[int], int | None]


class PriceWalk:
    """The spot price of one type in one zone. Rates are nano-dollars an hour, held for a whole step.

    An override counts from the first step that begins in its window.
    """

    def __init__(
        self, usual: Rate, ceiling: Rate, spot: Spot, stream: Stream, born_ms: int, override: Override
    ) -> None:
        self._usual, self._ceiling = usual, ceiling
        self._spot, self._stream, self._born_ms, self._override = spot, stream, born_ms, override
        self._free: list[int] = []  # the walk as chance has it
        self._rates: list[int] = []  # as it is, overrides included
        self._nano_ms: list[int] = [0]  # what it has cost from birth to the step's start

    def rate_at(self, at_ms: int) -> Rate:
        """The price at that moment."""
        step = self._step(at_ms)
        self._reach(step)
        return Rate(self._rates[step])

    def nano_ms(self, from_ms: int, until_ms: int) -> int:
        """The price integrated over the time, in nano-dollars an hour x milliseconds."""
        return self._integral(until_ms) - self._integral(from_ms) if until_ms > from_ms else 0

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
            forced = self._override(self._born_ms + len(self._rates) * self._spot.step_ms)
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
