"""Which price of an offering counts, what limits are then kept by, and how prices are kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pricing import OwnPrice
from cloud_dispatch.provider.lacking import Lacking
from cloud_dispatch.provider.pricebook import Source, Told, changes, plain, priced, read
from cloud_dispatch.provider.priced import FILE, PRICED_AT_ONCE, Priced, load, save
from cloud_dispatch.provider.spi import Price, Traits
from tests.reconcile.examples import NOW, offering

DAY = 86_400_000
SPOT = Market.SPOT


def told(rate: int, at_ms: int = NOW, place: str = "z", market: Market = Market.ON_DEMAND, kind: str = "t") -> Told:
    return Told(at_ms, (Price(kind, place, market, Rate(rate)),))


def at(one: Offering, *own: OwnPrice, of: Told | None = None, bids: bool = False) -> tuple[Offering, Source]:
    return priced(one, own, of or Told(), NOW, bids=bids)


@pytest.mark.parametrize(
    ("driver", "said", "counts"),
    [
        (offering(rate=100, priced_ms=NOW - DAY), told(90, NOW - 1), 90),  # older
        (replace(offering(), rate=None, priced_ms=0), told(90, NOW - DAY), 90),  # not known
        (offering(rate=100, priced_ms=NOW - DAY, estimated=True), told(90, NOW - 1), 90),  # a table's
        (offering(rate=100, priced_ms=NOW), told(90, NOW - DAY), 100),  # the driver's is of after it
        (offering(rate=100, priced_ms=NOW - DAY), told(90, NOW + 1), 100),  # from the future: no clock says when
        (offering(rate=100, priced_ms=NOW - DAY), told(90, NOW - 1, kind="u"), 100),
        (offering(rate=100, priced_ms=NOW - DAY), told(90, NOW - 1, market=SPOT), 100),
    ],
)  # fmt: skip
def test_a_kept_price_counts_where_the_drivers_is_unknown_or_of_before(
    driver: Offering, said: Told, counts: int
) -> None:
    """And is then as old as it is, and no estimate; limits are kept by the same price."""
    found, source = at(driver, of=said)
    assert (found.rate, source) == (counts, Source.DRIVER if counts == 100 else Source.STORED)
    if source is Source.STORED:
        assert (found.priced_ms, found.highest_rate, found.estimated) == (said.told_ms, 90, False)
    else:
        assert found is driver


def test_what_bills_more_than_a_list_says_costs_what_the_operator_says_alone() -> None:
    """A kept price would be too low, and a discount has nothing that it could be taken off."""
    driver = replace(offering(), rate=None, priced_ms=0, unlisted=True)
    discount, price = OwnPrice("*", off=500), OwnPrice("t", Rate(150))
    assert at(driver, of=told(90)) == (driver, Source.DRIVER)
    assert at(driver, discount, of=told(90)) == (driver, Source.DRIVER)
    found, source = at(driver, price, of=told(90))
    assert (found.rate, found.highest_rate, source) == (150, 150, Source.OPERATOR)
    own = replace(driver, rate=Rate(200), max_rate=Rate(200), priced_ms=NOW - DAY)
    assert at(own, of=told(90, NOW - 1)) == (own, Source.DRIVER)


@pytest.mark.parametrize(
    ("zone", "place", "holds"),
    [
        ("us-east-1a", "us-east-1", True), ("us-east-1a", "us-east-1b", False),
        ("europe-west1-b", "europe-west1", True),
        ("europe-west10-b", "europe-west1", False), ("eastus2-1", "eastus", False), ("z", "z", True), ("z", "", True),
    ],
)  # fmt: skip
def test_a_price_holds_for_the_zones_of_its_region_alone(zone: str, place: str, holds: bool) -> None:
    """A region whose name begins with another one's is another region, and its prices are others."""
    found, _ = at(offering(zone=zone, rate=100, priced_ms=0), of=told(90, place=place))
    assert (found.rate == 90) is holds


