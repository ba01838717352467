"""Field types for the settings of drivers: durations, sizes, cpus and prices as people write them.

Owns pydantic wrappers only, so that every driver's part of the configuration reads alike; knows no driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from cloud_dispatch.domain.durations import format_duration, parse_duration
from cloud_dispatch.domain.money import Rate, format_rate, parse_rate
from cloud_dispatch.domain.resources import format_size, parse_bytes, parse_cpus


def _size(value: object) -> int:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        return parse_bytes(value)
    raise ValueError('expected a size (e.g. "512MiB", "8GiB")')


def _cpus(value: object) -> int:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return parse_cpus(value)
    raise ValueError("expected a number of cpus (e.g. 1, 0.5)")


def _hourly(value: object) -> Rate:
    if isinstance(value, str):
        return parse_rate(value)
    raise ValueError('expected dollars an hour as text (e.g. "0.096"): a float would not be exact')


def _dollars(rate: Rate) -> str:
    return format_rate(rate).removeprefix("$").removesuffix("/h")


def _shown(render: Callable[[Any], Any]) -> PlainSerializer:
    """How a value reads in a shown configuration: as one would write it, so that it can be read back."""
    return PlainSerializer(render, when_used="json")


#: Milliseconds, written as a duration.
Duration = Annotated[int, BeforeValidator(parse_duration), _shown(format_duration)]
#: Bytes, written as a size.
Size = Annotated[int, BeforeValidator(_size), _shown(format_size)]
#: Millicpus, written in cpus.
Cpus = Annotated[int, BeforeValidator(_cpus), _shown(lambda milli: milli / 1000)]
#: Nano-dollars an hour, written as decimal dollars in quotes.
HourlyPrice = Annotated[int, BeforeValidator(_hourly), _shown(_dollars)]
