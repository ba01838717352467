"""Money in integers. Owns rates, amounts, their arithmetic and their text; floats never enter.

A rate is in nano-dollars an hour, an amount in micro-dollars. An amount is rounded up once, where a ledger row is made;
splits of an amount sum to it exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NewType

Rate = NewType("Rate", int)
Amount = NewType("Amount", int)

NANO_PER_DOLLAR = 1_000_000_000
MICRO_PER_DOLLAR = 1_000_000
HOUR_MS = 3_600_000
#: No machine costs as much, and no limit has to be higher: whatever a fleet of them comes to in years is held by the 64
#: bits that the statestore has for a number.
MOST_RATE, MOST_AMOUNT = Rate(10**6 * NANO_PER_DOLLAR), Amount(10**9 * MICRO_PER_DOLLAR)
_NANO_MS_A_MICRO = HOUR_MS * 1_000
_DECIMAL = re.compile(r"\$?(\d+)(?:\.(\d+))?")


class TooMuch(ValueError):
    """More dollars than anything costs."""


def billed_ms(duration_ms: int, *, minimum_ms: int = 0, increment_ms: int = 1) -> int:
    """The time that is billed for `duration_ms`: at least the minimum, then whole increments, rounded up."""
    duration = max(duration_ms, minimum_ms, 0)
    return -(-duration // increment_ms) * increment_ms


def charge(rate: Rate, duration_ms: int) -> Amount:
    """What exactly `duration_ms` at `rate` costs, rounded up to the next micro-dollar."""
    return Amount(-(-rate * duration_ms // _NANO_MS_A_MICRO))


def cost(rate: Rate, duration_ms: int, *, minimum_ms: int = 0, increment_ms: int = 1) -> Amount:
    """What `duration_ms` at `rate` costs, rounded up to the next micro-dollar."""
    return charge(rate, billed_ms(duration_ms, minimum_ms=minimum_ms, increment_ms=increment_ms))


def split(amount: Amount, weights: Sequence[int]) -> tuple[Amount, ...]:
    """`amount` in proportion to non-negative integer `weights`; the parts sum to it exactly.

    The largest remainders get the odd micro-dollars (ties: the earlier part). All-zero weights put everything on the
    first part. ValueError for no weights or a negative one.
    """
    if not weights or min(weights) < 0:
        raise ValueError(f"weights must be non-negative and not empty, got {list(weights)}")
    total = sum(weights)
    if total == 0:
        return (amount, *(Amount(0) for _ in weights[1:]))
    floors = [amount * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(amount * weights[i] % total), i))
    for i in by_remainder[: amount - sum(floors)]:
        floors[i] += 1
    return tuple(Amount(part) for part in floors)


def _scaled(text: str, digits: int, most: int) -> int:
    """In units of so many decimal digits of a dollar, at most `most` of them."""
    match = _DECIMAL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of dollars (expected e.g. 0.096 or $12.50)")
    whole, fraction = match[1], match[2] or ""
    if len(fraction.rstrip("0")) > digits:
        raise ValueError(f"{text!r} has more than {digits} decimals")
    units = (whole + fraction[:digits].ljust(digits, "0")).lstrip("0") or "0"
    if len(units) > len(str(most)) or int(units) > most:
        raise TooMuch(f"expected at most {most // 10**digits} dollars")
    return int(units)


def parse_rate(text: str) -> Rate:
    """A rate from decimal dollars an hour, `"0.0965"`; ValueError for anything else or past nano-dollars;
    TooMuch for one that nothing costs."""
    return Rate(_scaled(text, 9, MOST_RATE))


def parse_amount(text: str) -> Amount:
    """An amount from decimal dollars, `"$12.50"`; ValueError for anything else or past micro-dollars; TooMuch for
    one that nobody has."""
    return Amount(_scaled(text, 6, MOST_AMOUNT))


def _decimal(value: int, scale: int, digits: int, at_least: int) -> str:
    sign = "-" if value < 0 else ""
    whole, fraction = divmod(abs(value), scale)
    text = f"{fraction:0{digits}d}".rstrip("0").ljust(at_least, "0")
    return f"{sign}${whole}.{text}"


def format_rate(rate: Rate) -> str:
    """`$0.0965/h`, exact."""
    return _decimal(rate, NANO_PER_DOLLAR, 9, 2) + "/h"


def format_amount(amount: Amount) -> str:
    """`$12.50`, exact to the micro-dollar."""
    return _decimal(amount, MICRO_PER_DOLLAR, 6, 2)