def test_the_narrowest_place_counts_and_of_one_told_twice_the_dearer_price() -> None:
    """A zone's own price before its region's."""
    rows = [("us-east-1", 50), ("us-east-1a", 90), ("us-east-1a", 95)]
    said = Told(NOW, tuple(Price("t", place, Market.ON_DEMAND, Rate(rate)) for place, rate in rows))
    assert said.rate(offering(zone="us-east-1a")) == 95
    assert said.rate(offering(zone="us-east-1b")) == 50


def test_what_the_operator_says_counts_as_true_now() -> None:
    """Whatever the driver and the price service say, and limits are kept by it."""
    found, source = at(offering(rate=100, priced_ms=1, estimated=True), OwnPrice("t", Rate(120)), of=told(90))
    assert (found.rate, found.highest_rate, found.priced_ms, source) == (120, 120, NOW, Source.OPERATOR)
    assert not found.estimated
    unknown = replace(offering(), rate=None, max_rate=None, priced_ms=0)
    assert at(unknown, OwnPrice("t", Rate(120)))[0].highest_rate == 120


def test_a_discount_keeps_the_age_and_makes_no_price_of_none() -> None:
    """Fifteen percent off a price of last year is still a price of last year, and off an estimate an estimate."""
    old = offering(rate=100, max_rate=Rate(100), priced_ms=NOW - 300 * DAY, estimated=True)
    found, _ = at(old, OwnPrice("*", off=1_500))
    assert (found.rate, found.highest_rate, found.priced_ms, found.estimated) == (85, 85, old.priced_ms, True)
    unknown = replace(offering(), rate=None, priced_ms=0)
    assert at(unknown, OwnPrice("*", off=1_500)) == (unknown, Source.DRIVER)
    assert at(old, OwnPrice("*", off=1_500), of=told(200))[0].rate == 170  # off the price that counts


@pytest.mark.parametrize("bids", [True, False])
def test_nothing_takes_what_a_spot_machine_may_cost_below_its_bid_or_ceiling(bids: bool) -> None:
    """A discount is no promise of how the market goes: the bid that the provider is sent is what can be billed."""
    spot = offering(rate=30, max_rate=Rate(100), market=SPOT)
    for own in (OwnPrice("*", off=5_000, market=SPOT), OwnPrice("*", Rate(10), market=SPOT)):
        assert at(spot, own, bids=bids)[0].highest_rate == 100
    assert at(replace(spot, priced_ms=1), of=told(20, market=SPOT), bids=bids)[0].highest_rate == 100


def test_a_spot_price_above_the_bid_is_not_known_and_above_a_ceiling_it_lifts_it() -> None:
    """A bid is the profile's to say, and no price raises it; what is no bid must not count as less than the price."""
    spot = offering(rate=30, max_rate=Rate(100), market=SPOT, priced_ms=1)
    found, _ = at(spot, of=told(150, market=SPOT), bids=True)
    assert (found.rate, found.max_rate) == (None, 100)
    found, _ = at(spot, of=told(150, market=SPOT), bids=False)
    assert (found.rate, found.max_rate) == (150, 150)


def test_an_unknown_ceiling_stays_unknown() -> None:
    """Under a limit nothing is launched by it: what a spot machine may come to, no price of today says."""
    spot = offering(rate=30, market=SPOT, priced_ms=1)
    for own, said in (((), told(20, market=SPOT)), ((OwnPrice("*", Rate(10), market=SPOT),), Told())):
        assert at(spot, *own, of=said)[0].highest_rate is None


