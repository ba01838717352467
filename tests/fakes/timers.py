"""What happens by itself in a fake, in the order of its clock. Owns the queue; what happens is the caller's."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from tests.fakes.clock import Clock


class Timers:
    """Callbacks with the moment at which each is due. They run in `settle`, never by themselves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._at_ms = 0

    @property
    def now(self) -> int:
        """While a callback runs, the moment at which it was due: a late look changes nothing in what happened."""
        return self._at_ms or self._clock.now()

    def after(self, ms: int, callback: Callable[[], None]) -> None:
        """Have it run `ms` from now."""
        heapq.heappush(self._due, (self.now + ms, next(self._numbers), callback))

    def settle(self) -> None:
        """Run all that is due by now, what follows from it included."""
        now = self._clock.now()
        while self._due and self._due[0][0] <= now:
            self._at_ms, _, callback = heapq.heappop(self._due)
            try:
                callback()
            finally:
                self._at_ms = 0
