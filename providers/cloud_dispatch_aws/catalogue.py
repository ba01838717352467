"""What a profile could rent: types, their zones, prices. Owns the reading of DescribeInstanceTypes and the joining of
it all into offerings; the pure half is functions, `Catalogue` asks and keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import MIB, Resources
from cloud_dispatch.provider import spi
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError
from cloud_dispatch.provider.kept import Kept
from cloud_dispatch_aws import prices
from cloud_dispatch_aws.calls import Calls
from cloud_dispatch_aws.errors import Asked
from cloud_dispatch_aws.images import Image, Images
from cloud_dispatch_aws.prices import Price
from cloud_dispatch_aws.quotas import family_of
from cloud_dispatch_aws.regions import own_zone
from cloud_dispatch_aws.settings import AwsSettings
from cloud_dispatch_aws.subnets import Subnets

_HOUR_MS = 3_600_000
_TYPES_MS, _PRICES_MS, _SPOT_MS = 6 * _HOUR_MS, 12 * _HOUR_MS, 300_000
_PRICES_AGAIN_MS = 600_000
#: EC2 bills Linux by the second, a minute at least.
_MINIMUM_MS = 60_000
#: Types in one question for spot prices.
_AT_ONCE = 100
_NAMES_OF_PRICES = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


@dataclass(frozen=True, slots=True)
class Sold:
    """A type, where there is any of it, and on which markets. `burstable`: its CPUs are paid by credits."""

    type: InstanceType
    zones: frozenset[str]
    markets: frozenset[Market]
    burstable: bool = False


class Catalogue:
    """The offerings of one profile. Types and zones are good for hours, spot prices for minutes."""

    def __init__(
        self, profile: ProfileName, settings: AwsSettings, calls: Calls, images: Images, subnets: Subnets,
        now: Callable[[], int],
    ) -> None:  # fmt: skip
        self._profile = profile
        self._settings = settings
        self._calls = calls
        self._images = images
        self._subnets = subnets
        self._now = now
        self._sold = Kept(self._ask_types, _TYPES_MS, now)
        self._on_demand = Kept(self._ask_prices, lambda found: _PRICES_MS if found else _PRICES_AGAIN_MS, now)
        self._spot = Kept(self._ask_spot, _SPOT_MS, now)

    async def offerings(self) -> tuple[Offering, ...]:
        """All of them, with what is known of their prices."""
        sold, on_demand, zones = await asyncio.gather(self._sold.get(), self.on_demand(), self._subnets.zones())
        spot = await self._spot.get() if self._settings.spot else {}
        images = await self._images_of(sold)
        own = prices.of_settings(self._settings.prices, self._now())
        return tuple(
            offering
            for one in sold
            if (image := images.get(one.type.architecture)) is not None
            for full in ((own if image.billed else on_demand).get(one.type.name),)
            for zone in sorted(one.zones if zones is None else one.zones & zones)
            for offering in _offered(
                self._profile, self._settings, one, zone, full, spot.get((one.type.name, zone)), image
            )
        )

    async def sold(self) -> Sequence[Sold]:
        return await self._sold.get()

    async def burstable(self, type_name: str) -> bool:
        """Whether its CPUs are paid by credits. A type that is sold no more counts as one: EC2 refuses it then, and
        nothing is billed that no limit knows of."""
        return all(one.burstable for one in await self._sold.get() if one.type.name == type_name)

    async def on_demand(self) -> Mapping[str, Price]:
        """Prices by type: what the operator says, else the price list's word, else the embedded table's."""
        listed = await self._on_demand.get()
        return {
            **prices.embedded(self._settings.region),
            **listed,
            **prices.of_settings(self._settings.prices, self._now()),
        }

    async def _images_of(self, sold: Iterable[Sold]) -> Mapping[str, Image]:
        """The image that each architecture would boot; one that has none is not offered."""
        wanted = {one.type.architecture for one in sold} & set(self._settings.images)
        return {name: await self._images.of_architecture(name) for name in sorted(wanted)}

    async def _ask_types(self) -> Sequence[Sold]:
        wanted = [{"Name": "instance-type", "Values": list(self._settings.instance_types)}]
        infos, places = await asyncio.gather(
            self._calls.pages(
                Asked("DescribeInstanceTypes"), "ec2", "describe_instance_types", "InstanceTypes", Filters=wanted
            ),
            self._calls.pages(
                Asked("DescribeInstanceTypeOfferings"), "ec2", "describe_instance_type_offerings",
                "InstanceTypeOfferings", LocationType="availability-zone", Filters=wanted,
            ),
        )  # fmt: skip
        found = sold(infos, places, self._settings)
        if not found:
            raise InvalidRequest(f"instance_types: EC2 sells none of them in {self._settings.region}")
        return found

    async def _ask_prices(self) -> Mapping[str, Price]:
        """The price list's; nothing where it can't be read, so that the table speaks: prices alone stop no VM."""
        if not self._settings.price_list:
            return {}
        try:
            return await self._read_list()
        except ProviderError:
            return {}

    async def _read_list(self) -> Mapping[str, Price]:
        documents = await self._calls.pages(
            Asked("GetProducts"), "pricing", "get_products", "PriceList", ServiceCode="AmazonEC2",
            Filters=prices.price_list_filters(self._settings.region), MaxResults=100,
        )  # fmt: skip
        return prices.of_price_list(documents, self._now())

    async def told(self) -> list[spi.Price]:
        """What AWS says that the types cost now, asked for anew; ProviderError where the list can't be read. Nothing of
        those whose image costs something beside them: it is plain Linux that AWS tells of."""
        sold = await self._sold.get()
        images = await self._images_of(sold)
        names = {
            one.type.name
            for one in sold
            if (image := images.get(one.type.architecture)) is not None and not image.billed
        }
        listed, spot = await asyncio.gather(self._read_list(), self._ask_spot())
        region = self._settings.region
        full = [spi.Price(name, region, Market.ON_DEMAND, one.rate) for name, one in listed.items() if name in names]
        return full + [
            spi.Price(name, zone, Market.SPOT, one.rate) for (name, zone), one in spot.items() if name in names
        ]

    async def _ask_spot(self) -> Mapping[tuple[str, str], Price]:
        names = [one.type.name for one in await self._sold.get() if Market.SPOT in one.markets]
        asked_ms = self._now()
        rows: list[Any] = []
        for start in range(0, len(names), _AT_ONCE):
            rows += await self._calls.pages(
                Asked("DescribeSpotPriceHistory"), "ec2", "describe_spot_price_history", "SpotPriceHistory",
                InstanceTypes=names[start : start + _AT_ONCE], ProductDescriptions=list(_NAMES_OF_PRICES),
                StartTime=asked_ms // 1000, MaxResults=1_000,
            )  # fmt: skip
        return prices.of_spot_history(rows, asked_ms)


def sold(
    infos: Iterable[Mapping[str, Any]], places: Iterable[Mapping[str, Any]], settings: AwsSettings
) -> tuple[Sold, ...]:
    """The types that the settings want, by name, each with the zones that the settings allow and prices are told of."""
    zones: dict[str, set[str]] = {}
    for place in places:
        allowed = not settings.zones or place["Location"] in settings.zones
        if allowed and own_zone(place["Location"], settings.region):
            zones.setdefault(place["InstanceType"], set()).add(place["Location"])
    found = []
    for info in infos:
        name = info["InstanceType"]
        if name in zones and any(fnmatchcase(name, pattern) for pattern in settings.instance_types):
            made = instance_type(info, settings)
            usages = info.get("SupportedUsageClasses", ("on-demand", "spot"))
            if made is not None:
                markets = frozenset(market for market in Market if str(market) in usages)
                bursts = bool(info.get("BurstablePerformanceSupported"))
                found.append(Sold(made, frozenset(zones[name]), markets, bursts))
    return tuple(sorted(found, key=lambda one: one.type.name))


def instance_type(info: Mapping[str, Any], settings: AwsSettings) -> InstanceType | None:
    """A type as DescribeInstanceTypes tells it; None for machines that none of the images can boot."""
    supported = info.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    architecture = next((name for name in settings.images if name in supported), "")
    if not architecture:
        return None
    cards = info.get("GpuInfo", {}).get("Gpus", ())
    return InstanceType(
        name=info["InstanceType"],
        capacity=Resources(
            cpus_milli=info["VCpuInfo"]["DefaultVCpus"] * 1000,
            memory=info["MemoryInfo"]["SizeInMiB"] * MIB,
            disk=sum(settings.scratch) or settings.root_size,
            gpus=sum(card.get("Count", 0) for card in cards),
        ),
        gpu_type=cards[0].get("Name", "").lower() if cards else "",
        gpu_memory=min((card.get("MemoryInfo", {}).get("SizeInMiB", 0) for card in cards), default=0) * MIB,
        architecture=architecture,
        family=family_of(info["InstanceType"]),
    )


def _offered(
    profile: ProfileName, settings: AwsSettings, one: Sold, zone: str, full: Price | None, spot: Price | None,
    image: Image,
) -> list[Offering]:  # fmt: skip
    """`full` and `spot` are of plain Linux; with an image that is billed for, `full` is what the operator says. What
    such an image costs on the spot market is not known at all: a bid is for the machine alone."""
    disks = settings.root_size + sum(settings.scratch) + sum(disk.bytes for disk in image.more_disks)
    base = Offering(
        profile=profile, type=one.type, zone=zone, market=Market.ON_DEMAND, rate=None, minimum_ms=_MINIMUM_MS,
        boot_ms=settings.boot, region=settings.region, image=image.id, unlisted=bool(image.billed),
        extra_rate=prices.of_extras(settings.region, disks, public_address=settings.public_address is not False),
    )  # fmt: skip
    found = []
    if Market.ON_DEMAND in one.markets:
        priced = base if full is None else replace(base, **_facts(full), max_rate=full.rate)
        found.append(priced)
    if image.billed:
        offered = settings.spot and Market.SPOT in one.markets and spot is not None
        return [*found, replace(base, market=Market.SPOT)] if offered else found
    bid = None if full is None else Rate(full.rate * settings.spot_max_percent // 100)
    if settings.spot and Market.SPOT in one.markets and spot is not None and (bid is None or spot.rate <= bid):
        # The bid is as good as the price that it is a part of.
        facts = _facts(spot) if full is None else {**_facts(spot), "estimated": full.estimated}
        found.append(replace(base, **facts, market=Market.SPOT, max_rate=bid))
    return found


def _facts(price: Price) -> dict[str, Any]:
    return {"rate": price.rate, "priced_ms": price.priced_ms, "estimated": price.estimated}
