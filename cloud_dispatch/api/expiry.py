"""The clock by which tokens expire. Owns that one which is set forward ends nobody's; must not know tokens."""

from __future__ import annotations

from collections import deque

from cloud_dispatch.ports.clock import Clock, Steps

#: So many moves are remembered: a clock that is set more often is not one to go by.
_MOVES = 16


class Expiry:
    """The wall clock, but that it goes on as it went before it was set forward for as long as what was dated by then is
    good, `life_ms`. A machine that slept looks the same: nobody could renew anything meanwhile."""

    def __init__(self, clock: Clock, life_ms: int) -> None:
        self._clock = clock
        self._life_ms = life_ms
        self._steps = Steps(clock)
        self._before: deque[tuple[int, int]] = deque(maxlen=_MOVES)  # until when it counts how far it was ahead

    def now(self) -> int:
        forward_ms, ahead_ms, monotonic = self._steps.forward_ms(), self._steps.ahead_ms, self._clock.monotonic()
        if forward_ms:
            self._before.append((monotonic + self._life_ms, ahead_ms - forward_ms))
        while self._before and self._before[0][0] < monotonic:
            self._before.popleft()
        return monotonic + min([ahead_ms, *(before_ms for _, before_ms in self._before)])
