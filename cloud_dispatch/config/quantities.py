"""Quantities as people write them in the configuration: sizes, shares, factors. Owns their text both ways.

Knows pydantic only to wrap the parsers into field types; knows no section of the configuration.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from cloud_dispatch.domain.durations import format_duration, parse_duration
from cloud_dispatch.domain.money import Amount, TooMuch, format_amount, parse_amount
from cloud_dispatch.domain.resources import format_size, parse_bytes, parse_cpus


def parse_size(value: object) -> int:
    """Bytes; ValueError that says what was expected."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return parse_bytes(value)
        except ValueError:
            pass
    raise ValueError('expected a size (e.g. 1048576, "512MiB", "8GiB")')


def parse_share_of_cpus(value: object) -> int:
    """Millicpus, zero allowed (as in what a pool reserves)."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return 0 if str(value) in ("0", "0.0") else parse_cpus(value)
        except ValueError:
            pass
    raise ValueError("expected a number of cpus, in steps of 0.001 (e.g. 0.5)")


def parse_percent(value: object) -> int:
    """A factor in whole hundredths, `1.5` -> 150; ValueError for a negative one or anything finer."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            percent = Decimal(str(value)) * 100
        except InvalidOperation:
            percent = Decimal("NaN")
        if percent.is_finite() and percent >= 0 and percent == percent.to_integral_value():
            return int(percent)
    raise ValueError("expected a factor with at most two decimals (e.g. 1.5)")


def parse_dollars(value: object) -> int:
    """Micro-dollars from decimal dollars as text, or whole dollars. ValueError for a float, which is not exact."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return parse_amount(str(value))
        except TooMuch:
            raise
        except ValueError:
            pass
    raise ValueError('expected dollars as text (e.g. "12.50", "$100")')


#: Milliseconds, written as a duration.
Duration = Annotated[int, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
#: Bytes, written as a size.
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size)]
#: Millicpus, written in cpus.
Cpus = Annotated[int, BeforeValidator(parse_share_of_cpus), PlainSerializer(lambda milli: milli / 1000)]
#: Micro-dollars, written in decimal dollars.
Dollars = Annotated[int, BeforeValidator(parse_dollars), PlainSerializer(lambda micro: format_amount(Amount(micro)))]
#: Hundredths, written as a factor.
Percent = Annotated[int, BeforeValidator(parse_percent), PlainSerializer(lambda percent: percent / 100)]
