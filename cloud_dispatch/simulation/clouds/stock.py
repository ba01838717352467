"""What can be had: types, their prices, room in each pool, quotas. Owns the counting and the refusals.

Knows a VM only as something that takes a place.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.provider import spi
from cloud_dispatch.provider.errors import CapacityUnavailable, InvalidRequest, QuotaExceeded, Scope
from cloud_dispatch.simulation.clouds.faults import FaultBook, FaultKind
from cloud_dispatch.simulation.clouds.market import Forced, PriceWalk, Tides
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Quota, Sold, Spread
from cloud_dispatch.simulation.ports import Streams

_ENOUGH = 1_000_000


@dataclass(frozen=True, slots=True)
class Pool:
    """A type in a zone on a market: what capacity is counted by."""

    type: InstanceType
    zone: str
    market: Market


class Stock:
    """The shelves of the cloud, as one account sees them."""

    def __init__(self, settings: AccountSettings, book: FaultBook, streams: Streams, born_ms: int) -> None:
        self._settings, self._book, self._streams, self._born_ms = settings, book, streams, born_ms
        self._extra_rate = Rate(sum(extra.rate for extra in settings.extras))
        self._sold = {(sold.type.name, zone): sold for sold in settings.sells for zone in sold.zones}
        self._by_name = {sold.type.name: sold for sold in settings.sells}
        self._walks: dict[tuple[str, str], PriceWalk] = {}
        self._tides: dict[tuple[str, str, Market], Tides] = {}
        self._live: dict[tuple[str, str, Market], int] = {}
        self._vcpus: dict[tuple[str, Market], int] = {}

    def pool(self, type_name: str, zone: str, market: Market) -> Pool:
        """InvalidRequest for what is not sold there."""
        sold = self._sold.get((type_name, zone))
        if sold is None or (market is Market.SPOT and sold.spot_rate is None):
            raise InvalidRequest(f"{type_name} is not sold in {zone} on the {market} market", code="NotSold")
        return Pool(sold.type, zone, market)

    def walk(self, type_name: str, zone: str) -> PriceWalk:
        """The spot price of what `pool` has found to be sold."""
        key = (type_name, zone)
        if key not in self._walks:
            sold, book = self._sold[key], self._book
            forced = Forced(
                [
                    (book.begins_ms(fault), book.ends_ms(fault), fault.amount)
                    for fault in book.of(FaultKind.PRICE)
                    if fault.speaks_of(type_name, zone, Market.SPOT)
                ]
            )
            self._walks[key] = PriceWalk(
                sold.spot_rate or sold.rate, sold.rate, self._settings.spot,
                self._streams.stream("price", self._settings.name, type_name, zone), self._born_ms, forced,
            )  # fmt: skip
        return self._walks[key]

    def ceiling(self, type_name: str, zone: str) -> Rate:
        """The on-demand rate."""
        return self._sold[type_name, zone].rate

    def boot_of(self, type_name: str) -> Spread:
        """How long the type takes from running to its user data."""
        return self._by_name[type_name].boot or self._settings.life.boot

    def offerings(self, profile: ProfileName, now: int) -> list[Offering]:
        """All that is sold for what is paid at most, whether there is room or not: that is learned by asking for it."""
        every = [
            self._offering(profile, sold, zone, market, now)
            for sold in self._settings.sells
            for zone in sold.zones
            for market in ((Market.ON_DEMAND, Market.SPOT) if sold.spot_rate is not None else (Market.ON_DEMAND,))
        ]
        return [own for own in every if own.rate is None or own.max_rate is None or own.rate <= own.max_rate]

    def _offering(self, profile: ProfileName, sold: Sold, zone: str, market: Market, now: int) -> Offering:
        spot = market is Market.SPOT
        rate = self.walk(sold.type.name, zone).rate_at(now) if spot else sold.rate
        most = sold.spot_most if spot and sold.spot_most is not None else sold.rate
        boot_ms = self._settings.life.start.median_ms + self.boot_of(sold.type.name).median_ms
        return Offering(
            profile, sold.type, zone, market, rate, max_rate=most,
            extra_rate=self._extra_rate, minimum_ms=self._settings.minimum_ms,
            increment_ms=self._settings.increment_ms, priced_ms=now, boot_ms=boot_ms, region=self._settings.region,
        )  # fmt: skip

    # -- places

    def take(self, pool: Pool) -> None:
        """One more VM counts."""
        self._count(pool, 1)

    def give_back(self, pool: Pool) -> None:
        """It no longer counts."""
        self._count(pool, -1)

    def _count(self, pool: Pool, change: int) -> None:
        place = (pool.type.name, pool.zone, pool.market)
        self._live[place] = self._live.get(place, 0) + change
        family = (pool.type.family, pool.market)
        self._vcpus[family] = self._vcpus.get(family, 0) + change * pool.type.vcpus

    def room(self, pool: Pool, now: int) -> int:
        """How many more VMs the provider has in the pool."""
        name, zone, market = pool.type.name, pool.zone, pool.market
        most = _ENOUGH
        for room in self._settings.rooms:
            if room.type in ("", name) and room.zone in ("", zone) and room.market in (None, market):
                most = min(most, room.vms)
        fault = self._book.standing(FaultKind.CAPACITY, now, name, zone, market)
        if fault is not None:
            most = min(most, fault.amount)
        if self._tide(pool).dry_at(now):
            most = 0
        return max(most - self._live.get((name, zone, market), 0), 0)

    def _tide(self, pool: Pool) -> Tides:
        key = (pool.type.name, pool.zone, pool.market)
        if key not in self._tides:
            tide = self._settings.tide
            dry = tide.dry_spot if pool.market is Market.SPOT else tide.dry
            self._tides[key] = Tides(tide, dry, self._streams.stream("tide", self._settings.name, *key), self._born_ms)
        return self._tides[key]

    def check_bid(self, pool: Pool, bid: Rate | None, now: int, code: str) -> None:
        """CapacityUnavailable where the spot price is above the bid."""
        rate = self.walk(pool.type.name, pool.zone).rate_at(now)
        if bid is not None and rate > bid:
            raise CapacityUnavailable(
                f"{pool.type.name} in {pool.zone} costs {rate} nano-dollars an hour now, the bid is {bid}",
                code=code,
                scope=Scope(type=pool.type.name, zone=pool.zone, market=pool.market),
            )

    def sold_out(self, pool: Pool, code: str) -> CapacityUnavailable:
        """The refusal for a pool without room."""
        return CapacityUnavailable(
            f"no {pool.type.name} left in {pool.zone} on the {pool.market} market",
            code=code,
            scope=Scope(type=pool.type.name, zone=pool.zone, market=pool.market),
        )

    # -- quotas

    def over_quota(self, pool: Pool, vms: int, now: int, code: str) -> QuotaExceeded | None:
        """The refusal, where `vms` more would exceed a quota of the account."""
        for quota in self._quotas(now):
            if not _counts(quota, pool.type.family, pool.market):
                continue
            used = self._used(quota)
            if used + vms * pool.type.vcpus > quota.vcpus:
                return QuotaExceeded(
                    f"{used} of {quota.vcpus} vCPUs of {_name(quota)} are in use in {self._settings.region}: "
                    f"{vms} more {pool.type.name} are refused",
                    code=code,
                    scope=Scope(region=self._settings.region, family=quota.family, market=quota.market or ""),
                )
        return None

    def told(self, now: int) -> list[spi.Quota]:
        """The limits as the provider tells them."""
        region = self._settings.region
        return [
            spi.Quota(
                _name(quota), Scope(region=region, family=quota.family, market=quota.market or ""),
                spi.QuotaUnit.VCPUS, quota.vcpus, self._used(quota),
            )
            for quota in self._quotas(now)
        ]  # fmt: skip

    def _quotas(self, now: int) -> list[Quota]:
        """The account's, and those that faults impose now (by the family of the type that they name)."""
        quotas = list(self._settings.quotas)
        for fault in self._book.all_standing(FaultKind.QUOTA, now):
            sold = self._by_name.get(fault.type)
            quotas.append(Quota(fault.amount, sold.type.family if sold else "", fault.market))
        return quotas

    def _used(self, quota: Quota) -> int:
        return sum(vcpus for (family, market), vcpus in self._vcpus.items() if _counts(quota, family, market))


def _counts(quota: Quota, family: str, market: Market) -> bool:
    return quota.family in ("", family) and quota.market in (None, market)


def _name(quota: Quota) -> str:
    return f"{quota.family or 'all'}/{quota.market or 'all'}"
