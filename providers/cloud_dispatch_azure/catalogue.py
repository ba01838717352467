"""What a profile could rent: sizes, their zones, prices, limits. Owns the reading of Azure's resource SKUs and usages
and the joining of it all into offerings; the pure half is functions, `Catalogue` asks and keeps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.provider import spi
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError, Scope, Transient
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch.provider.spi import Quota, QuotaUnit
from cloud_dispatch_azure import prices
from cloud_dispatch_azure.calls import Calls
from cloud_dispatch_azure.errors import Asked
from cloud_dispatch_azure.images import Image, Images
from cloud_dispatch_azure.prices import Price
from cloud_dispatch_azure.settings import GIB, AzureSettings

_HOUR_MS = 3_600_000
_SIZES_MS, _PRICES_MS, _PRICES_AGAIN_MS = 6 * _HOUR_MS, 6 * _HOUR_MS, 600_000
#: Azure bills Linux by the second; the first minute is whole.
_MINIMUM_MS = 60_000
_ARCHITECTURES = {"x64": "x86_64", "arm64": "arm64"}
#: What trusted launch keeps for itself of the place that an ephemeral disk is in ("Ephemeral OS disks for Azure VMs").
_GUEST_STATE = GIB
#: Of machines that boot confidential VMs and refuse each other one. Those with enclaves alone (SGX) boot any.
_CONFIDENTIAL = frozenset({"snp", "tdx"})
#: Azure does not say which GPU a size has; its name does. A part of a card counts as one, with the memory of the part:
#: 0 where that is not known.
_GPUS = (
    (re.compile(r"_T4_"), "t4", 16), (re.compile(r"_H100_"), "h100", 80), (re.compile(r"_H200_"), "h200", 141),
    (re.compile(r"_A100_"), "a100", 80), (re.compile(r"^Standard_ND96asr"), "a100", 40),
    (re.compile(r"^Standard_NC\d+r?s_v3"), "v100", 16), (re.compile(r"_MI300X_"), "mi300x", 192),
    (re.compile(r"^Standard_NV(36adm?s|72ads)_A10_v5$"), "a10", 24), (re.compile(r"^Standard_NV18ads_A10_"), "a10", 12),
    (re.compile(r"^Standard_NV12ads_A10_"), "a10", 8), (re.compile(r"^Standard_NV6ads_A10_"), "a10", 4),
    (re.compile(r"^Standard_NV.*_A10_"), "a10", 0),
    (re.compile(r"^Standard_NV32as_v4$"), "mi25", 16), (re.compile(r"^Standard_NV16as_v4$"), "mi25", 8),
    (re.compile(r"^Standard_NV8as_v4$"), "mi25", 4), (re.compile(r"^Standard_NV4as_v4$"), "mi25", 2),
    (re.compile(r"^Standard_NV\d+as_v4$"), "mi25", 0),
)  # fmt: skip
_SPOT_CORES, _CORES = "lowPriorityCores", "cores"


@dataclass(frozen=True, slots=True)
class Sold:
    """A size, where there is any of it, on which markets, and what it can do."""

    type: InstanceType
    zones: frozenset[str]
    markets: frozenset[Market]
    trusted: bool = True
    #: Where the disk of a VM without a kept one is; "" where the size has no room for it.
    placement: str = ""
    generations: frozenset[str] = frozenset({"V1", "V2"})

    def boots(self, image: Image) -> bool:
        """Whether it can, by its generation; believed of an image of which nothing is told."""
        return not image.known or image.generation in self.generations


class Catalogue:
    """The offerings of one profile. Sizes and zones are good for hours, and so are prices: Azure's change seldom."""

    def __init__(
        self, profile: ProfileName, settings: AzureSettings, calls: Calls, images: Images, now: Callable[[], int]
    ) -> None:
        self._profile = profile
        self._settings = settings
        self._calls = calls
        self._images = images
        self._now = now
        self._sold = Kept(self._ask_sizes, _SIZES_MS, now)
        self._listed = Kept(self._ask_prices, lambda found: _PRICES_MS if found else _PRICES_AGAIN_MS, now)

    async def offerings(self) -> tuple[Offering, ...]:
        """All of them, with what is known of their prices."""
        sold, known = await asyncio.gather(self._sold.get(), self.known())
        images, own = await self._images_of(sold), self._own()
        return tuple(
            offering
            for one in sold
            if (image := images.get(one.type.architecture)) is not None and one.boots(image)
            for zone in sorted(one.zones)
            for offering in _offered(self._profile, self._settings, one, zone, own if image.billed else known, image)
        )

    async def sold(self) -> Sequence[Sold]:
        return await self._sold.get()

    async def of_name(self, name: str) -> Sold:
        """InvalidRequest for a size that the profile does not rent."""
        for one in await self._sold.get():
            if one.type.name == name:
                return one
        raise InvalidRequest(f"profile {self._profile} has no size {name!r}")

    async def known(self) -> Mapping[tuple[str, Market], Price]:
        """Prices by size and market: on demand what the operator says, else the list's word, else the table's."""
        table = prices.embedded(self._settings.region)
        return {
            **{(name, Market.ON_DEMAND): price for name, price in table.items()},
            **await self._listed.get(),
            **self._own(),
        }

    def _own(self) -> Mapping[tuple[str, Market], Price]:
        """What the operator says: all that is known where the image bills too, as list and table have the machine."""
        own = prices.of_settings(self._settings.prices, self._now())
        return {(name, Market.ON_DEMAND): price for name, price in own.items()}

    async def told(self) -> list[spi.Price]:
        """What Azure says that the sizes cost now, asked for anew; ProviderError where the list can't be read."""
        names = {one.type.name for one in await self._sold.get()}
        listed = await self._read_list()
        region = self._settings.region
        return [spi.Price(name, region, market, one.rate) for (name, market), one in listed.items() if name in names]

    async def quotas(self) -> tuple[Quota, ...]:
        """Of the families that the profile rents, of all cores on demand in the region, and of the spot market."""
        region = self._settings.region
        sold, usages = await asyncio.gather(
            self._sold.get(),
            self._calls.pages(Asked("usages"), lambda clients: clients.compute.usage.list(region)),
        )
        return told(usages, {one.type.family for one in sold}, region)

    async def skus(self) -> list[dict[str, Any]]:
        """All sizes of the region, with what keeps this subscription from some."""
        where = f"location eq '{self._settings.region}'"
        found = await self._calls.pages(Asked("skus"), lambda clients: clients.compute.resource_skus.list(filter=where))
        return [one for one in found if one.get("resourceType") == "virtualMachines"]

    async def _images_of(self, sold: Iterable[Sold]) -> Mapping[str, Image]:
        """The image that each architecture would boot; one that has none is not offered."""
        wanted = {one.type.architecture for one in sold} & set(self._settings.images)
        return {name: await self._images.of_architecture(name) for name in sorted(wanted)}

    async def _ask_sizes(self) -> Sequence[Sold]:
        found = sold(await self.skus(), self._settings)
        if not found:
            raise InvalidRequest(
                f"sizes: none of them can be rented in {self._settings.region} (config check --online says why)"
            )
        return found

    async def _ask_prices(self) -> Mapping[tuple[str, Market], Price]:
        """The list's; nothing where it can't be read, so that the table speaks: prices alone stop no VM."""
        if not self._settings.price_list:
            return {}
        try:
            return await self._read_list()
        except ProviderError:
            return {}

    async def _read_list(self) -> Mapping[tuple[str, Market], Price]:
        try:
            pages = await self._calls.price_pages(Asked("prices"), prices.query(self._settings.region))
            return prices.of_list(pages, self._settings.region, self._now())
        except ValueError as error:  # what answers at that address is no price list
            raise Transient(f"prices: the answer is no list of prices: {error}") from error


