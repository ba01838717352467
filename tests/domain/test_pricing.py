"""What operators say that they pay: how it is written, and which line counts for a type."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pricing import OwnPrice, chosen, parse_own_price


@pytest.mark.parametrize(
    ("types", "price", "expected"),
    [
        ("c7i.large", "0.08", OwnPrice("c7i.large", Rate(80_000_000))),
        ("m7i.*", "-15%", OwnPrice("m7i.*", off=1_500)),
        ("spot:m7i.*", "-2.5%", OwnPrice("m7i.*", off=250, market=Market.SPOT)),
        ("on-demand:Standard_D4s_v5", "$1", OwnPrice("Standard_D4s_v5", Rate(10**9))),
    ],
)
def test_prices_and_discounts_read_as_they_are_meant(types: str, price: str, expected: OwnPrice) -> None:
    """With the market in front where it is not on-demand."""
    assert parse_own_price(types, price) == expected


@pytest.mark.parametrize("price", ["0", "-0%", "15%", "+15%", "-100%", "-1000%", "-15", "free", "", "-1.234%"])
def test_what_would_be_free_or_is_no_price_is_refused(price: str) -> None:
    """A price of nothing would make every limit hold for ever."""
    with pytest.raises(ValueError, match="expected dollars"):
        parse_own_price("m7i.*", price)


@pytest.mark.parametrize("types", ["", ":m7i.*", "spotty:m7i.*", "m7i *", "spot:"])
def test_types_that_are_none_are_refused(types: str) -> None:
    """So that no line is silently of nothing."""
    with pytest.raises(ValueError, match="expected a type"):
        parse_own_price(types, "0.1")


def test_a_discount_is_rounded_against_the_operator() -> None:
    """A nano-dollar too much rather than too little; and of an unknown price there is none."""
    assert OwnPrice("*", off=1).of(Rate(1)) == 1
    assert OwnPrice("*", off=1_500).of(Rate(100)) == 85
    assert OwnPrice("*", off=1_500).of(None) is None


def test_the_most_specific_line_counts_whatever_its_place() -> None:
    """A name before patterns, the longer pattern before the shorter; of equals the dearer."""
    any_, family, name = OwnPrice("*", off=100), OwnPrice("m7i.*", off=200), OwnPrice("m7i.large", off=300)
    for own in ([any_, family, name], [name, family, any_]):
        assert chosen(own, "m7i.large", Market.ON_DEMAND, Rate(100)) == name
        assert chosen(own, "m7i.xlarge", Market.ON_DEMAND, Rate(100)) == family
        assert chosen(own, "c7i.large", Market.ON_DEMAND, Rate(100)) == any_
    equals = [OwnPrice("m7i.?", off=5_000), OwnPrice("m7i.*", off=1_000)]
    for own in (equals, equals[::-1]):
        assert chosen(own, "m7i.l", Market.ON_DEMAND, Rate(100)) == equals[1]


def test_a_line_without_a_market_leaves_spot_alone() -> None:
    """A fixed price for a type would else be taken for its spot price as well."""
    assert chosen([OwnPrice("*", Rate(5))], "t", Market.SPOT, Rate(1)) is None
    spot = OwnPrice("*", off=10, market=Market.SPOT)
    assert chosen([spot], "t", Market.SPOT, Rate(1)) == spot
