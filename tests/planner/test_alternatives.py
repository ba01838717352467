"""What a launch may fail over to."""

from dataclasses import replace

from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import Blocked
from tests.planner.scenes import AWS, NOW, demand, launches, offering, pool, shape, snapshot


def test_alternatives_are_the_other_acceptable_offerings_in_order_of_price() -> None:
    """Failover may go to what is within the price factor, cheapest first, never to what is dearer or too small."""
    offerings = [
        offering(zone="a", price=100), offering(zone="c", price=120), offering(zone="b", price=110),
        offering("dear", price=151), offering("tiny", cpus=0.5, price=100),
    ]  # fmt: skip
    (launch,) = launches(plan(snapshot([demand(shape(), 1)], offerings=offerings)))
    assert launch.offering.zone == "a"
    assert [other.zone for other in launch.alternatives] == ["b", "c"]


def test_alternatives_are_within_the_factor_over_what_is_sold_out_too() -> None:
    """Also for what a pool shall have at least."""
    offerings = [offering("out", price=100), offering("near", price=140), offering("far", price=151)]
    blocked = (Blocked(AWS, NOW + 1, "no capacity", type="out"),)
    for scene in (snapshot([demand(shape(), 1)]), snapshot(pools=[pool(minimum=1)])):
        (launch,) = launches(plan(replace(scene, offerings=tuple(offerings), blocked=blocked)))
        assert (launch.offering.type.name, launch.alternatives) == ("near", ())