def test_what_is_kept_is_read_back_or_not_at_all(tmp_path: Path) -> None:
    """Whole files replace whole files; one that is damaged counts as none."""
    file = tmp_path / "p" / FILE
    save(file, told(90))
    assert load(file) == told(90)
    assert [path.name for path in file.parent.iterdir()] == [FILE]
    good = plain(told(90))
    for bad in (
        {**good, "version": 2}, {**good, "told_ms": "x"}, {**good, "prices": [["t", "z", "on-demand", 0]]},
        {**good, "prices": [["t", "z", "on-demand", 0.5]]}, {**good, "prices": [["t", "z", "rented", 5]]},
        {**good, "prices": [["t", "z", "spot", True]]}, {**good, "prices": [["t"]]}, [], {"version": 1},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            read(bad)  # type: ignore[arg-type]
        file.write_text(json.dumps(bad))
        assert load(file) == Told()
    file.write_text('{"version": 1, ')
    assert load(file) == Told()


def test_differences_are_told_by_type_place_and_market() -> None:
    """What is the same is left out; what is new or gone is there."""
    before, after = told(90).prices, (*told(80).prices, *told(30, market=SPOT).prices)
    assert [(one.market, one.before, one.after) for one in changes(before, after)] == [
        (Market.ON_DEMAND, 90, 80), (SPOT, None, 30),
    ]  # fmt: skip
    assert changes(after, after) == []


class Service(Lacking):
    """A driver with one offering and a price service."""

    def __init__(self) -> None:
        self.traits = Traits(prices=True)
        self.says: tuple[Price, ...] = told(90).prices
        self.offers = (offering(rate=100, priced_ms=NOW - DAY),)

    async def offerings(self) -> tuple[Offering, ...]:
        return self.offers

    async def prices(self) -> tuple[Price, ...]:
        return self.says

    async def close(self) -> None: ...


def wrapped(service: Any, folder: Path, *own: OwnPrice) -> Priced:
    return Priced(service, own, folder, lambda: NOW, Inline())


async def test_what_a_price_service_tells_is_kept_over_a_restart(tmp_path: Path) -> None:
    """And counts from then on, with what the operator says on top."""
    service = Service()
    provider = wrapped(service, tmp_path)
    assert (await provider.offerings())[0].rate == 100
    await provider.prices()
    assert (await provider.offerings())[0].rate == 90
    again = wrapped(service, tmp_path, OwnPrice("*", off=1_000))
    assert [(one.rate, source) for one, source in await again.sourced()] == [(81, Source.OPERATOR)]


async def test_others_have_turns_while_thousands_are_priced(tmp_path: Path) -> None:
    """Agents are heard meanwhile: what is priced in one piece is felt by everybody."""
    service, turns, most = Service(), 0, 10 * PRICED_AT_ONCE
    service.offers = tuple(offering(f"t{number}", rate=100, priced_ms=NOW - DAY) for number in range(most))
    own = (OwnPrice("t1*", off=1_000), OwnPrice("*", Rate(50)))
    provider = wrapped(service, tmp_path, *own)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await provider.prices()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(others())
        found = await provider.sourced()
        watching.cancel()
    assert turns >= 10
    assert [one.rate for one, _ in found] == [at(one, *own)[0].rate for one in service.offers]


async def test_what_another_process_keeps_counts_too(tmp_path: Path) -> None:
    """`prices refresh` beside a dispatcher that runs."""
    running = wrapped(Service(), tmp_path)
    assert (await running.offerings())[0].rate == 100
    await wrapped(Service(), tmp_path).prices()
    assert (await running.offerings())[0].rate == 90


async def test_asking_for_the_difference_keeps_nothing_and_no_answer_wipes_nothing(tmp_path: Path) -> None:
    """`prices diff` only looks; a service that has nothing to say today takes no price away."""
    service = Service()
    provider = wrapped(service, tmp_path)
    assert (await provider.asked()).prices == service.says
    assert not (tmp_path / FILE).exists()
    await provider.prices()
    service.says = ()
    await provider.prices()
    assert load(tmp_path / FILE) == told(90)


async def test_what_is_told_while_the_driver_answers_does_not_overrule_its_answer(tmp_path: Path) -> None:
    """Else a price of the operator's in the driver's own keys would lose against the list for a while."""
    service = Service()
    provider = wrapped(service, tmp_path)

    async def offerings() -> tuple[Offering, ...]:
        await provider.prices()
        return service.offers

    service.offerings = offerings  # type: ignore[method-assign]
    assert (await provider.offerings())[0].rate == 100