def sold(skus: Iterable[Mapping[str, Any]], settings: AzureSettings) -> tuple[Sold, ...]:
    """The sizes that the settings want, by name, each with the zones that the settings and the subscription allow."""
    wanted = (
        sku for sku in skus if any(fnmatchcase(str(sku.get("name") or ""), pattern) for pattern in settings.sizes)
    )
    found = [one for one in (judged(sku, settings) for sku in wanted) if isinstance(one, Sold)]
    return tuple(sorted(found, key=lambda one: one.type.name))


def judged(sku: Mapping[str, Any], settings: AzureSettings) -> Sold | str:
    """A size as the profile could rent it, or why it could not."""
    zones = places(sku, settings)
    if not zones:
        codes = sorted({str(one.get("reasonCode")) for one in sku.get("restrictions") or ()})
        return f"not for this subscription here: {', '.join(codes)}" if codes else "in no zone that `zones` names"
    kind = _said(sku).get("ConfidentialComputingType", "")
    if kind.lower() in _CONFIDENTIAL:
        return f"they boot confidential VMs ({kind}) and no others, which the driver does not make"
    made = size(sku, settings)
    if made is None:
        return (
            f"`images` has none for them ({', '.join(sorted(settings.images))} alone), or Azure says too little of them"
        )
    if settings.ephemeral and not made.placement:
        return "no room for an ephemeral disk of root_size"
    return replace(made, zones=frozenset(zones))


