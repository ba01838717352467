"""Quotas that are used up: nothing is launched where they have no room, what else there is serves, and why is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.replay import decode_snapshot, encode_snapshot
from cloud_dispatch.planner.snapshot import QuotaUse
from tests.planner.scenes import AWS, GCP, demand, launched, launches, offering, pool, shape, snapshot
from tests.planner.scenes import OTHER as OTHER_POOL


def quota(limit: int, used: int, **scope: Any) -> QuotaUse:
    return QuotaUse(AWS, "L-1", limit, used, **scope)


def of(one: Offering, family: str) -> Offering:
    return replace(one, type=replace(one.type, family=family), region="r")


BIG = of(offering("big", 4, 16, 100), "f")
OTHER = of(offering("other", 4, 16, 110), "g")


@pytest.mark.parametrize(
    ("use", "rented"),
    [
        (quota(8, 4, family="f"), "big"),
        (quota(8, 5, family="f"), "other"),
        (quota(8, 9, family="f"), "other"),  # used may be past a limit that was lowered
        (quota(0, 0, family="f", market="on-demand", region="r"), "other"),
        (quota(0, 0, family="f", market="spot", region="r"), "big"),
        (quota(0, 0, family="f", region="s"), "big"),
        (quota(0, 0, type="big", zone="a"), "other"),
        (quota(5, 4, family="f", unit="instances"), "big"),
        (quota(5, 5, family="f", unit="instances"), "other"),
        (replace(quota(0, 0, family="f"), profile=GCP), "big"),
    ],
)
def test_what_a_quota_has_no_room_for_is_not_launched(use: QuotaUse, rented: str) -> None:
    """What else may run it is rented in the same plan, within the price factor."""
    scene = snapshot([demand(shape(4, 8), 1)], offerings=[BIG, OTHER], quotas=(use,))
    assert launched(plan(scene)) == {rented: 1}
    assert decode_snapshot(encode_snapshot(scene)) == scene


def test_what_a_plan_leaves_of_a_quota_is_followed_by_the_cheapest_of_the_rest() -> None:
    """Once it is used up within the plan, what the cheaper large type covers is looked at too."""
    offerings = [
        of(offering("big", 16, 64, 100), "f"),
        offering("small", 4, 16, 120),
        offering("a", 4, 16, 3000, gpus=1),
    ]
    scene = snapshot([demand(shape(2), 24)], offerings=offerings, quotas=(quota(16, 0, family="f"),))
    assert launched(plan(scene)) == {"big": 1, "small": 8}


def test_a_quota_of_one_zone_leaves_the_others_of_the_same_type() -> None:
    """It is used up within the plan; the rest goes to the next zone, for demand as for what a pool shall have."""
    zones = [offering("one", 4, 16, price, zone=zone) for zone, price in (("a", 100), ("b", 110), ("c", 200))]
    used = (quota(8, 0, zone="a"), quota(4, 0, zone="b"))
    for scene in (snapshot([demand(shape(4), 5)]), snapshot(pools=[pool(minimum=5)])):
        found = plan(replace(scene, offerings=tuple(zones), quotas=used))
        launched_in = [(launch.offering.zone, launch.slots) for launch in launches(found)]
        assert launched_in == [("a", 2), ("b", 1), ("c", 2)]
        assert [[other.zone for other in launch.alternatives] for launch in launches(found)] == [["b"], [], []]


def card(name: str, gpus: int, price: int, **rest: Any) -> Offering:
    return replace(offering(name, 4, 16, price, gpus=gpus, gpu="t4", gpu_memory=16, **rest), region="r")


NEAR, FAR = card("near", 1, 100), replace(card("far", 1, 105, zone="b"), region="s")


@pytest.mark.parametrize(
    ("use", "rented"),
    [
        (quota(0, 0, gpu="t4", region="r", unit="gpus"), "far"),
        (quota(1, 1, gpu="t4", region="r", market="on-demand", unit="gpus"), "far"),
        (quota(2, 1, gpu="t4", region="r", unit="gpus"), "near"),
        (quota(0, 0, gpu="t4", region="r", market="spot", unit="gpus"), "near"),
        (quota(0, 0, gpu="a100", region="r", unit="gpus"), "near"),
        (quota(0, 0, gpu="t4", gpu_memory=16, unit="gpus", region="r"), "far"),
        (quota(0, 0, gpu="t4", gpu_memory=32, unit="gpus", region="r"), "near"),
    ],
)
def test_gpus_go_where_a_quota_has_room_for_them(use: QuotaUse, rented: str) -> None:
    """A quota of one kind of GPU in one region leaves the same machine elsewhere."""
    wanted = shape(4, 8, gpus=1, gpu_type="t4")
    scene = snapshot([demand(wanted, 1)], offerings=[NEAR, FAR], quotas=(use,))
    assert launched(plan(scene)) == {rented: 1}
    assert decode_snapshot(encode_snapshot(scene)) == scene


def test_a_quota_of_gpus_is_counted_in_gpus_and_bounds_nothing_without() -> None:
    """Of five more two machines of two fit; what has none is launched as if there were no such quota."""
    double, plain = card("double", 2, 100), BIG
    full = quota(8, 3, unit="gpus")
    wanted = shape(4, 8, gpus=2)
    found = plan(snapshot([demand(wanted, 5, expected_ms=3_600_000)], offerings=[double], quotas=(full,)))
    assert launched(found) == {"double": 2}
    assert "gpus 7 of 8, another 2 wanted" in str(found.waiting)
    over = quota(0, 3, unit="gpus")
    assert launched(plan(snapshot([demand(shape(4, 8), 2)], offerings=[plain], quotas=(over,)))) == {"big": 2}


def test_a_plan_launches_no_more_than_a_quota_has_room_for() -> None:
    """A provider may refuse the whole of a launch that is too large. The rest goes elsewhere, or is told why not."""
    full = quota(13, 4, family="f")
    scene = snapshot([demand(shape(4, 8), 5, expected_ms=3_600_000)], offerings=[BIG, OTHER], quotas=(full,))
    assert launched(plan(scene)) == {"big": 2, "other": 3}
    found = plan(replace(scene, offerings=(BIG,)))
    assert launched(found) == {"big": 2}
    (said,) = found.waiting
    assert (said.left, said.obstacles) == (3, (Obstacle.QUOTA,))
    assert "quota L-1 of profile aws has no room (vcpus 12 of 13, another 4 wanted)" in said.reason


def test_what_a_quota_forbids_is_not_what_prices_are_compared_with() -> None:
    """As with caps: it will not be back by itself, and work must not wait for it for ever."""
    dear = of(offering("dear", 4, 16, 900), "g")
    scene = snapshot([demand(shape(4, 8), 1)], offerings=[BIG, dear], quotas=(quota(0, 0, family="f"),))
    assert launched(plan(scene)) == {"dear": 1}


def test_several_quotas_bound_one_offering() -> None:
    """The one without room counts, whichever comes first."""
    for quotas in ((quota(8, 0, family="f"), quota(8, 8)), (quota(8, 8), quota(8, 0, family="f"))):
        assert launched(plan(snapshot([demand(shape(4, 8), 1)], offerings=[BIG], quotas=quotas))) == {}


def test_whoever_waits_is_told_which_quota_it_is() -> None:
    """By the provider's name for it, with what is used of it: that is what an operator has to have raised."""
    found = plan(snapshot([demand(shape(4, 8), 3)], offerings=[BIG], quotas=(quota(64, 62, family="f"),)))
    (said,) = found.waiting
    assert said.obstacles == (Obstacle.QUOTA,)
    assert said.reason == "quota L-1 of profile aws has no room (vcpus 62 of 64, another 4 wanted)"


