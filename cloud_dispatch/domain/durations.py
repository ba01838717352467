"""The text of durations. Owns how people write a length of time, and milliseconds as its value."""

from __future__ import annotations

import re
from decimal import Decimal

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNIT_MS = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 100 * 365 * 86_400_000
_MAX_TEXT = 40


def parse_duration(value: object) -> int:
    """Milliseconds from `"10s"`, `"5m"`, `"1h30m"` (parts add up), `"500ms"`, `"90d"` or a number of seconds.

    ValueError for anything else, a negative or an endless one.
    """
    text = str(value).strip().lower().replace(" ", "")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or not 0 < len(text) <= _MAX_TEXT:
        raise ValueError('expected a duration (e.g. "10s", "5m", "1h" or seconds)')
    total, position = Decimal(0), 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or match[2] not in _UNIT_MS:
            raise ValueError('expected a duration (e.g. "10s", "5m", "1h" or seconds)')
        total += Decimal(match[1]) * _UNIT_MS[match[2]]
        position = match.end()
    if total > _LONGEST_MS:
        raise ValueError("expected a duration of at most 100 years")
    if total != total.to_integral_value():
        raise ValueError("expected a duration in whole milliseconds")
    return int(total)


def format_duration(milliseconds: int) -> str:
    """The shortest exact text: `10s`, `90m`, `500ms`; `parse_duration` reads it back."""
    for unit in ("d", "h", "m", "s"):
        size = _UNIT_MS[unit]
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def about(milliseconds: int) -> str:
    """For people: whole units of the largest kind of which there are two, rounded down; `9d`, `47h`, `90m`, `0s`."""
    for unit in ("d", "h", "m"):
        if milliseconds >= 2 * _UNIT_MS[unit]:
            return f"{milliseconds // _UNIT_MS[unit]}{unit}"
    return f"{max(milliseconds, 0) // 1000}s"
