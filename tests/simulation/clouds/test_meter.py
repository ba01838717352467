"""The meter against a direct computation, minute by minute or from the formula, in integers."""

from __future__ import annotations

import asyncio
from fractions import Fraction

from cloud_dispatch.domain.money import Rate, cost
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud, Spot
from cloud_dispatch.simulation.ports import EndCause
from tests.simulation.clouds.scene import HOUR_MS, Scene, steady


async def test_an_hour_costs_the_hourly_rate() -> None:
    """Billed from running to the order to end on EC2, in whole seconds; the start and the stop are free."""
    scene = Scene(steady(Cloud.EC2, extras=()))
    (record,) = await scene.launch()
    await asyncio.sleep(9.5)
    assert scene.bill() == {record.id: 0}
    assert record.billed_from_ms is None
    await asyncio.sleep(1)
    assert record.billed_from_ms is not None
    await asyncio.sleep((record.billed_from_ms + HOUR_MS - scene.clock.now()) / 1000)
    scene.account.end(record, EndCause.TERMINATED)
    await asyncio.sleep(60)
    (line,) = scene.account.bill()
    assert (line.amount, line.billed_ms, line.running) == (89_250, HOUR_MS, False)


async def test_the_stop_is_billed_on_gce() -> None:
    """The five seconds between the order and the end are on the bill there."""
    scene = Scene(steady(Cloud.GCE, extras=()))
    (record,) = await scene.up()
    await asyncio.sleep(600)
    scene.account.end(record, EndCause.TERMINATED)
    asked_ms = record.since_ms
    await asyncio.sleep(60)
    assert record.billed_from_ms is not None
    lived_ms = asked_ms + 5_000 - record.billed_from_ms
    expected = cost(Rate(97_118_000), lived_ms, minimum_ms=60_000, increment_ms=1_000)
    assert scene.bill() == {record.id: expected}


