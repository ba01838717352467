"""What AWS asks. Owns how its price list, its spot prices and the embedded table are read. Pure, but for the table.

A price that can't be read is unknown, never guessed: nothing is launched at it where a limit is set.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.money import NANO_PER_DOLLAR, Rate
from cloud_dispatch_aws.settings import GIB

#: Dollars for a GiB of gp3 a month, by region, as public in 2025; elsewhere the dearest of them, so that what is
#: reserved for disks is too much rather than too little.
_GP3 = {
    "us-east-1": "0.08", "us-east-2": "0.08", "us-west-1": "0.096", "us-west-2": "0.08", "ca-central-1": "0.088",
    "eu-west-1": "0.088", "eu-west-2": "0.0928", "eu-west-3": "0.0928", "eu-central-1": "0.0952",
    "eu-north-1": "0.0836", "ap-south-1": "0.0912", "ap-northeast-1": "0.096", "ap-northeast-2": "0.0912",
    "ap-southeast-1": "0.096", "ap-southeast-2": "0.096", "sa-east-1": "0.152",
}  # fmt: skip
#: Hours of the shortest month: what is billed by the month costs no more an hour than this.
_HOURS = 672
_PUBLIC_ADDRESS = "0.005"
#: The market that a product of the price list is for, where it says so, which is the one that anybody may rent on.
_ANYBODYS = "OnDemand"
#: An embedded price that is older than this is a warning.
STALE_MS = 90 * 86_400_000


@dataclass(frozen=True, slots=True)
class Price:
    """An hourly price, and when it was true."""

    rate: Rate
    priced_ms: int
    estimated: bool = False


def nano(dollars: str) -> Rate:
    """Decimal dollars as AWS writes them (ten digits), rounded up to the nano-dollar; ValueError for anything else."""
    whole, _, part = dollars.strip().partition(".")
    if not whole.isdecimal() or not (part or "0").isdecimal():
        raise ValueError(f"{dollars!r} is no price")
    scale = 10 ** len(part)
    return Rate(-(-int(whole + part) * NANO_PER_DOLLAR // scale))


def price_list_filters(region: str) -> list[dict[str, str]]:
    """What to ask GetProducts of AmazonEC2 for: plain Linux on shared machines, as anybody may rent them."""
    wanted = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
    }
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]


def of_price_list(products: Iterable[str], priced_ms: int) -> dict[str, Price]:
    """On-demand prices by type from GetProducts' documents; what is not in dollars an hour is left out, and so is a
    type that has two prices. Types of which EC2 sells blocks of capacity ahead are listed twice among the on-demand
    prices: once more for what runs in such a block, at nothing."""
    found: dict[str, set[Rate]] = {}
    for document in products:
        product = json.loads(document)
        attributes = product.get("product", {}).get("attributes", {})
        if attributes.get("marketoption", _ANYBODYS) != _ANYBODYS:
            continue
        name = attributes.get("instanceType")
        for term in product.get("terms", {}).get("OnDemand", {}).values():
            for dimension in term.get("priceDimensions", {}).values():
                dollars = dimension.get("pricePerUnit", {}).get("USD")
                if name and dollars and dimension.get("unit") == "Hrs":
                    with contextlib.suppress(ValueError):
                        found.setdefault(name, set()).add(nano(dollars))
    return {name: Price(rates.pop(), priced_ms) for name, rates in found.items() if len(rates) == 1 and 0 not in rates}


def of_spot_history(rows: Iterable[Mapping[str, Any]], priced_ms: int) -> dict[tuple[str, str], Price]:
    """The current spot price by type and zone. `priced_ms`: when it was asked; a price stands until the next one."""
    newest: dict[tuple[str, str], tuple[datetime, Rate]] = {}
    for row in rows:
        key = (row["InstanceType"], row["AvailabilityZone"])
        try:
            found = (row["Timestamp"], nano(row["SpotPrice"]))
        except ValueError:  # what can't be read is not known
            continue
        if key not in newest or newest[key][0] < found[0]:
            newest[key] = found
    return {key: Price(rate, priced_ms) for key, (_, rate) in newest.items()}


@cache
def embedded(region: str) -> Mapping[str, Price]:
    """The prices of `region` that travel with the driver: estimates, as old as their tables say; the newest counts."""
    found = {
        f"{family}.{size}": Price(nano(dollars), _moment(table["as_of"]), estimated=True)
        for table in sorted(_tables(), key=lambda one: one["as_of"])
        if table["region"] == region
        for family, said in table["dollars"].items()
        for size, dollars in (one.split() for one in said.split(","))
    }
    return MappingProxyType(found)


def of_settings(said: Mapping[str, int], now_ms: int) -> dict[str, Price]:
    """What the operator says that he pays: it holds as long as he says it."""
    return {name: Price(Rate(rate), now_ms) for name, rate in said.items()}


def stale(prices: Iterable[Price], now_ms: int) -> str:
    """Why estimates among `prices` should not be relied on, "" where they can."""
    ages = [now_ms - price.priced_ms for price in prices if price.estimated and now_ms - price.priced_ms >= STALE_MS]
    if not ages:
        return ""
    return f"{len(ages)} prices are from a table that is {format_duration(max(ages) // 86_400_000 * 86_400_000)} old"


def of_extras(region: str, disk_bytes: int, *, public_address: bool) -> Rate:
    """What a VM's disks and public address cost an hour beside it."""
    gib = -(-disk_bytes // GIB)
    monthly = (nano(_GP3[region]) if region in _GP3 else max(map(nano, _GP3.values()))) * gib
    return Rate(-(-monthly // _HOURS) + (nano(_PUBLIC_ADDRESS) if public_address else 0))


@cache
def _tables() -> list[dict[str, Any]]:
    text = resources.files("cloud_dispatch_aws").joinpath("prices.toml").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = tomllib.loads(text)["table"]
    return tables


def _moment(day: Any) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)