def places(sku: Mapping[str, Any], settings: AzureSettings) -> set[str]:
    """Zones as offerings name them, or the region where it has none for the size; nothing where it is not to be had."""
    region = settings.region
    zones: set[str] = set()
    there = False
    for info in sku.get("locationInfo") or ():
        if str(info.get("location") or "").lower() == region:
            there = True
            zones |= set(info.get("zones") or ())
    denied: set[str] = set()
    for one in sku.get("restrictions") or ():
        within = one.get("restrictionInfo") or {}
        if one.get("type") == "Location" and region in {str(place).lower() for place in within.get("locations") or ()}:
            return set()
        if one.get("type") == "Zone":
            denied |= set(within.get("zones") or ())
    if not there:
        return set()
    if settings.zones:
        return {f"{region}-{zone}" for zone in zones & set(settings.zones) - denied}
    if not zones:
        return {region}
    return {f"{region}-{zone}" for zone in zones - denied}


def size(sku: Mapping[str, Any], settings: AzureSettings) -> Sold | None:
    """A size as Azure tells it; None for machines that none of the images can boot, or of which too little is said."""
    said = _said(sku)
    architecture = _ARCHITECTURES.get(said.get("CpuArchitectureType", "x64").lower(), "")
    vcpus, memory = said.get("vCPUsAvailable") or said.get("vCPUs", ""), said.get("MemoryGB", "")
    if architecture not in settings.images or not vcpus.isdecimal() or not memory.replace(".", "", 1).isdecimal():
        return None
    name, gpus = str(sku["name"]), said.get("GPUs", "0")
    count = int(gpus) if gpus.isdecimal() else 0
    gpu = next(((kind, gib) for pattern, kind, gib in _GPUS if pattern.search(name)), ("", 0)) if count else ("", 0)
    kind = InstanceType(
        name=name,
        capacity=Resources(
            cpus_milli=int(vcpus) * 1000,
            memory=int(float(memory) * GIB),
            disk=sum(settings.scratch) or settings.root_size,
            gpus=count,
        ),
        gpu_type=gpu[0],
        gpu_memory=gpu[1] * GIB,
        architecture=architecture,
        family=str(sku.get("family") or ""),
    )
    spot = said.get("LowPriorityCapable", "").lower() == "true" and settings.spot
    trusted = said.get("TrustedLaunchDisabled", "").lower() != "true"
    kept = _GUEST_STATE if trusted and settings.trusted_launch else 0
    return Sold(
        kind,
        frozenset(),
        frozenset({Market.ON_DEMAND, *([Market.SPOT] if spot else [])}),
        trusted,
        _placement(said, settings.root_size + kept),
        frozenset(part.strip() for part in said.get("HyperVGenerations", "V1,V2").split(",")),
    )


