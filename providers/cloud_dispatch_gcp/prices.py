"""What Google asks. Owns how the billing catalogue and the embedded table are read, and how a price is put together.

Google sells cores, memory and GPUs, not machines: a type costs what it is made of. A price of which a part is not known
is unknown, never guessed: nothing is launched at it where a limit is set. Pure, but for the table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from functools import cache
from importlib import resources
from typing import Any

from cloud_dispatch.domain.money import NANO_PER_DOLLAR, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch_gcp import machines
from cloud_dispatch_gcp.settings import GIB

#: Compute Engine's number in the catalogue.
SERVICE = "6F81-5844-456A"
HOST, PATH = "https://cloudbilling.googleapis.com", f"/v1/services/{SERVICE}/skus?pageSize=5000&currencyCode=USD"
#: Shared cores are billed as a part of one, in thousandths, whatever number of vCPUs the guest sees.
_SHARED = {"e2-micro": 250, "e2-small": 500, "e2-medium": 1000}
#: Dollars for a GiB a month in Iowa, as public in 2025; elsewhere so much more as in the
#: dearest regions: what is reserved for disks should be too much rather than too little.
_DISKS = {"pd-standard": "0.04", "pd-balanced": "0.10", "pd-ssd": "0.17", "hyperdisk-balanced": "0.10"}
_LOCAL_SSD, _LOCAL_SSD_GIB = "0.08", 375
_CHEAP = frozenset({"us-central1", "us-east1", "us-west1"})
_ELSEWHERE = 160  # percent
#: Hours of the shortest month: what is billed by the month costs no more an hour than this.
_HOURS = 672
_PUBLIC_ADDRESS = "0.005"
_FAMILY = re.compile(
    r"(?P<family>[A-Z][0-9][A-Z]?)(?: (?:AMD|Arm|Predefined|Memory-optimized))?(?P<custom> Custom)?"
    r" Instance (?P<what>Core|Ram) running in .+"
)
_COMPUTE_OPTIMIZED = re.compile(r"Compute optimized (?P<what>Core|Ram) running in .+")
_N1_CUSTOM = re.compile(r"Custom Instance (?P<what>Core|Ram) running in .+")
_GPU = re.compile(
    r"Nvidia (?:Tesla )?(?P<name>[A-Z0-9]+(?: 80GB)?) GPU (?:attached to Spot Preemptible VMs )?running in .+"
)
_SPOT = re.compile(r"^(Spot )?Preemptible ")
_UNITS = {"core": "h", "ram": "GiBy.h", "gpu": "h"}
_MARKETS = {"OnDemand": Market.ON_DEMAND, "Preemptible": Market.SPOT}


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is billed by itself. `name`: a family (`n2`), a family's custom machines (`n2 custom`), a GPU."""

    kind: str  # core, ram, gpu
    name: str
    region: str
    market: Market


@dataclass(frozen=True, slots=True)
class Rates:
    """What parts cost, in nano-dollars an hour of a core, GiB or GPU, and when that was true: at `priced_ms`, but for
    those that `dates` have."""

    rates: Mapping[Part, int]
    priced_ms: int
    estimated: bool = False
    dates: Mapping[Part, int] = field(default_factory=dict)

    def true_ms(self, parts: Iterable[Part]) -> int:
        """When all of them were true: what is put together is as old as the oldest of it."""
        return min((self.dates.get(part, self.priced_ms) for part in parts), default=self.priced_ms)


@dataclass(frozen=True, slots=True)
class Price:
    """An hourly price, and when it was true."""

    rate: Rate
    priced_ms: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What a type is made of, as far as it is billed. `gpu`: as SKUs call it. `extras`: parts with no price here."""

    name: str
    cpus: int
    memory_mib: int
    gpu: str = ""
    gpus: int = 0
    extras: bool = field(default=False)


def price(made: Made, region: str, market: Market, known: Rates) -> Price | None:
    """The price of a type in a region; None where a part of it is not known."""
    if made.extras:
        return None
    own = machines.custom(made.name)
    if own is not None and own.extended:
        return None
    family = machines.family_of(made.name)
    name = f"{family} custom" if own else family
    parts = [Part("core", name, region, market), Part("ram", name, region, market)]
    parts += [Part("gpu", made.gpu, region, market)] if made.gpus else []
    if family in ("f1", "g1") or not all(part in known.rates for part in parts):
        return None
    core, ram, *gpu = (known.rates[part] for part in parts)
    thousandths = _SHARED.get(made.name, made.cpus * 1000)
    cores, memory = -(-core * thousandths // 1000), -(-ram * made.memory_mib // 1024)
    return Price(Rate(cores + memory + sum(gpu) * made.gpus), known.true_ms(parts), known.estimated)


def of_catalogue(skus: Iterable[Mapping[str, Any]], priced_ms: int) -> Rates:
    """The parts among Google's SKUs. What has no plain hourly price in dollars, or two, is left out."""
    found: dict[Part, set[int]] = {}
    for sku in skus:
        market = _MARKETS.get(sku.get("category", {}).get("usageType", ""))
        said = _part(str(sku.get("description", "")), market)
        rate = _hourly(sku, _UNITS[said[0]]) if said else None
        if said and market and rate:
            for region in sku.get("serviceRegions", ()):
                found.setdefault(Part(*said, region, market), set()).add(rate)
    return Rates({part: rates.pop() for part, rates in found.items() if len(rates) == 1}, priced_ms)


