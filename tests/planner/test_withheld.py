"""What is withheld from being begun: nothing is launched for it, nothing is kept for it, and why is said."""

import pytest

from cloud_dispatch.domain.instance import InstanceState as S
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.plan import Waiting
from cloud_dispatch.planner.replay import decode_plan, decode_snapshot, encode_plan, encode_snapshot
from cloud_dispatch.planner.snapshot import Blocked, QuotaUse
from cloud_dispatch.spend.payers import part_rate
from tests.planner.scenes import (
    AWS,
    MINUTE,
    NOW,
    applied,
    demand,
    drained,
    instance,
    launched,
    offering,
    pool,
    shape,
    snapshot,
)

POOR = Payer("poor", "ann")
SMALL, LARGE = offering(), offering("large", 8, 32, price=400)
WITHHELD = demand(shape(), 3, payer=POOR, withheld="its limit")


def test_nothing_is_launched_for_what_is_withheld() -> None:
    """Of the same shape what is not is served; each has its own reason."""
    found = plan(snapshot([demand(shape(), 2), WITHHELD]))
    assert launched(found) == {"small": 2}
    (said,) = (one for one in found.waiting if one.payer == POOR)
    assert said == Waiting(shape(), 3, "its limit", 3, (Obstacle.BUDGET,), POOR)


def test_nothing_is_kept_for_what_is_withheld() -> None:
    """An idle instance goes; for one task that may be begun it stays."""
    due = instance(0, idle_since_ms=NOW - MINUTE)
    assert drained(plan(snapshot([WITHHELD], supply=[due]))) == {due.instance: "idle"}
    assert drained(plan(snapshot([demand(shape(), 1, payer=POOR)], supply=[due]))) == {}


def test_nothing_is_launched_where_it_costs_its_payer_more_than_it_may() -> None:
    """For one task the small VM is cheaper, its part of the large one: that is launched, and nothing where even that
    costs too much."""
    part = part_rate(LARGE.top_rate, shape().resources, exclusive=False, capacity=LARGE.type.capacity)
    assert part < part_rate(SMALL.top_rate, shape().resources, exclusive=False, capacity=SMALL.type.capacity)
    both = (SMALL, LARGE)
    assert launched(plan(snapshot([demand(shape(), 1, payer=POOR)], offerings=both))) == {"small": 1}
    few = demand(shape(), 1, payer=POOR, most_rate=part)
    assert launched(plan(snapshot([few], offerings=both))) == {"large": 1}
    none = plan(snapshot([demand(shape(), 1, payer=POOR, most_rate=part - 1)], offerings=both))
    assert launched(none) == {}
    (said,) = none.waiting
    assert (said.left, said.obstacles) == (1, (Obstacle.BUDGET,))
    assert "its payer was refused" in said.reason


@pytest.mark.parametrize("expected_ms", [0, 30_000])
def test_what_boots_serves_nobody_who_may_not_pay_for_it(expected_ms: int) -> None:
    """It would decline when it is up, and only then would another be launched: the one that its payer may pay is, at
    once. What boots and may be paid serves, and so does what no offering is like any more at the price it has."""
    cheap, dear = offering("cheap", boot_ms=MINUTE), offering("dear", price=900, boot_ms=MINUTE)
    most = part_rate(cheap.top_rate, shape().resources, exclusive=False, capacity=cheap.type.capacity)
    poor = demand(shape(), 1, payer=POOR, most_rate=most, expected_ms=expected_ms)
    both = [cheap, dear]
    for boots, offered, more in ((dear, both, 1), (cheap, both, 0), (cheap, [dear], 0), (dear, [cheap], 1)):
        scene = snapshot([poor], offerings=offered, supply=[instance(0, boots, S.BOOTING)])
        assert launched(plan(scene)) == ({"cheap": 1} if more else {})


def test_what_is_launched_for_others_serves_nobody_who_may_not_pay_for_it() -> None:
    """Two fit on the large one that is launched for what is large; who may not pay that much has one of its own."""
    large, small = offering("large", 8, 32, price=900), offering("small", price=100)
    most = part_rate(small.top_rate, shape().resources, exclusive=False, capacity=small.type.capacity)
    rich = demand(shape(cpus=6), 1)
    for most_rate, expected in ((0, {"large": 1}), (most, {"large": 1, "small": 1})):
        poor = demand(shape(), 1, payer=POOR, most_rate=most_rate)
        assert launched(plan(snapshot([rich, poor], offerings=[large, small]))) == expected


def test_what_may_cost_anything_is_launched_for_nobody_who_minds() -> None:
    """A spot VM whose highest price nobody knows boots for others: who may not pay whatever it is has one launched by
    the same plan, and not by the next one."""
    large, small = offering("large", 8, 32, price=300, market=Market.SPOT), offering("small", price=100)
    most = part_rate(small.top_rate, shape().resources, exclusive=False, capacity=small.type.capacity)
    wanted = [demand(shape(cpus=6), 1), demand(shape(), 1, payer=POOR, most_rate=most)]
    scene = snapshot(wanted, offerings=[large, small], pools=[pool(markets=tuple(Market))])
    assert launched(plan(scene)) == {"large": 1, "small": 1}
    assert launched(plan(applied(scene, plan(scene)))) == {}


def test_what_is_withheld_is_kept_with_a_plan() -> None:
    scene = snapshot([WITHHELD])
    assert decode_snapshot(encode_snapshot(scene)) == scene
    assert decode_plan(encode_plan(plan(scene))) == plan(scene)


def test_a_zone_that_a_quota_leaves_is_launched_only_where_its_payer_may_pay_it() -> None:
    """The first zone is cheap enough and used up within the plan; the second costs more than the payer may."""
    zones = [offering(price=price, zone=zone) for zone, price in (("a", 100), ("b", 200))]
    most = part_rate(zones[0].top_rate, shape().resources, exclusive=False, capacity=zones[0].type.capacity)
    full = (QuotaUse(AWS, "L-1", 1, 0, zone="a"),)
    for most_rate, count in ((most, 1), (0, 2)):
        item = demand(shape(), 2, payer=POOR, most_rate=most_rate)
        assert launched(plan(snapshot([item], offerings=zones, quotas=full))) == {"small": count}


def test_what_its_payer_may_not_pay_makes_nothing_else_too_dear() -> None:
    """Spot VMs that are cheap now and may cost much later: whether they are blocked or not, they are no measure of what
    is left to who may not pay as much; to others they are, for they will be back."""
    taken = offering("taken", price=100, market=Market.SPOT, max_rate=Rate(900_000_000))
    rented = offering("rented", price=200)
    most = part_rate(rented.top_rate, shape().resources, exclusive=False, capacity=rented.type.capacity)
    blocked = (Blocked(AWS, NOW + 1, "no capacity", type="taken"),)
    pools = [pool(markets=tuple(Market))]
    for most_rate, closed, expected in ((most, (), 1), (most, blocked, 1), (0, blocked, 0)):
        item = demand(shape(), 1, payer=POOR, most_rate=most_rate)
        scene = snapshot([item], offerings=[taken, rented], pools=pools, blocked=closed)
        assert launched(plan(scene)) == ({"rented": 1} if expected else {})
