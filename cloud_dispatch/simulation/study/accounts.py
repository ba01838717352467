"""Simulated accounts that sell what the configuration's profiles do. Owns how real offerings, recorded boot times and
traces of spot prices become an account's settings, and what is assumed on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low, pstdev

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.provider.spi import LeftoverKind
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Extra, Life, Mishaps, Sold, Spot, Spread
from cloud_dispatch.simulation.workload.items import BootTime, SpotPrice

#: Whose way an account has, by the driver of its profile; any other: EC2's.
DIALECTS: Mapping[str, Cloud] = {"aws": Cloud.EC2, "gcp": Cloud.GCE, "azure": Cloud.ARM}
#: From its user data to its first word a simulated guest takes so long: part of what counts as boot time.
_GUEST_MS = 200
#: From the order to end, or the guest's power-off, until it is gone: process trees take less than clouds do (measured:
#: 0.3 to 0.4 s).
_STOPS: Mapping[str, Spread] = {"local": Spread(400, most_ms=400)}
_STOP = Spread(10_000, most_ms=10_000)
#: A step of the spot market; a trace is followed step by step.
_STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class SimulatedProfile:
    """A profile's account, the faults that carry its spot prices, and what was assumed to make it."""

    account: AccountSettings
    prices: tuple[Fault, ...] = ()
    assumptions: tuple[str, ...] = ()

    def boot_ms(self, type_name: str) -> int:
        """How long the type takes at most from its launch to its registration."""
        booting = next(sold.boot for sold in self.account.sells if sold.type.name == type_name)
        return (booting or self.account.life.boot).longest_ms + _GUEST_MS

    def sells(self, offering: Offering) -> bool:
        """Whether this can be had: what is known of no price, or sold as spot only, can't."""
        return offering.rate is not None and any(sold.type.name == offering.type.name for sold in self.account.sells)


@dataclass(frozen=True, slots=True)
class _Boots:
    """How long instances boot, and how that is known."""

    spread: Spread
    words: str = ""


def simulated(
    profile: ProfileName,
    driver: str,
    offerings: Sequence[Offering],
    *,
    boots: Sequence[BootTime] = (),
    boot_ms: int | None = None,
    spot: Sequence[SpotPrice] = (),
    rents_spot: bool = True,
) -> SimulatedProfile:
    """An account of `profile` that sells `offerings`, has room for everything, and never fails.

    Instances boot in `boot_ms` where it is given, else as those of `boots` of their type did, else as all that are the
    profile's, else as the offerings expect. Without `rents_spot` nobody asks for its spot prices. InvalidInput when
    there is nothing with a price to sell.
    """
    told: list[str] = []
    recorded = _recorded(profile, boots) if boot_ms is None else {}
    boot = recorded.get("") if boot_ms is None else _Boots(_steady(boot_ms - _GUEST_MS))
    sells = _sells(profile, offerings, told, recorded, booting=boot is None)
    if boot is None:
        told += _expected_boots(profile, sells)
    elif boot_ms is None:
        told.append(_recorded_boots(profile, recorded, sells))
    else:
        told.append(f"instances of {profile} boot in {format_duration(boot_ms)}")
    first, stop = offerings[0], _STOPS.get(driver, _STOP)
    told.append(f"instances of {profile} take {format_duration(stop.median_ms)} to end")
    told.append(
        f"{profile} has room for all that its caps and quotas admit, every boot succeeds, and no spot instance is taken"
        " back for want of room"
    )
    account = AccountSettings(
        name=profile,
        cloud=DIALECTS.get(driver, Cloud.EC2),
        sells=sells,
        region=first.region or "region-1",
        spot=Spot(step_ms=_STEP_MS, swing=0.0),
        life=Life(start=Spread(0), boot=boot.spread if boot else Spread(0), stop=stop),
        mishaps=Mishaps(drift_ppm=0),
        latency=Spread(5, most_ms=5),
        minimum_ms=first.minimum_ms,
        increment_ms=max(first.increment_ms, 1),
        extras=_extras(profile, sells, offerings, told),
    )
    prices = _prices(profile, sells, spot, told) if rents_spot else []
    return SimulatedProfile(account, tuple(prices), tuple(told))


