"""A token bucket for each caller. Owns its own bounded memory; must not know what it guards."""

from __future__ import annotations

from cloud_dispatch.domain.errors import Overloaded

_CALLERS = 4096


class RateLimiter:
    """At most `burst` calls at once of a caller and `per_second` in the long run; time is passed in as milliseconds.

    It remembers at most 4,096 callers: the one that was quiet longest is forgotten first.
    """

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst_milli = burst * 1000
        self._per_second = per_second
        self._buckets: dict[str, tuple[int, int]] = {}  # caller -> (thousandths of a call left, when)

    def take(self, caller: str, now: int) -> None:
        """Count a call of `caller`; Overloaded when it has none left."""
        left, since = self._buckets.pop(caller, (self._burst_milli, now))
        left = min(self._burst_milli, left + max(now - since, 0) * self._per_second)
        allowed = left >= 1000
        self._buckets[caller] = (left - 1000 if allowed else left, now)
        if len(self._buckets) > _CALLERS:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            raise Overloaded(f"too many calls from {caller}", hint="wait a second and try again")
