"""What Azure asks. Owns how its Retail Prices API and the embedded table are read. Pure, but for the table.

A price that can't be read is unknown, never guessed: nothing is launched at it where a limit is set.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import cache
from importlib import resources
from typing import Any

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.money import NANO_PER_DOLLAR, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch_azure.settings import GIB

#: Dollars a month of a managed disk (locally redundant) by the GiB that its tier has, East US, as public in 2025-2026.
_DISKS: Mapping[str, tuple[tuple[int, str], ...]] = {
    "Standard_LRS": (
        (32, "1.54"), (64, "3.01"), (128, "5.89"), (256, "11.33"), (512, "21.76"), (1024, "40.96"), (2048, "77.83"),
        (4096, "143.36"),
    ),
    "StandardSSD_LRS": (
        (4, "0.30"), (8, "0.60"), (16, "1.20"), (32, "2.40"), (64, "4.80"), (128, "9.60"), (256, "19.20"),
        (512, "38.40"), (1024, "76.80"), (2048, "153.60"), (4096, "307.20"),
    ),
    "Premium_LRS": (
        (4, "0.77"), (8, "1.54"), (16, "3.08"), (32, "5.28"), (64, "10.21"), (128, "19.71"), (256, "38.02"),
        (512, "73.22"), (1024, "135.17"), (2048, "259.20"), (4096, "495.43"),
    ),
}  # fmt: skip
#: What disks may cost more elsewhere: what is reserved for them is to be too much rather than too little.
_CHEAP, _ELSEWHERE = frozenset({"eastus", "eastus2", "westus2", "southcentralus", "centralus"}), 2
#: Hours of the shortest month: what is billed by the month costs no more an hour than this.
_HOURS = 672
_PUBLIC_ADDRESS = "0.005"
#: Dollars; nothing costs more.
_MOST = 1_000_000
#: An embedded price that is older than this is a warning.
STALE_MS = 90 * 86_400_000
_SPOT, _LOW_PRIORITY = " spot", " low priority"


@dataclass(frozen=True, slots=True)
class Price:
    """An hourly price, and when it was true."""

    rate: Rate
    priced_ms: int
    estimated: bool = False


def nano(dollars: str) -> Rate:
    """Decimal dollars as JSON writes them, rounded up to the nano-dollar; ValueError for anything else."""
    try:
        scaled = Decimal(dollars.strip()) * NANO_PER_DOLLAR
    except InvalidOperation:
        raise ValueError(f"{dollars!r} is no price") from None
    if not scaled.is_finite() or not 0 <= scaled <= _MOST * NANO_PER_DOLLAR:
        raise ValueError(f"{dollars!r} is no price")
    return Rate(int(scaled.to_integral_value(ROUND_CEILING)))


def query(region: str) -> dict[str, str]:
    """What to ask the Retail Prices API for: virtual machines of a region, as anybody may rent them."""
    wanted = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'"
    return {"$filter": wanted, "currencyCode": "USD"}


def of_list(pages: Iterable[str], region: str, priced_ms: int) -> dict[tuple[str, Market], Price]:
    """Prices by size and market. Windows, low priority (an older product than spot), reservations and what is not in
    dollars an hour are left out. Of several the one that began last counts, and where two began together none: of the
    primary meters, as Azure bills by no others where there are such."""
    found: dict[tuple[str, Market], dict[tuple[bool, str], set[Rate]]] = {}
    for page in pages:
        for item in json.loads(page, parse_float=str).get("Items") or ():
            read = _item(item, region, priced_ms)
            if read is not None:
                key, rank, rate = read
                found.setdefault(key, {}).setdefault(rank, set()).add(rate)
    return {
        key: Price(next(iter(ranked[first])), priced_ms)
        for key, ranked in found.items()
        if len(ranked[first := max(ranked)]) == 1
    }


def _item(
    item: Mapping[str, Any], region: str, now_ms: int
) -> tuple[tuple[str, Market], tuple[bool, str], Rate] | None:
    """Size and market, whether its meter is a primary one and since when, and the price; None for what is no price of a
    Linux VM now."""
    size, sku = str(item.get("armSkuName") or ""), str(item.get("skuName") or "").lower()
    product = str(item.get("productName") or "").lower()
    if (
        not size
        or item.get("armRegionName") != region
        or item.get("type", "Consumption") != "Consumption"
        or item.get("unitOfMeasure") != "1 Hour"
        or item.get("currencyCode") != "USD"
        or "windows" in product
        or "cloud services" in product.replace("cloudservices", "cloud services")
        or "dedicated host" in product
        or sku.endswith(_LOW_PRIORITY)
    ):
        return None
    since = str(item.get("effectiveStartDate") or "")
    if since and _since_ms(since) > now_ms:
        return None
    try:
        rate = nano(str(item.get("retailPrice", "")))
    except ValueError:
        return None
    market = Market.SPOT if sku.endswith(_SPOT) else Market.ON_DEMAND
    return ((size, market), (item.get("isPrimaryMeterRegion") is not False, since), rate) if rate else None


def _since_ms(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return 0


def embedded(region: str) -> dict[str, Price]:
    """The prices of `region` that travel with the driver: estimates, as old as their tables say; the newest counts."""
    return {
        name: Price(nano(dollars), _moment(table["as_of"]), estimated=True)
        for table in sorted(_tables(), key=lambda one: one["as_of"])
        if table["region"] == region
        for name, dollars in table["dollars"].items()
    }


def of_settings(said: Mapping[str, int], now_ms: int) -> dict[str, Price]:
    """What the operator says that he pays: it holds as long as he says it."""
    return {name: Price(Rate(rate), now_ms) for name, rate in said.items()}


def stale(prices: Iterable[Price], now_ms: int) -> str:
    """Why estimates among `prices` should not be relied on, "" where they can."""
    ages = [now_ms - price.priced_ms for price in prices if price.estimated and now_ms - price.priced_ms >= STALE_MS]
    if not ages:
        return ""
    return f"{len(ages)} prices are from a table that is {format_duration(max(ages) // 86_400_000 * 86_400_000)} old"


def of_extras(region: str, disk_type: str, disks: Iterable[int], *, public_address: bool) -> Rate:
    """What a VM's disks and public address cost an hour beside it."""
    monthly = sum(_monthly(disk_type, -(-size // GIB)) for size in disks)
    if region not in _CHEAP:
        monthly *= _ELSEWHERE
    return Rate(-(-monthly // _HOURS) + (nano(_PUBLIC_ADDRESS) if public_address else 0))


def _monthly(disk_type: str, gib: int) -> int:
    """A disk is billed as the tier that it fits into; over the largest here, as so many of that."""
    tiers = _DISKS[disk_type]
    for limit, dollars in tiers:
        if gib <= limit:
            return nano(dollars)
    limit, dollars = tiers[-1]
    return nano(dollars) * -(-gib // limit)


@cache
def _tables() -> list[dict[str, Any]]:
    text = resources.files("cloud_dispatch_azure").joinpath("prices.toml").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = tomllib.loads(text)["table"]
    return tables


def _moment(day: Any) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)
