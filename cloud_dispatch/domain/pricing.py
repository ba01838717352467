"""What an operator says that he pays, by patterns on types. Owns their text, and which of them counts for a type.

The most specific one counts: a name before a pattern, then the one with more letters that are no wildcard. Of two that
are as specific the dearer counts, so that a limit is rather reached too early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cloud_dispatch.domain.money import Rate, TooMuch, parse_rate
from cloud_dispatch.domain.offering import Market

WHOLE = 10_000
_PATTERN = re.compile(r"[A-Za-z0-9_.*?-]+")
_DISCOUNT = re.compile(r"-(\d{1,2})(?:\.(\d{1,2}))?%")


@dataclass(frozen=True, slots=True)
class OwnPrice:
    """A price an hour for the types that match, or a discount on what the provider says: `off` in ten-thousandths.
    Exactly one of them is given. Without a market it is the on-demand price: spot has prices of its own."""

    pattern: str
    rate: Rate | None = None
    off: int = 0
    market: Market = Market.ON_DEMAND

    def covers(self, type_name: str, market: Market) -> bool:
        return market is self.market and fnmatchcase(type_name, self.pattern)

    @property
    def specific(self) -> tuple[bool, int]:
        """The higher, the more it says of a single type."""
        wild = sum(self.pattern.count(sign) for sign in "*?")
        return (not wild, len(self.pattern) - wild)

    def of(self, rate: Rate | None) -> Rate | None:
        """The price where the provider says `rate`, rounded up; None where that is needed and not known."""
        if self.rate is not None:
            return self.rate
        return None if rate is None else Rate(-(-rate * (WHOLE - self.off) // WHOLE))


def parse_own_price(types: str, price: str) -> OwnPrice:
    """`m7i.*` or `spot:m7i.*`, and `0.096` or `-15%`; ValueError that says what was expected."""
    pattern, market = parse_types(types)
    rate, off = parse_price(price)
    return OwnPrice(pattern, rate, off, market)


def parse_types(types: str) -> tuple[str, Market]:
    """Which types on which market."""
    market, colon, pattern = types.rpartition(":")
    if not _PATTERN.fullmatch(pattern) or (colon and market not in list(Market)):
        raise ValueError('expected a type or a pattern, with a market if not on-demand (e.g. "m7i.*", "spot:m7i.*")')
    return pattern, Market(market) if colon else Market.ON_DEMAND


def parse_price(price: str) -> tuple[Rate | None, int]:
    """The price itself, or what is off in ten-thousandths. Nothing is free, and nothing gets dearer by a discount: a
    limit would not hold."""
    found = _DISCOUNT.fullmatch(price.strip())
    off = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else 0
    try:
        rate = None if found else parse_rate(price)
    except TooMuch:
        raise
    except ValueError:
        rate = Rate(0)
    if rate == 0 or (rate is None and not off):
        raise ValueError('expected dollars an hour or a discount as text (e.g. "0.096", "-15%")')
    return rate, off


def chosen(own: Iterable[OwnPrice], type_name: str, market: Market, rate: Rate | None) -> OwnPrice | None:
    """The one that counts for the type, where the provider says `rate`."""
    return max(
        (one for one in own if one.covers(type_name, market)),
        key=lambda one: (one.specific, one.of(rate) or 0),
        default=None,
    )
