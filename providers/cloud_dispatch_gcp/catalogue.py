"""What a profile could rent: types, their zones, prices. Owns the reading of machine types and the joining of it all
into offerings; the pure half is functions, `Catalogue` asks and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlencode

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import MIB, Resources
from cloud_dispatch.provider import spi
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError, Transient
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch_gcp import machines, prices, translate
from cloud_dispatch_gcp.calls import MAX_PAGES, Calls
from cloud_dispatch_gcp.errors import Asked
from cloud_dispatch_gcp.images import Image, Images
from cloud_dispatch_gcp.prices import Made, Price, Rates
from cloud_dispatch_gcp.settings import GIB, GcpSettings, region_of

_HOUR_MS = 3_600_000
_TYPES_MS, _PRICES_MS = 6 * _HOUR_MS, 12 * _HOUR_MS
_PRICES_AGAIN_MS = 600_000
#: Compute Engine bills by the second, a minute at least.
_MINIMUM_MS = 60_000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Sold:
    """A type, what it is made of, and where there is any of it."""

    type: InstanceType
    made: Made
    zones: frozenset[str]


@dataclass(frozen=True, slots=True)
class PriceList:
    """Google's rates, None where they were not asked for or could not be read: then `refused` says why."""

    rates: Rates | None = None
    refused: ProviderError | None = None


class Catalogue:
    """The offerings of one profile. Types, zones and prices are good for hours."""

    def __init__(
        self, profile: ProfileName, settings: GcpSettings, calls: Calls, images: Images, now: Callable[[], int]
    ) -> None:
        self._profile = profile
        self._settings = settings
        self._calls = calls
        self._images = images
        self._now = now
        self._sold = Kept(self._ask_types, _TYPES_MS, now)
        self._list = Kept(self._ask_prices, lambda found: _PRICES_AGAIN_MS if found.refused else _PRICES_MS, now)

    async def offerings(self) -> tuple[Offering, ...]:
        """All of them, with what is known of their prices."""
        sold, listed = await asyncio.gather(self._sold.get(), self._list.get())
        wanted = {one.type.architecture for one in sold} & set(self._settings.images)
        images = {name: await self._images.found(name) for name in sorted(wanted)}
        return tuple(
            offering
            for one in sold
            if one.type.architecture in images
            for zone in sorted(one.zones)
            for offering in self._offered(one, zone, listed.rates, images[one.type.architecture])
        )

    async def sold(self) -> Sequence[Sold]:
        return await self._sold.get()

    async def unpriced(self) -> ProviderError | None:
        """Why Google's own prices are not known; None where they are, or are not wanted."""
        return (await self._list.get()).refused

    async def told(self) -> list[spi.Price]:
        """What Google says that the types cost now, asked for anew; ProviderError where the catalogue can't be read."""
        sold, rates = await asyncio.gather(self._sold.get(), self._read())
        markets = list(Market) if self._settings.spot else [Market.ON_DEMAND]
        found = [
            (one.type.name, region, market, prices.price(one.made, region, market, rates))
            for one in sold
            for region in sorted({region_of(zone) for zone in one.zones})
            for market in markets
        ]
        return [spi.Price(name, region, market, one.rate) for name, region, market, one in found if one is not None]

    def _offered(self, one: Sold, zone: str, rates: Rates | None, image: Image) -> list[Offering]:
        """Lists are of machines alone: with an image that bills too only the operator knows what both cost."""
        settings, region = self._settings, region_of(zone)
        disk_type = machines.disk_type_of(one.type.name, settings.disk_type)
        base = Offering(
            profile=self._profile, type=one.type, zone=zone, market=Market.ON_DEMAND, rate=None,
            minimum_ms=_MINIMUM_MS, boot_ms=settings.boot, region=region, image=image.link,
            unlisted=bool(image.billed),
            extra_rate=prices.of_extras(
                region, disk_type, settings.root_size, settings.local_ssds, public_address=settings.public_address
            ),
        )  # fmt: skip
        listed = None if image.billed else _listed(one, region, rates)
        said = settings.prices.get(one.type.name)
        full = listed if said is None else Price(Rate(said), self._now())
        found = [base if full is None else replace(base, **_facts(full), max_rate=full.rate)]
        if settings.spot:
            spot = prices.price(one.made, region, Market.SPOT, rates) if rates else None
            priced = base
            if spot is not None and listed is not None:
                # There is no bid: spot costs at most what the list says on demand, by Google's word. What the operator
                # pays on demand was agreed for that alone.
                priced = replace(base, **_facts(spot), max_rate=max(listed.rate, spot.rate))
            found.append(replace(priced, market=Market.SPOT))
        return found

    async def _ask_types(self) -> Sequence[Sold]:
        zones = await self._zones()
        found = await asyncio.gather(*(self._types_of(zone) for zone in zones))
        cards: list[frozenset[str]] = [frozenset()] * len(zones)
        if self._settings.accelerators:
            cards = list(await asyncio.gather(*(self._cards_of(zone) for zone in zones)))
        sold_ = sold(dict(zip(zones, found, strict=True)), dict(zip(zones, cards, strict=True)), self._settings)
        if not sold_:
            raise InvalidRequest(f"instance_types: none of them is sold in {', '.join(self._settings.regions)}")
        return sold_

    async def _zones(self) -> list[str]:
        pages = await self._calls.pages(Asked("zones.list"), "Zones", "list", max_results=_PAGE)
        settings = self._settings
        found = sorted(
            one.name
            for page in pages
            for one in page.items
            if region_of(one.name) in settings.regions and (not settings.zones or one.name in settings.zones)
        )
        if not found:
            raise InvalidRequest(f"regions: there are no zones of {', '.join(settings.regions)}")
        return found

    async def _types_of(self, zone: str) -> list[Any]:
        pages = await self._calls.pages(
            Asked("machineTypes.list"), "MachineTypes", "list", zone=zone, max_results=_PAGE
        )
        return [one for page in pages for one in page.items]

    async def _cards_of(self, zone: str) -> frozenset[str]:
        pages = await self._calls.pages(
            Asked("acceleratorTypes.list"), "AcceleratorTypes", "list", zone=zone, max_results=_PAGE
        )
        return frozenset(one.name for page in pages for one in page.items)

    async def _ask_prices(self) -> PriceList:
        """The catalogue's; none where it can't be read, so that the table speaks: prices alone stop no VM."""
        if not self._settings.price_list:
            return PriceList()
        try:
            return PriceList(await self._read())
        except ProviderError as error:
            return PriceList(refused=error)

    async def _read(self) -> Rates:
        skus: list[Any] = []
        more = ""
        for _ in range(MAX_PAGES):
            page = await self._calls.rest(Asked("skus.list"), prices.HOST, prices.PATH + more)
            skus += page.get("skus", ())
            token = page.get("nextPageToken", "")
            if not token:
                return prices.of_catalogue(skus, self._now())
            more = "&" + urlencode({"pageToken": token})
        raise Transient(f"skus.list: no end after {MAX_PAGES} pages")


