"""Time. Owns the one way in which the core learns it; waiting is `asyncio.sleep` on the loop that bootstrap chose."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic(self) -> int:
        """Milliseconds on a clock that never steps back; only differences mean anything."""


#: A clock that is adjusted moves by less from look to look.
MOVED_MS = 1_000


def ahead_ms(clock: Clock) -> int:
    """How far the wall clock is ahead of the time that passes; the same as long as it goes as that does."""
    return clock.now() - clock.monotonic()


class Steps:
    """Whether the wall clock is set forward. `ahead_ms` is how it stood at the last look."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = ahead_ms(clock)

    def forward_ms(self) -> int:
        """By how much it was set forward since the last look; 0 where it was adjusted, set back, or let alone."""
        before_ms, self.ahead_ms = self.ahead_ms, ahead_ms(self._clock)
        forward_ms = self.ahead_ms - before_ms
        return forward_ms if forward_ms > MOVED_MS else 0