def _extras(
    profile: ProfileName, sells: Sequence[Sold], offerings: Sequence[Offering], told: list[str]
) -> tuple[Extra, ...]:
    """The disks and addresses that bill beside each VM, as one thing of their price together."""
    sold = {own.type.name for own in sells}
    rates = {own.extra_rate for own in offerings if own.rate is not None and own.type.name in sold}
    if len(rates) > 1:
        told.append(f"disks and addresses of {profile} cost with every instance what they do with the dearest")
    return (Extra(LeftoverKind.DISK, max(rates)),) if any(rates) else ()


def _sells(
    profile: ProfileName,
    offerings: Sequence[Offering],
    told: list[str],
    recorded: Mapping[str, _Boots],
    *,
    booting: bool,
) -> tuple[Sold, ...]:
    """A line for each type and the zones that ask the same prices. A type boots as `recorded` says of it; with
    `booting` as long as its offerings expect."""
    by_type: dict[str, list[Offering]] = {}
    for offering in offerings:
        if offering.rate is None:
            told.append(f"{offering.key} is left out: its price is not known")
        else:
            by_type.setdefault(offering.type.name, []).append(offering)
    sells = []
    for name, found in sorted(by_type.items()):
        if all(own.market is Market.SPOT for own in found):
            told.append(f"{profile}/{name} is left out: it is sold as spot only")
            continue
        known = recorded.get(name)
        boot = _steady(max(own.boot_ms for own in found) - _GUEST_MS) if booting else known.spread if known else None
        for (rate, spot_rate, most), zones in _by_price(found).items():
            sells.append(Sold(found[0].type, zones, rate, spot_rate, boot, most))
    if not sells:
        raise InvalidInput("expected at least one offering with a price", place=f"profiles.{profile}")
    return tuple(sells)


def _by_price(found: Sequence[Offering]) -> dict[tuple[Rate, Rate | None, Rate | None], tuple[str, ...]]:
    """The zones of one type by their prices: on demand, on the spot market, and what is paid there at most. What a zone
    has on one market alone it has on the other one for what the dearest zone asks."""
    known = sorted(found, key=lambda own: own.rate or 0)
    fixed, spot = ([own for own in known if own.market is market] for market in (Market.ON_DEMAND, Market.SPOT))
    by_price: dict[tuple[Rate, Rate | None, Rate | None], tuple[str, ...]] = {}
    for zone in sorted({own.zone for own in found}):
        full = next((own for own in fixed if own.zone == zone), fixed[-1])
        other = next((own for own in spot if own.zone == zone), spot[-1] if spot else None)
        assert full.rate is not None
        prices = full.rate, *(_spot_prices(other, full.rate) if other else (None, None))
        by_price[prices] = (*by_price.get(prices, ()), zone)
    return by_price


def _spot_prices(offering: Offering, full: Rate) -> tuple[Rate | None, Rate | None]:
    """What it costs, and what is paid at most where that is not `full`."""
    return offering.rate, None if offering.max_rate == full else offering.max_rate


def _recorded(profile: ProfileName, boots: Sequence[BootTime]) -> Mapping[str, _Boots]:
    """From the launch to the guest's user data, by type, and under "" of all types; nothing where nothing is known."""
    known: dict[str, list[int]] = {}
    for boot in boots:
        if boot.profile == profile and boot.boot_ms > 0:
            for name in ("", boot.type):
                known.setdefault(name, []).append(boot.boot_ms)
    return {name: _spread(times) for name, times in sorted(known.items())}


def _spread(times: Sequence[int]) -> _Boots:
    middle, longest = median_low(times), max(times)
    sigma = pstdev([math.log(value) for value in times])
    words = f"{format_duration(middle)} in the middle, {format_duration(longest)} at most"
    return _Boots(Spread(max(middle - _GUEST_MS, 0), round(sigma, 4), longest), f"{words} (of {len(times)})")