def _listed(one: Sold, region: str, rates: Rates | None) -> Price | None:
    """What a type costs everybody on demand: the catalogue's word, else the embedded table's."""
    said = prices.price(one.made, region, Market.ON_DEMAND, rates) if rates else None
    return said or prices.price(one.made, region, Market.ON_DEMAND, prices.embedded(region))


def sold(
    found: Mapping[str, Iterable[Any]], cards: Mapping[str, frozenset[str]], settings: GcpSettings
) -> tuple[Sold, ...]:
    """The types that the settings want, by name, each with its zones. `found`: machine types by zone, `cards`: the GPUs
    that can be attached there. Custom types are in no list: they are sold where their family is."""
    known: dict[str, tuple[InstanceType, Made]] = {}
    zones: dict[str, set[str]] = {}
    customs = [name for name in settings.instance_types if machines.custom(name)]
    for zone, types in found.items():
        families = set()
        for one in types:
            families.add(machines.family_of(one.name))
            if any(fnmatchcase(one.name, pattern) for pattern in settings.instance_types):
                _add(known, zones, zone, made_of(one, settings), one.architecture, cards[zone], settings)
        for name in customs:
            own = machines.custom(name)
            if own is not None and own.family in families:
                kind, count = translate.accelerators(name, settings)
                made = Made(name, own.cpus, own.memory_mib, _billed(kind), count)
                _add(known, zones, zone, made, "", cards[zone], settings)
    return tuple(Sold(*known[name], frozenset(zones[name])) for name in sorted(known))


def _add(
    known: dict[str, tuple[InstanceType, Made]], zones: dict[str, set[str]], zone: str, made: Made, architecture: str,
    cards: frozenset[str], settings: GcpSettings,
) -> None:  # fmt: skip
    attached = translate.accelerators(made.name, settings)[0]
    kind = machines.architecture_of(made.name, architecture)
    if (not attached or attached in cards) and kind in settings.images:
        known[made.name] = (instance_type(made, kind, settings), made)
        zones.setdefault(made.name, set()).add(zone)


def made_of(one: Any, settings: GcpSettings) -> Made:
    """A machine type as Google shows it, with the GPUs that come with it or are attached."""
    kind, count = translate.accelerators(one.name, settings)
    if one.accelerators:
        kind, count = one.accelerators[0].guest_accelerator_type, one.accelerators[0].guest_accelerator_count
    disks = one.bundled_local_ssds.partition_count > 0
    return Made(one.name, one.guest_cpus, one.memory_mb, _billed(kind), count, extras=disks)


def instance_type(made: Made, architecture: str, settings: GcpSettings) -> InstanceType:
    card = machines.billed_gpu(made.gpu)
    return InstanceType(
        name=made.name,
        capacity=Resources(
            cpus_milli=made.cpus * 1000, memory=made.memory_mib * MIB, disk=translate.disk_bytes(settings),
            gpus=made.gpus,
        ),
        gpu_type=card.name,
        gpu_memory=card.gib * GIB,
        architecture=architecture,
        family=machines.quota_of(made.name),
    )  # fmt: skip


def _billed(vendor: str) -> str:
    return machines.gpu(vendor).billed if vendor else ""


def _facts(price: Price) -> dict[str, Any]:
    return {"rate": price.rate, "priced_ms": price.priced_ms, "estimated": price.estimated}