def embedded(region: str) -> Rates:
    """What travels with the driver of `region`: estimates, each as old as its table says. On demand alone: what spot
    machines cost changes from day to day."""
    rates: dict[Part, int] = {}
    dates: dict[Part, int] = {}
    for table in sorted(_tables(), key=lambda one: one["as_of"]):  # of two records the newer one counts
        found: dict[tuple[str, str], str] = {("gpu", name): dollars for name, dollars in table.get("gpus", {}).items()}
        for name, (core, ram) in table.get("families", {}).items():
            found |= {("core", name): core, ("ram", name): ram}
        if region in table["regions"]:
            parts = {
                Part(kind, name, region, Market.ON_DEMAND): nano(dollars) for (kind, name), dollars in found.items()
            }
            rates |= parts
            dates |= dict.fromkeys(parts, int(datetime.combine(table["as_of"], time(), UTC).timestamp() * 1000))
    return Rates(rates, 0, estimated=True, dates=dates)


def of_extras(region: str, disk_type: str, disk_bytes: int, local_ssds: int, *, public_address: bool) -> Rate:
    """What a VM's disks and public address cost an hour beside it."""
    gib = -(-disk_bytes // GIB)
    monthly = nano(_DISKS[disk_type]) * gib + nano(_LOCAL_SSD) * _LOCAL_SSD_GIB * local_ssds
    if region not in _CHEAP:
        monthly = -(-monthly * _ELSEWHERE // 100)
    return Rate(-(-monthly // _HOURS) + (nano(_PUBLIC_ADDRESS) if public_address else 0))


def nano(dollars: str) -> int:
    """Decimal dollars, rounded up to the nano-dollar; ValueError for anything else."""
    whole, _, part = dollars.strip().partition(".")
    if not whole.isdecimal() or not (part or "0").isdecimal():
        raise ValueError(f"{dollars!r} is no price")
    return -(-int(whole + part) * NANO_PER_DOLLAR // int(10 ** len(part)))


def _part(description: str, market: Market | None) -> tuple[str, str] | None:
    """Kind and name of what a SKU is of; None for what machines are not made of (commitments, licences)."""
    if bool(_SPOT.match(description)) != (market is Market.SPOT) and "attached to Spot" not in description:
        return None
    plain = _SPOT.sub("", description)
    if match := _FAMILY.fullmatch(plain):
        return match["what"].lower(), match["family"].lower() + (match["custom"] or "").lower()
    if match := _COMPUTE_OPTIMIZED.fullmatch(plain):
        return match["what"].lower(), "c2"
    if match := _N1_CUSTOM.fullmatch(plain):
        return match["what"].lower(), "n1 custom"
    if match := _GPU.fullmatch(plain):
        return "gpu", match["name"].lower().replace(" ", "-")
    return None


def _hourly(sku: Mapping[str, Any], unit: str) -> int | None:
    """Nano-dollars an hour, of the newest price; None for what is priced otherwise, or free."""
    try:
        expression = sku["pricingInfo"][-1]["pricingExpression"]
        tiers = expression["tieredRates"]
        money = tiers[0]["unitPrice"]
        if expression["usageUnit"] != unit or len(tiers) != 1 or money.get("currencyCode", "USD") != "USD":
            return None
        rate = int(money.get("units", 0)) * NANO_PER_DOLLAR + int(money.get("nanos", 0))
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return rate if rate > 0 else None


@cache
def _tables() -> list[dict[str, Any]]:
    text = resources.files("cloud_dispatch_gcp").joinpath("prices.toml").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = tomllib.loads(text)["table"]
    return tables