def test_of_several_quotas_the_one_without_room_is_named() -> None:
    """Whichever comes first, and when this very plan has used it up."""
    for full in (quota(64, 62, family="f"), quota(6, 0, family="f")):
        for quotas in ((full, replace(quota(99, 0), name="L-2")), (replace(quota(99, 0), name="L-2"), full)):
            found = plan(snapshot([demand(shape(4, 8), 3)], offerings=[BIG], quotas=quotas))
            assert "quota L-1 of profile aws has no room" in found.waiting[0].reason
            assert "L-2" not in found.waiting[0].reason


def test_work_goes_to_another_market_or_provider_where_the_pool_allows_it() -> None:
    """In the same plan, as after a refusal; and no dearer than the price factor allows."""
    spot = replace(BIG, market=Market.SPOT)
    there = replace(OTHER, profile=GCP)
    full = quota(0, 0, market="on-demand")
    both = pool(markets=(Market.ON_DEMAND, Market.SPOT))
    scene = snapshot([demand(shape(4, 8), 1)], offerings=[BIG, spot], pools=[both], quotas=(full,))
    assert launched(plan(scene)) == {"big": 1}
    scene = snapshot([demand(shape(4, 8), 1)], offerings=[BIG, there], pools=[pool()], quotas=(full,))
    assert launched(plan(scene)) == {}
    wide = replace(pool(), profiles=(AWS, GCP))
    scene = snapshot([demand(shape(4, 8), 1)], offerings=[BIG, there], pools=[wide], quotas=(full,))
    assert launched(plan(scene)) == {"other": 1}


def test_a_cap_that_never_admits_it_is_told_before_a_quota() -> None:
    """What ends by itself is no hope where the pool may have none; with another kind left the quota is told alone."""
    use = quota(0, 0, family="f")
    never = "cap of pool main never admits it (instances 0)"
    scene = snapshot([demand(shape(4, 8), 1)], offerings=[BIG], quotas=(use,))
    (said,) = plan(replace(scene, pools=(pool(caps=Caps(instances=0)),))).waiting
    assert said.reason.startswith(f"{never}; ")
    assert said.obstacles == (Obstacle.CAP, Obstacle.QUOTA)
    (small,) = plan(replace(scene, pools=(pool(caps=Caps(vcpus=2)),))).waiting
    assert small.reason.startswith("cap of pool main never admits it (vcpus 2, 4 wanted); ")
    (other,) = plan(replace(scene, pools=(pool(caps=Caps(instances=0)), pool(OTHER_POOL)))).waiting
    assert "never" not in other.reason
