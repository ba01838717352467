"""Windows of time that a budget counts in. Owns where each begins and ends: whole hours, days and months of UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from cloud_dispatch.domain.money import HOUR_MS

DAY_MS = 24 * HOUR_MS
#: Later than any moment that is ever named.
FOREVER_MS = 1 << 62
_REMEMBERED = 4096


class Window(StrEnum):
    TOTAL = "total"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Span(NamedTuple):
    """From `start_ms` until just before `end_ms`, epoch milliseconds."""

    start_ms: int
    end_ms: int

    def overlap_ms(self, start_ms: int, end_ms: int) -> int:
        """How much of [`start_ms`, `end_ms`) lies inside."""
        return max(min(end_ms, self.end_ms) - max(start_ms, self.start_ms), 0)


_ALL_TIME = Span(0, FOREVER_MS)


def span_at(window: Window, at_ms: int) -> Span:
    """The window of this kind that holds `at_ms` (epoch milliseconds, not negative)."""
    if window is Window.TOTAL:
        return _ALL_TIME
    if window is Window.MONTH:
        return _month(at_ms // DAY_MS)
    length = HOUR_MS if window is Window.HOUR else DAY_MS
    start = at_ms - at_ms % length
    return Span(start, start + length)


def spans(window: Window, start_ms: int, end_ms: int) -> Iterator[Span]:
    """Windows of this kind that [`start_ms`, `end_ms`) touches, in order; at least the one that holds `start_ms`."""
    span = span_at(window, start_ms)
    yield span
    while span.end_ms < end_ms:
        span = span_at(window, span.end_ms)
        yield span


@lru_cache(maxsize=_REMEMBERED)
def _month(day: int) -> Span:
    """The month of the day that is so many days after 1970-01-01."""
    date = datetime.fromtimestamp(day * DAY_MS / 1000, UTC)
    start = datetime(date.year, date.month, 1, tzinfo=UTC)
    end = datetime(date.year + date.month // 12, date.month % 12 + 1, 1, tzinfo=UTC)
    return Span(round(start.timestamp()) * 1000, round(end.timestamp()) * 1000)
