"""Simulated accounts made from real offerings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.simulation.clouds.settings import Cloud, Sold, Spread
from cloud_dispatch.simulation.study.accounts import simulated
from cloud_dispatch.simulation.workload.items import BootTime, SpotPrice

P = ProfileName("p")
SMALL = InstanceType("small", Resources(1000, GIB))
BIG = InstanceType("big", Resources(8000, 8 * GIB))


def offering(
    kind: InstanceType = SMALL, zone: str = "a", market: Market = Market.ON_DEMAND, rate: int | None = 100
) -> Offering:
    return Offering(
        P,
        kind,
        zone,
        market,
        None if rate is None else Rate(rate),
        minimum_ms=60_000,
        increment_ms=1_000,
        boot_ms=40_000,
    )


def boot(boot_ms: int, profile: str = "p") -> BootTime:
    return BootTime(ProfileName(profile), "small", "a", Market.ON_DEMAND, boot_ms)


def test_an_account_sells_what_the_profile_offers() -> None:
    """A line a type with its zones and both prices, the billing rules of the offerings, the dialect of the driver."""
    found = simulated(
        P, "gcp", [offering(BIG, rate=800), offering(), offering(zone="b"), offering(market=Market.SPOT, rate=30)]
    )
    boots = Spread(39_800, most_ms=39_800)
    assert found.account.sells == (
        Sold(BIG, ("a",), Rate(800), None, boots),
        Sold(SMALL, ("a", "b"), Rate(100), Rate(30), boots),
    )
    assert (found.account.cloud, found.account.minimum_ms, found.account.increment_ms) == (Cloud.GCE, 60_000, 1_000)
    assert simulated(P, "somebody's", [offering()]).account.cloud is Cloud.EC2


def test_each_zone_asks_its_own_prices() -> None:
    """Those that ask the same are one line. What one has on a single market it has on the other for what the dearest
    asks."""
    spots = [offering(zone=zone, market=Market.SPOT, rate=rate) for zone, rate in (("a", 30), ("b", 90), ("d", 30))]
    fixed = [offering(), offering(zone="b"), offering(zone="c", rate=120), offering(zone="d")]
    found = simulated(P, "aws", [*fixed, *spots, offering(BIG, "e"), offering(BIG, "f", Market.SPOT, 20)])
    assert [(own.type.name, own.zones, own.rate, own.spot_rate) for own in found.account.sells] == [
        ("big", ("e", "f"), 100, 20),
        ("small", ("a", "d"), 100, 30),
        ("small", ("b",), 100, 90),
        ("small", ("c",), 120, 90),
    ]
    assert "spot prices of p stay as they are now for big, small" in found.assumptions
    slow = simulated(P, "aws", [*fixed, replace(offering(BIG), boot_ms=50_000)])
    assert "instances of p boot as its driver expects: small in 40s; all others in 50s" in slow.assumptions


def test_what_is_paid_at_most_on_the_spot_market_is_known() -> None:
    """Where it is not the price on demand; of a trace that may ask more it is told."""
    bids = [replace(offering(market=Market.SPOT, rate=30), max_rate=Rate(most)) for most in (100, 50)]
    full, half = (simulated(P, "aws", [offering(), bid], spot=[SpotPrice(0, "small", "", Rate(60))]) for bid in bids)
    assert (full.account.sells[0].spot_most, half.account.sells[0].spot_most) == (None, 50)
    assert [any("paid at most" in text for text in found.assumptions) for found in (full, half)] == [False, True]


def test_what_has_no_price_is_left_out_and_told() -> None:
    """An unknown price is not free; an account with nothing else is refused."""
    found = simulated(P, "aws", [offering(), offering(BIG, rate=None)])
    assert [sold.type.name for sold in found.account.sells] == ["small"]
    assert "p/big/a/on-demand is left out: its price is not known" in found.assumptions
    with pytest.raises(InvalidInput, match=r"profiles\.p: expected at least one offering with a price"):
        simulated(P, "aws", [offering(rate=None)])


def test_instances_boot_as_said_else_as_recorded_else_as_expected() -> None:
    """What the user says goes first, then this profile's records, then the offering; the guest's own start is in it."""
    records = [boot(10_000), boot(30_000), boot(20_000), boot(99_000, profile="another")]
    assert simulated(P, "aws", [offering()], boots=records, boot_ms=5_000).account.life.boot == Spread(
        4_800, most_ms=4_800
    )
    recorded = simulated(P, "aws", [offering()], boots=records).account.life.boot
    assert (recorded.median_ms, recorded.most_ms) == (19_800, 30_000)
    assert recorded.sigma == pytest.approx(0.4536, abs=1e-4)
    assert simulated(P, "aws", [offering()]).account.sells[0].boot == Spread(39_800, most_ms=39_800)


def test_each_type_boots_as_long_as_was_recorded_of_it() -> None:
    """Many quick small ones do not make a slow type quick, nor is there a type that boots as no machine ever did. What
    was never seen boots as all that were."""
    seen = [boot(10_000), boot(12_000), boot(14_000), replace(boot(600_000), type="big")]
    new = replace(offering(), type=replace(offering().type, name="new"))
    found = simulated(P, "aws", [offering(), offering(BIG), new], boots=seen)
    small, big = ({sold.type.name: sold.boot for sold in found.account.sells}[name] for name in ("small", "big"))
    assert small is not None
    assert (small.median_ms, small.most_ms) == (11_800, 14_000)
    assert big == Spread(599_800, 0.0, 600_000)
    assert [sold.boot for sold in found.account.sells if sold.type.name == "new"] == [None]
    assert (found.account.life.boot.median_ms, found.boot_ms("new")) == (11_800, 600_200)
    (told,) = (text for text in found.assumptions if "boot as" in text)
    assert told == (
        "instances of p boot as recorded: big 10m in the middle, 10m at most (of 1); small 12s in the middle, 14s at"
        " most (of 3); all others 12s in the middle, 10m at most (of 4)"
    )


def test_each_type_boots_as_long_as_is_expected_of_it() -> None:
    """A slow type that is sold beside it makes no other one slower; what is said of all holds for all."""
    slow = replace(offering(BIG), boot_ms=7_200_000)
    found = simulated(P, "aws", [offering(), slow])
    assert {sold.type.name: sold.boot and sold.boot.median_ms for sold in found.account.sells} == {
        "small": 39_800,
        "big": 7_199_800,
    }
    assert "instances of p boot as its driver expects: small in 40s; all others in 2h" in found.assumptions
    assert all(sold.boot is None for sold in simulated(P, "aws", [offering(), slow], boot_ms=5_000).account.sells)


def test_disks_and_addresses_bill_beside_each_instance() -> None:
    """As one thing of their price together; the dearest where they differ, and that is told."""
    found = simulated(P, "aws", [replace(offering(), extra_rate=Rate(7)), replace(offering(BIG), extra_rate=Rate(9))])
    assert [extra.rate for extra in found.account.extras] == [9]
    assert "disks and addresses of p cost with every instance what they do with the dearest" in found.assumptions
    assert not simulated(P, "aws", [offering()]).account.extras
    unsold = replace(offering(BIG, rate=None), extra_rate=Rate(9))
    assert not simulated(P, "aws", [offering(), unsold]).account.extras


def test_one_recorded_boot_time_is_the_boot_time() -> None:
    """Without a second record there is no spread."""
    assert simulated(P, "aws", [offering()], boots=[boot(10_000)]).account.life.boot == Spread(9_800, 0.0, 10_000)


def test_a_trace_becomes_prices_from_one_moment_to_the_next() -> None:
    """By type and zone; types that are not sold as spot are passed over; the last price holds for ever."""
    trace = [
        SpotPrice(0, "small", "a", Rate(10)),
        SpotPrice(0, "small", "b", Rate(11)),
        SpotPrice(5, "small", "a", Rate(12)),
        SpotPrice(5, "big", "a", Rate(13)),
    ]
    sold = [offering(), offering(zone="b"), offering(market=Market.SPOT, rate=30), offering(BIG)]
    found = simulated(P, "aws", sold, spot=trace)
    assert [(own.zone, own.from_ms, own.until_ms, own.amount) for own in found.prices] == [
        ("a", 0, 5, 10),
        ("a", 5, 0, 12),
        ("b", 0, 0, 11),
    ]


def test_prices_of_all_zones_and_of_one_follow_each_other() -> None:
    """The latest that speaks of a zone holds there, and of two of one moment that of the zone itself."""
    trace = [
        SpotPrice(0, "small", "", Rate(10)),
        SpotPrice(0, "small", "b", Rate(11)),
        SpotPrice(5, "small", "a", Rate(12)),
        SpotPrice(9, "small", "", Rate(13)),
    ]
    found = simulated(P, "aws", [offering(), offering(zone="b"), offering(market=Market.SPOT, rate=30)], spot=trace)
    assert [(own.zone, own.from_ms, own.until_ms, own.amount) for own in found.prices] == [
        ("a", 0, 5, 10),
        ("a", 5, 9, 12),
        ("a", 9, 0, 13),
        ("b", 0, 9, 11),
        ("b", 9, 0, 13),
    ]


def test_a_zone_without_a_row_keeps_its_price() -> None:
    """The commonest trace is of some zones; of the others it is told."""
    trace = [SpotPrice(0, "small", "a", Rate(10)), SpotPrice(0, "small", "elsewhere", Rate(11))]
    found = simulated(P, "aws", [offering(), offering(zone="b"), offering(market=Market.SPOT, rate=30)], spot=trace)
    assert [(own.zone, own.amount) for own in found.prices] == [("a", 10)]
    assert "spot prices of p stay as they are now for small/b: the trace has none" in found.assumptions


def test_a_trace_of_other_zones_is_none() -> None:
    """It is not said to be followed."""
    trace = [SpotPrice(0, "small", "elsewhere", Rate(10))]
    found = simulated(P, "aws", [offering(), offering(market=Market.SPOT, rate=30)], spot=trace)
    assert not found.prices
    assert "spot prices of p stay as they are now for small: the trace has none" in found.assumptions


def test_without_a_trace_spot_prices_stand_still_and_that_is_told() -> None:
    """No price walk is invented."""
    found = simulated(P, "aws", [offering(), offering(market=Market.SPOT, rate=30)])
    assert found.account.spot.swing == 0
    assert "spot prices of p stay as they are now for small" in found.assumptions