async def test_a_short_life_is_billed_the_minimum() -> None:
    """Ten seconds cost a minute."""
    scene = Scene(steady(Cloud.EC2, extras=()))
    (record,) = await scene.launch()
    await asyncio.sleep(20)
    scene.account.end(record, EndCause.TERMINATED)
    (line,) = scene.account.bill()
    assert (line.billed_ms, line.amount) == (60_000, -(-89_250 // 60))


async def test_a_part_of_an_increment_is_billed_whole() -> None:
    """With minutes as the increment, 61 s are two minutes."""
    scene = Scene(steady(Cloud.EC2, extras=(), increment_ms=60_000))
    (record,) = await scene.launch()
    await asyncio.sleep(10 + 61)
    (line,) = scene.account.bill()
    assert (line.billed_ms, line.running) == (120_000, True)
    assert record.billed_until_ms is None


async def test_spot_costs_what_the_market_asked_at_each_moment() -> None:
    """The sum over milliseconds of the price of each step, a fault's price among them, rounded up once."""
    spot = Spot(step_ms=300_000, swing=0.3)
    dear = Fault(FaultKind.PRICE, amount=80_000_000, from_ms=2 * HOUR_MS, until_ms=3 * HOUR_MS)
    scene = Scene(steady(Cloud.EC2, extras=(), spot=spot), [dear])
    (record,) = await scene.launch(market=Market.SPOT)
    await asyncio.sleep(5 * 3_600 + 7)
    scene.account.end(record, EndCause.TERMINATED)
    assert record.billed_from_ms is not None
    assert record.billed_until_ms is not None
    length_ms = -(-(record.billed_until_ms - record.billed_from_ms) // 1_000) * 1_000
    walk = scene.account.stock.walk(record.type, record.zone)
    moments = range(record.billed_from_ms, record.billed_from_ms + length_ms, 100)
    rates = [walk.rate_at(moment) for moment in moments]
    assert len(set(rates)) > 40
    assert rates.count(80_000_000) == HOUR_MS // 100
    exact = sum(Fraction(rate * 100, HOUR_MS * 1_000) for rate in rates)
    assert -1 < scene.bill()[record.id] - exact <= 1  # a step begins between two samples


async def test_looking_at_a_price_does_not_move_it() -> None:
    """The walk is the same whether it is asked each minute or once, and in whatever order."""
    often, once = Scene(steady(Cloud.EC2)), Scene(steady(Cloud.EC2))
    name, zone = often.account.settings.sells[0].type.name, "us-east-1a"
    early, late = often.account.stock.walk(name, zone), once.account.stock.walk(name, zone)
    born_ms = often.account.born_ms
    moments = [born_ms + minute * 60_000 for minute in range(2_000)]
    forward = [early.rate_at(moment) for moment in moments]
    assert [late.rate_at(moment) for moment in reversed(moments)] == forward[::-1]
    ceiling = often.account.stock.ceiling(name, zone)
    assert 0 < min(forward) < max(forward) <= ceiling
    assert early.nano_ms(born_ms, moments[-1]) == sum(rate * 60_000 for rate in forward[:-1])


async def test_each_type_has_a_price_of_its_own_in_each_zone() -> None:
    """No two move alike; each is what it is without the others, whoever looks at them."""
    hours = [hour * HOUR_MS for hour in range(24)]

    def moves(scene: Scene, place: tuple[str, str]) -> tuple[float, ...]:
        """The price against that of the first hour: types cost differently to begin with."""
        walk, born_ms = scene.account.stock.walk(*place), scene.account.born_ms
        return tuple(round(walk.rate_at(born_ms + at_ms) / walk.rate_at(born_ms), 3) for at_ms in hours)

    spot = Spot(step_ms=HOUR_MS, swing=0.3)
    places = [(kind, zone) for kind in ("c7i.large", "c7i.2xlarge") for zone in ("us-east-1a", "us-east-1b")]
    scene = Scene(steady(Cloud.EC2, spot=spot))
    together = {place: moves(scene, place) for place in places}
    assert len({*together.values()}) == len(places)
    for place in places:
        assert moves(Scene(steady(Cloud.EC2, spot=spot)), place) == together[place]


async def test_a_disk_bills_from_creation_to_deletion() -> None:
    """Also while its VM is stopped; its line stands beside the VM's."""
    scene = Scene(steady(Cloud.GCE))
    (record,) = await scene.up()
    scene.account.guest_shuts_down(record.id)
    await asyncio.sleep(10 * 3_600)
    scene.account.end(record, EndCause.TERMINATED)
    await asyncio.sleep(1)
    assert record.ended_ms is not None
    lived_ms = record.ended_ms - record.created_ms
    assert scene.bill()[f"{record.id}-disk"] == cost(Rate(1_643_836), lived_ms)


async def test_many_lives_add_up() -> None:
    """Over a day of VMs that come and go on all three clouds the bill is the sum that the records give."""
    for cloud in Cloud:
        scene = Scene(steady(cloud, extras=()))
        for hour in range(24):
            records = await scene.up(1 + hour % 3)
            await asyncio.sleep(600 * (1 + hour % 5))
            for record in records[:-1]:
                await scene.driver.terminate(record.id)
            scene.account.guest_shuts_down(records[-1].id)
            await asyncio.sleep(700)
        now, total = scene.clock.now(), 0
        for vm in scene.account.register.all:
            assert vm.billed_from_ms is not None
            stopped = vm.ended_ms if cloud is not Cloud.EC2 else vm.billed_until_ms
            if cloud is Cloud.GCE and vm.state == "stopped":
                stopped = vm.since_ms
            until_ms = now if stopped is None else stopped
            total += cost(
                scene.account.settings.sells[0].rate,
                until_ms - vm.billed_from_ms,
                minimum_ms=60_000,
                increment_ms=1_000,
            )
        assert sum(scene.bill().values()) == total > 1_000_000
