"""Which price of an offering counts: its driver's, one that was asked for and kept, or the operator's own. Pure.

- A kept price counts where the driver's is not known, or is of before it; for what bills more than any list says never.
- What the operator says counts as true as long as he says it. A discount keeps the age of what it is taken off.

`max_rate` is what limits are kept by, so that no change here may take it below what can be billed. On demand it is the
price. On the spot market it is the bid, or the provider's own ceiling: a discount leaves it as it is, and so does a
price where it is a bid, since it is what the provider is sent; a price above the bid would launch nothing, and counts
as not known. Elsewhere a higher price lifts it. Where it is not known it stays so, and nothing is launched under a
limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pricing import OwnPrice, chosen
from cloud_dispatch.provider.spi import Price


class Source(StrEnum):
    """Who says a price."""

    DRIVER = "driver"
    STORED = "stored"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Told:
    """What a price service said at `told_ms`."""

    told_ms: int = 0
    prices: tuple[Price, ...] = ()
    _places: dict[tuple[str, Market], list[Price]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for price in self.prices:
            self._places.setdefault((price.type, price.market), []).append(price)
        for alike in self._places.values():  # the narrowest place first; of one that is told twice the dearer price
            alike.sort(key=lambda price: (-len(price.place), -price.rate))

    def rate(self, offering: Offering) -> Rate | None:
        """Its price; None where nothing was said of it."""
        alike = self._places.get((offering.type.name, offering.market), ())
        return next((price.rate for price in alike if _holds(price.place, offering)), None)


def _holds(place: str, offering: Offering) -> bool:
    """Whether what is said of `place` holds for the offering: europe-west1 is not a part of europe-west10."""
    zone = offering.zone
    return place in (zone, offering.region) or (zone.startswith(place) and not zone[len(place)].isdigit())


def priced(
    offering: Offering, own: Iterable[OwnPrice], told: Told, now_ms: int, *, bids: bool
) -> tuple[Offering, Source]:
    """The offering at the price that counts, and who says it. `bids`: a spot machine's `max_rate` is what is bid."""
    listed = not offering.unlisted and told.told_ms <= now_ms
    source, rate = Source.DRIVER, told.rate(offering) if listed else None
    if rate is not None and (offering.rate is None or offering.priced_ms < told.told_ms):
        # a bid is as good as the price that it was made from
        estimated = offering.estimated and offering.market is Market.SPOT
        source, offering = Source.STORED, _at(offering, rate, told.told_ms, bids=bids, estimated=estimated)
    said = chosen(own, offering.type.name, offering.market, offering.rate)
    if said is None:
        return offering, source
    if said.rate is not None:
        return _at(offering, said.rate, now_ms, bids=bids, estimated=False), Source.OPERATOR
    if offering.rate is None:
        return offering, source
    return _discounted(offering, said), Source.OPERATOR


def _at(offering: Offering, rate: Rate, priced_ms: int, *, bids: bool, estimated: bool) -> Offering:
    """The offering at `rate`, true at `priced_ms`."""
    most = offering.max_rate
    if offering.market is Market.ON_DEMAND:
        most = rate
    elif most is not None and bids and rate > most:
        return replace(offering, rate=None, priced_ms=priced_ms)
    elif most is not None:
        most = max(most, rate)
    return replace(offering, rate=rate, max_rate=most, priced_ms=priced_ms, estimated=estimated)


def _discounted(offering: Offering, said: OwnPrice) -> Offering:
    most = said.of(offering.max_rate) if offering.market is Market.ON_DEMAND else offering.max_rate
    return replace(offering, rate=said.of(offering.rate), max_rate=most)


@dataclass(frozen=True, slots=True)
class Change:
    """A price of which the price service says otherwise now; None: nothing was said."""

    type: str
    place: str
    market: Market
    before: Rate | None
    after: Rate | None


def changes(before: Sequence[Price], after: Sequence[Price]) -> list[Change]:
    """What differs, by type, place and market."""
    old, new = _by_what(before), _by_what(after)
    return [Change(*key, old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


def _by_what(prices: Iterable[Price]) -> dict[tuple[str, str, Market], Rate]:
    found: dict[tuple[str, str, Market], Rate] = {}
    for price in prices:
        key = (price.type, price.place, price.market)
        found[key] = max(found.get(key, price.rate), price.rate)
    return found


def plain(told: Told) -> dict[str, Any]:
    """As it is kept: JSON-ready."""
    rows = [[price.type, price.place, str(price.market), price.rate] for price in told.prices]
    return {"version": 1, "told_ms": told.told_ms, "prices": rows}


def read(kept: Mapping[str, Any]) -> Told:
    """What `plain` wrote; ValueError for anything else: half of it could be too cheap."""
    try:
        if kept["version"] != 1:
            raise ValueError("it is of another version")
        told_ms = kept["told_ms"]
        rows = [(kind, place, Market(market), rate) for kind, place, market, rate in kept["prices"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no list of prices: {error!r}") from error
    good = type(told_ms) is int and all(
        isinstance(kind, str) and isinstance(place, str) and type(rate) is int and rate > 0
        for kind, place, _, rate in rows
    )
    if not good:
        raise ValueError("it is no list of prices")
    return Told(told_ms, tuple(Price(kind, place, market, Rate(rate)) for kind, place, market, rate in rows))