def _said(sku: Mapping[str, Any]) -> dict[str, str]:
    """What a size can do, by name."""
    return {str(one.get("name")): str(one.get("value")) for one in sku.get("capabilities") or ()}


def _placement(said: Mapping[str, str], needed: int) -> str:
    """Where so much of an ephemeral disk fits: the cache first, as it costs the task nothing."""
    if said.get("EphemeralOSDiskSupported", "").lower() != "true":
        return ""
    places = said.get("SupportedEphemeralOSDiskPlacements", "").replace(" ", "")
    for placement, key, unit in (
        ("CacheDisk", "CachedDiskBytes", 1), ("ResourceDisk", "MaxResourceVolumeMB", 2**20),
        ("NvmeDisk", "NvmeDiskSizeInMiB", 2**20),
    ):  # fmt: skip
        text = said.get(key, "")
        there = not places or placement in places.split(",")
        if there and text.isdecimal() and int(text) * unit >= needed:
            return placement
    return ""


def told(usages: Iterable[Mapping[str, Any]], families: Iterable[str], region: str) -> tuple[Quota, ...]:
    """The quotas of `families` and of the region. Spot has one of its own for all families together."""
    wanted = {family.lower(): family for family in families}
    on_demand, found = str(Market.ON_DEMAND), []
    for usage in usages:
        name = str((usage.get("name") or {}).get("value") or "")
        if name == _CORES:
            scope = Scope(market=on_demand, region=region)
        elif name == _SPOT_CORES:
            scope = Scope(market=str(Market.SPOT), region=region)
        elif name.lower() in wanted:
            scope = Scope(family=wanted[name.lower()], market=on_demand, region=region)
        else:
            continue
        limit, used = usage.get("limit"), usage.get("currentValue")
        found.append(Quota(name, scope, QuotaUnit.VCPUS, _number(limit), _number(used)))
    return tuple(found)


def _number(said: object) -> int | None:
    return said if isinstance(said, int) else None


def _offered(
    profile: ProfileName, settings: AzureSettings, one: Sold, zone: str, known: Mapping[tuple[str, Market], Price],
    image: Image,
) -> list[Offering]:  # fmt: skip
    full, spot = known.get((one.type.name, Market.ON_DEMAND)), known.get((one.type.name, Market.SPOT))
    kept = settings.scratch if settings.ephemeral else (settings.root_size, *settings.scratch)
    base = Offering(
        profile=profile, type=one.type, zone=zone, market=Market.ON_DEMAND, rate=None, minimum_ms=_MINIMUM_MS,
        boot_ms=settings.boot, region=settings.region, image=image.id, unlisted=image.billed,
        extra_rate=prices.of_extras(settings.region, settings.disk_type, kept, public_address=settings.public_address),
    )  # fmt: skip
    found = []
    if Market.ON_DEMAND in one.markets:
        found.append(base if full is None else replace(base, **_facts(full), max_rate=full.rate))
    if Market.SPOT in one.markets:
        # A bid is for the machine alone; what bounds it with its image is the whole price on demand: spot is no dearer.
        percent = max(100, settings.spot_max_percent) if image.billed else settings.spot_max_percent
        bid = None if full is None else Rate(full.rate * percent // 100)
        found.append(_on_spot(replace(base, market=Market.SPOT, max_rate=bid), full, spot))
    return found


def _on_spot(bidding: Offering, full: Price | None, spot: Price | None) -> Offering:
    """At its price. One that is not told, or is above the bid and launches nothing, counts as not known."""
    if spot is None:
        return bidding
    # The bid is as good as the price that it is a part of.
    facts = _facts(spot) if full is None else {**_facts(spot), "estimated": full.estimated}
    over = bidding.max_rate is not None and spot.rate > bidding.max_rate
    return replace(bidding, **{**facts, "rate": None} if over else facts)


def _facts(price: Price) -> dict[str, Any]:
    return {"rate": price.rate, "priced_ms": price.priced_ms, "estimated": price.estimated}
