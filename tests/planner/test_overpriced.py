"""Tasks that may be preempted keep no instance on demand alive for which spot VMs would do."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules
from cloud_dispatch.domain.preemptions import Preemptions
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import Blocked, QuotaUse, Snapshot, Supply, TargetItem
from tests.planner.scenes import (
    AWS,
    MAIN,
    MINUTE,
    NOW,
    applied,
    busy,
    demand,
    drained,
    instance,
    launched,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState
BOTH = (Market.ON_DEMAND, Market.SPOT)
DEAR = offering("four", 4, 16, 400)
SPOT = offering("four", 4, 16, 100, market=Market.SPOT)
SOLD = (DEAR, SPOT)
FIRM = shape(preemptible=False)
QUEUE = (demand(shape(), 10_000, expected_ms=10 * MINUTE),)


def held(number: int = 0, for_ms: int = 10 * MINUTE, **rest: Any) -> Supply:
    """One on demand that is full of tasks which may be preempted, all of which are done in a minute."""
    values: dict[str, Any] = {
        "load": busy(shape(), 4), "shapes": (shape(),), "free_ms": NOW + MINUTE, "spot_since_ms": NOW - for_ms,
    }  # fmt: skip
    return instance(number, rest.pop("rented", DEAR), S.BUSY, **{**values, **rest})


def seen(*supply: Supply, items: Any = QUEUE, **rest: Any) -> Snapshot:
    """Two at most, unless told otherwise, in a pool that rents on both markets, and more to do than fills all of it."""
    usual: dict[str, Any] = {"pools": [pool(markets=BOTH)], "offerings": SOLD, "caps": Caps(instances=2), **rest}
    return snapshot(items, supply=supply, **usual)


def kept(*supply: Supply, **rest: Any) -> bool:
    return drained(plan(seen(*supply, **rest))) == {}


def test_one_goes_whose_work_spot_vms_would_do() -> None:
    """Whatever waits; it is rented for there when it has gone, and not before."""
    before = seen(held(0), held(1), items=[demand(shape(), 100, expected_ms=10 * MINUTE)])
    found = plan(before)
    assert drained(found) == {"batch-0": "overpriced"}
    assert "four on the spot market costs less" in found.actions[0].reason
    after = applied(before, found)
    assert plan(after).actions == ()
    gone = plan(replace(after, supply=after.supply[1:]))
    assert launched(gone) == {"four": 1}
    assert [action.offering.market for action in gone.actions if hasattr(action, "offering")] == [Market.SPOT]


def _reasons_to_stay() -> Iterator[Any]:
    waits = demand(FIRM, 1)
    for name, one, rest in (
        ("not so at all", held(spot_since_ms=None), {}),
        ("too short", held(for_ms=MINUTE - 1, free_ms=NOW), {"offerings": (DEAR, replace(SPOT, boot_ms=0))}),
        ("long task", held(stays=busy(shape(), 1)), {}),
        ("held", held(behaviour=Behaviour.HOLD), {}),
        ("no price", held(rate=None), {}),
        ("silent", replace(held(), state=S.OUT_OF_CONTACT), {}),
        ("wanted", held(), {"items": [waits]}),
        ("no spot", held(), {"offerings": (DEAR,)}),
        ("no cheaper", held(), {"offerings": (DEAR, offering("four", 4, 16, 400, market=Market.SPOT))}),
        ("sold out", held(), {"blocked": (Blocked(AWS, NOW + 1, "sold out", market="spot"),)}),
        ("refused of late", held(), {"failed": (Blocked(AWS, NOW - 1, "sold out", market="spot"),)}),
        ("quota", held(), {"quotas": (QuotaUse(AWS, "spot", 3, 0, market="spot"),)}),
        (
            "cap on vcpus",
            held(),
            {"caps": Caps(vcpus=8), "offerings": (DEAR, offering("six", 6, 16, 9, market=SPOT.market))},
        ),
        ("small ones find no places", held(), {"offerings": (DEAR, offering("two", 2, 8, 9, market=SPOT.market))}),
        ("no timeout", held(), {"pools": [pool(markets=BOTH, end=EndRules(idle_ms=0))]}),
        ("minimum", held(), {"pools": [pool(markets=BOTH, minimum=2)]}),
        ("target", held(), {"targets": (TargetItem(MAIN, 0, "rest", may_drain=False),)}),
        ("unknowns", held(), {"unknowns": True}),
        ("stopped", held(), {"stop": Stop(StopLevel.LAUNCHES)}),
        ("asked for by its market", held(shapes=(shape(labels=(("market", "on-demand"),)),)), {}),
        ("one waits for its market", held(), {"items": [demand(shape(labels=(("market", "on-demand"),)), 1)]}),
        ("one leaves", held(), {"caps": Caps(instances=3), "beside": instance(2, DEAR, S.DRAINING)}),
        ("one ends", held(), {"caps": Caps(instances=3), "beside": instance(2, DEAR, S.TERMINATING)}),
        ("one is launched", held(), {"caps": Caps(instances=3), "beside": instance(2, SPOT, S.LAUNCHING)}),
        ("one is rented now", held(), {"caps": Caps(instances=3), "items": [demand(shape(), 9)]}),
    ):
        yield pytest.param(one, rest, id=name)


@pytest.mark.parametrize(("one", "rest"), [*_reasons_to_stay()])
def test_it_stays(one: Supply, rest: dict[str, Any]) -> None:
    """Each of these alone keeps it: it is wanted for more, or nothing is known to come in its place."""
    values = dict(rest)
    others = [values.pop("beside")] if "beside" in values else []
    beside = instance(1, DEAR, S.BUSY, load=busy(FIRM, 1), stays=busy(FIRM, 1))
    assert not kept(held(), beside), "without it it goes"
    assert kept(one, beside, *others, **values)


@pytest.mark.parametrize(("waiting", "stays"), [(4, False), (8, True)])
def test_what_the_price_factor_forbids_for_all_that_waits_does_not_come(waiting: int, stays: bool) -> None:
    """Beside a larger one that is sold out and costs little more four tasks may have the smaller one. Eight may not:
    they would be left without anything."""
    sold = (DEAR, replace(SPOT, rate=Rate(50_000_000)), offering("eight", 8, 32, 60, market=SPOT.market))
    blocked = (Blocked(AWS, NOW + 1, "sold out", type="eight", market="spot"),)
    before = seen(held(0), held(1, 0), items=[demand(shape(), waiting)], offerings=sold, blocked=blocked)
    assert (drained(plan(before)) == {}) is stays
    alone = plan(replace(before, supply=(), caps=Caps(instances=1)))
    assert (launched(alone) == {}) is stays


def test_it_has_to_be_worth_the_change_and_its_way_back() -> None:
    """Of 400 an hour 300 are saved for as long as it was so. 100 cost a boot of two minutes and one until what runs is
    done, and 400 another boot of one on demand: eleven hundred in all, for three minutes and two thirds as much."""
    sold = (DEAR, replace(SPOT, boot_ms=2 * MINUTE))
    enough = 11 * MINUTE // 3
    for long_ms, stays in ((enough, True), (enough + 1, False)):
        assert kept(held(0, long_ms), held(1, 0), offerings=sold) is stays


def test_what_is_billed_at_least_counts() -> None:
    """An hour of it is paid for, however soon it goes again, and an hour of one on demand, should that be wanted then:
    for 300 that are saved 500 are paid."""
    sold = (replace(DEAR, minimum_ms=60 * MINUTE), replace(SPOT, minimum_ms=60 * MINUTE, boot_ms=0))
    for long_ms, stays in ((100 * MINUTE, True), (100 * MINUTE + 1, False)):
        assert kept(held(0, long_ms), held(1, 0), offerings=sold) is stays


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("expected", [10 * MINUTE, 90 * MINUTE])
def test_what_preemptions_cost_counts(expected: int, waits: bool) -> None:
    """Two an hour make work of an hour and a half six times as dear, and hardly matter to what takes ten minutes;
    whether it waits, or runs and is nearly done."""
    known = (Preemptions(AWS, "four", "a", 200_000, 100 * HOUR_MS),)
    items = [demand(shape(), 100, expected_ms=expected)] if waits else []
    both = [held(number, work_ms=0 if waits else expected) for number in range(2)]
    caps = Caps(instances=2 if waits else 4)
    assert kept(*both, items=items, preemptions=known, caps=caps) is (expected > 10 * MINUTE)


@pytest.mark.parametrize(
    ("other", "caps", "stays"),
    [
        (held(1), 2, False),
        (held(1, rented=offering("two", 2, 8, 200), load=busy(shape(), 2)), 2, True),
        (held(1, rented=offering("two", 2, 8, 200), load=busy(shape(), 2)), 3, False),
        (held(1, behaviour=Behaviour.HOLD), 2, True),
        (instance(1, SPOT, S.BUSY, load=busy(shape(), 1)), 2, True),
        (instance(1, DEAR, S.BOOTING), 2, True),
    ],
    ids=["as large", "smaller", "smaller, but there is room", "held", "spot", "boots"],
)
def test_where_caps_leave_no_place_the_largest_on_demand_stays(other: Supply, caps: int, stays: bool) -> None:
    """Tasks that must not be preempted would wait until a spot VM has nothing to do, which may be never."""
    gone = drained(plan(seen(held(0), other, caps=Caps(instances=caps), items=QUEUE if caps == 2 else ())))
    assert ("batch-0" not in gone) is stays


@pytest.mark.parametrize(("many", "stays"), [(2, True), (3, False)])
def test_there_has_to_be_room_for_another_beside_all_that_take_its_place(many: int, stays: bool) -> None:
    """Two small ones take two places."""
    sold = (DEAR, offering("two", 2, 8, 9, market=SPOT.market))
    assert kept(held(), offerings=sold, caps=Caps(instances=many), items=()) is stays


@pytest.mark.parametrize(("waiting", "caps", "stays"), [(3, 2, True), (4, 2, False), (0, 2, True), (0, 3, False)])
def test_what_waits_has_to_fill_it_where_caps_leave_no_place_beside(waiting: int, caps: int, stays: bool) -> None:
    """What is rented for less than that is smaller, and has the place of what a burst wants. What others come to does
    not wait for that."""
    items = [demand(shape(), waiting)] if waiting else []
    soon = [replace(item, expected_ms=MINUTE) for item in items]
    assert kept(held(0), held(1, 0), items=items, caps=Caps(instances=caps)) is stays
    assert kept(held(0), held(1, 0), items=soon, caps=Caps(instances=caps)) is (caps == 2)


def test_it_has_to_fill_all_that_go() -> None:
    """Two of twenty may go at once: what waits is as much as one of them does."""
    supply = [held(number) for number in range(20)]
    for waiting, most in ((7, 1), (8, 2)):
        items = [demand(shape(), waiting)]
        before = seen(*supply, items=items, caps=Caps(instances=20))
        found = plan(before)
        assert len(drained(found)) == most
        assert drained(plan(applied(before, found))) == {}


def test_one_at_a_time_the_dearest_first_then_who_is_free_first() -> None:
    """What the others have to do without it shows whether they go as well."""
    late, dear = held(0, free_ms=NOW + 2 * MINUTE), replace(held(2), rate=Rate(401_000_000))
    assert drained(plan(seen(late, held(1), held(3), caps=Caps(instances=3)))) == {"batch-1": "overpriced"}
    before = seen(late, held(1), dear, caps=Caps(instances=3))
    found = plan(before)
    assert drained(found) == {"batch-2": "overpriced"}
    assert plan(applied(before, found)).actions == ()


@pytest.mark.parametrize(("many", "most"), [(2, 1), (19, 1), (20, 2), (39, 3), (100, 10), (250, 10)])
def test_of_many_a_tenth_go_at_once(many: int, most: int) -> None:
    """Ten at most, with those that are on their way; there have to be spot VMs for all of them."""
    supply = [held(number) for number in range(many)]
    before = seen(*supply, caps=Caps(instances=many))
    found = plan(before)
    assert len(drained(found)) == most
    after = applied(before, found)
    assert plan(after).actions == ()
    quota = (QuotaUse(AWS, "spot", 8, 0, market="spot"),)
    assert len(drained(plan(replace(before, quotas=quota)))) == min(most, 2), "of eight vCPUs two have four each"


def test_what_comes_for_those_on_their_way_has_its_part_of_the_quota() -> None:
    """Two of a hundred go, where there may be two spot VMs, and no more in the plans before these are rented."""
    now = seen(*(held(number) for number in range(100)), caps=Caps(instances=100))
    now = replace(now, quotas=(QuotaUse(AWS, "spot", 8, 0, market="spot"),))
    found = []
    for _ in range(3):
        found.append(len(drained(plan(now))))
        now = applied(now, plan(now))
    assert found == [2, 0, 0]


def test_who_makes_way_for_others_goes_once() -> None:
    """A task that nothing can run has its turn on one that spot VMs would replace: that is the one that goes."""
    gpus = demand(shape(gpus=1, preemptible=False), 1, oldest_ms=NOW - 60 * MINUTE)
    sold = (*SOLD, offering("gpu", 4, 16, 900, gpus=1))
    old = {"intended_ms": NOW - 60 * MINUTE}
    found = plan(seen(held(0, **old), held(1, **old), offerings=sold, items=[gpus]))
    assert list(drained(found).values()) == ["turn"]
    assert len([action for action in found.actions if hasattr(action, "cause")]) == 1


def test_who_is_too_large_goes_first_and_then_none_for_its_price() -> None:
    """One of each pool at a time, whatever for."""
    slack = held(1, load=busy(shape(), 1), slack_since_ms=NOW - 30 * MINUTE)
    sold = (*SOLD, offering("one", 1, 4, 30))
    found = plan(seen(held(0), slack, held(2), offerings=sold, caps=Caps(instances=20), items=()))
    assert drained(found) == {"batch-1": "oversized"}
