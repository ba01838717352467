"""A token bucket for the fakes. Fractions of a token are kept in integers, so that a run can be replayed."""

from __future__ import annotations

_MICRO = 1_000_000


class TokenBucket:
    """`burst` tokens at once, then `per_second`."""

    def __init__(self, burst: int, per_second: float, now_ms: int) -> None:
        self._most = self._level = burst * _MICRO
        self._per_ms = round(per_second * _MICRO / 1000)
        self._at_ms = now_ms

    def take(self, count: int, now_ms: int) -> bool:
        """Take so many tokens, or none where there are too few."""
        self._level = min(self._level + max(now_ms - self._at_ms, 0) * self._per_ms, self._most)
        self._at_ms = now_ms
        if self._level < count * _MICRO:
            return False
        self._level -= count * _MICRO
        return True