def _recorded_boots(profile: ProfileName, recorded: Mapping[str, _Boots], sells: Sequence[Sold]) -> str:
    """In words, of the types that are sold."""
    names = sorted({sold.type.name for sold in sells})
    texts = [f"{name} {recorded[name].words}" for name in names if name in recorded]
    if len(texts) < len(names):
        texts.append(f"{'all others' if texts else 'all types'} {recorded[''].words}")
    return f"instances of {profile} boot as recorded: {'; '.join(texts)}"


def _steady(milliseconds: int) -> Spread:
    """Always as long."""
    return Spread(max(milliseconds, 0), most_ms=max(milliseconds, 0))


def _expected_boots(profile: ProfileName, sells: Sequence[Sold]) -> list[str]:
    """In words, types that take as long together."""
    by_time: dict[int, list[str]] = {}
    for sold in sells:
        assert sold.boot is not None
        names = by_time.setdefault(sold.boot.median_ms + _GUEST_MS, [])
        if sold.type.name not in names:  # its zones may be several lines
            names.append(sold.type.name)
    if len(by_time) == 1:
        return [f"instances of {profile} boot in {format_duration(*by_time)}, as its driver expects"]
    fewest = sorted(by_time.items(), key=lambda entry: (len(entry[1]), entry[0]))
    texts = [f"{', '.join(names)} in {format_duration(after)}" for after, names in sorted(fewest[:-1])]
    texts.append(f"all others in {format_duration(fewest[-1][0])}")
    return [f"instances of {profile} boot as its driver expects: {'; '.join(texts)}"]


def _prices(profile: ProfileName, sells: Sequence[Sold], spot: Sequence[SpotPrice], told: list[str]) -> list[Fault]:
    """The trace as prices that are demanded from one of its moments to the next of the same type and zone."""
    zones: dict[str, tuple[str, ...]] = {}
    for own in sells:
        if own.spot_rate is not None:
            zones[own.type.name] = (*zones.get(own.type.name, ()), *own.zones)
    by_type: dict[str, list[SpotPrice]] = {}
    for price in spot:
        if price.type in zones and (not price.zone or price.zone in zones[price.type]):
            by_type.setdefault(price.type, []).append(price)
    demanded: list[Fault] = []
    missing = sorted(zones.keys() - by_type.keys())
    for kind, prices in by_type.items():
        everywhere = not any(price.zone for price in prices)
        for zone in ("",) if everywhere else zones[kind]:
            of_zone = [price for price in prices if price.zone in ("", zone)]
            if of_zone:
                demanded += _demands(kind, zone, of_zone)
            else:
                missing.append(f"{kind}/{zone}")
    if missing:
        why = ": the trace has none" if spot else ""
        told.append(f"spot prices of {profile} stay as they are now for {', '.join(missing)}{why}")
    if demanded:
        told.append(
            f"spot prices of {profile} follow the trace in steps of {format_duration(_STEP_MS)}, never above those on"
            " demand; its first moment is the run's first, its last prices hold for ever"
        )
        if any(own.spot_most is not None and own.spot_most < own.rate for own in sells):
            told.append(
                f"spot instances of {profile} are taken back where the trace asks more than is paid at most, and none"
                " is had there for as long"
            )
    return demanded


def _demands(kind: str, zone: str, prices: Sequence[SpotPrice]) -> list[Fault]:
    """`prices`, in order of time, one after the other; of two of one moment that of the zone itself."""
    at = {price.at_ms: price for price in sorted(prices, key=lambda price: (price.at_ms, price.zone))}
    ends = [*list(at)[1:], 0]
    return [
        Fault(
            FaultKind.PRICE, type=kind, zone=zone, market=Market.SPOT, from_ms=price.at_ms, until_ms=until,
            amount=price.rate,
        )
        for price, until in zip(at.values(), ends, strict=True)
    ]  # fmt: skip
