"""Traces of spot prices. Owns their CSV: columns `time` (or `time_ms`, `_s`, `_m`, `_h`), `type`, `zone`, `price`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from cloud_dispatch.demand.fields import shorten
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.money import Rate, parse_rate
from cloud_dispatch.simulation.workload.csvlog import UNITS
from cloud_dispatch.simulation.workload.items import SpotPrice
from cloud_dispatch.simulation.workload.lines import texts

#: A longer trace is cut by its owner first.
MAX_PRICES = 5_000_000
_TIME = re.compile(r"time(?:_(ms|s|m|h))?")
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?")
_REST = ("type", "zone", "price")


def read_spot_prices(path: Path) -> tuple[SpotPrice, ...]:
    """The prices in order of time, from the first one's moment on; `price` is dollars an hour, `time` (without a unit)
    seconds, an empty zone stands for all.

    InvalidInput at `spot.csv:17: price` for what is not of this form or says two prices of one moment; NotFound.
    """
    prices: dict[tuple[int, str, str], SpotPrice] = {}
    for place, price in _rows(path):
        key = (price.at_ms, price.type, price.zone)
        if key in prices and prices[key] != price:
            raise InvalidInput("expected one price of a type and zone at a moment, got another", place=place)
        if len(prices) >= MAX_PRICES:
            raise InvalidInput(f"expected at most {MAX_PRICES} prices", place=place)
        prices[key] = price
    if not prices:
        raise InvalidInput("expected at least one price, got none", place=str(path))
    start = min(price.at_ms for price in prices.values())
    return tuple(replace(prices[key], at_ms=prices[key].at_ms - start) for key in sorted(prices))


def _rows(path: Path) -> Iterator[tuple[str, SpotPrice]]:
    rows = csv.reader((line for _, line in texts(path)), strict=True)
    header: list[str] = []
    unit_ms = 0
    try:
        for row in rows:
            place = f"{path}:{rows.line_num}"
            if not header:
                header = [cell.strip() for cell in row]
                unit_ms = _check(header, place)
            elif any(row):
                yield place, _price(dict(_cells(header, row, place)), unit_ms, place)
    except csv.Error as error:
        raise InvalidInput(f"expected CSV: {error}", place=f"{path}:{rows.line_num}") from None


def _check(header: list[str], place: str) -> int:
    """Milliseconds of the unit of the column of times, which is renamed `time`."""
    times = [match for name in header if (match := _TIME.fullmatch(name))]
    if len(times) != 1 or sorted(header) != sorted([times[0][0], *_REST]):
        raise InvalidInput(
            "expected the columns time (or time_ms, time_s, time_m, time_h), type, zone, price"
            f", got {shorten(','.join(header))}",
            place=place,
        )
    header[header.index(times[0][0])] = "time"
    return UNITS[times[0][1] or "s"]


def _cells(header: list[str], row: list[str], place: str) -> Iterator[tuple[str, str]]:
    if len(row) != len(header):
        raise InvalidInput(f"expected {len(header)} columns, got {len(row)}", place=place)
    return zip(header, (cell.strip() for cell in row), strict=True)


def _price(cells: dict[str, str], unit_ms: int, place: str) -> SpotPrice:
    if not _NUMBER.fullmatch(cells["time"]):
        raise InvalidInput(f"expected a number, got {shorten(cells['time'])}", place=f"{place}: time")
    if not cells["type"]:
        raise InvalidInput("expected the name of an instance type, got nothing", place=f"{place}: type")
    try:
        rate: Rate = parse_rate(cells["price"])
    except ValueError as error:
        raise InvalidInput(str(error), place=f"{place}: price") from None
    return SpotPrice(int(Decimal(cells["time"]) * unit_ms), cells["type"], cells["zone"], rate)
