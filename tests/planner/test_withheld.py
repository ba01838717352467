"""What is withheld from being begun: nothing is launched for it, nothing is kept for it, and why is said."""

from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.plan import Waiting
from cloud_dispatch.planner.replay import decode_plan, decode_snapshot, encode_plan, encode_snapshot
from cloud_dispatch.planner.snapshot import QuotaUse
from cloud_dispatch.spend.payers import part_rate
from tests.planner.scenes import AWS, MINUTE, NOW, demand, drained, instance, launched, offering, shape, snapshot

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
