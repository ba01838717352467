"""Whose turn it is under a cap: what waits for others gets a place of theirs, and nobody gives one in vain."""

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Drain
from cloud_dispatch.planner.snapshot import Blocked, DemandItem, Snapshot, Supply, TargetItem
from tests.planner.scenes import (
    AWS,
    MAIN,
    MINUTE,
    NOW,
    OTHER,
    applied,
    busy,
    demand,
    drained,
    instance,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState
DRAIN = 10 * MINUTE
BOTH = (Market.ON_DEMAND, Market.SPOT)
POOL = pool(markets=BOTH, price_factor_percent=400, target_drain_ms=DRAIN)
SPOT, FIRM = offering(price=30, market=Market.SPOT), offering(price=100)
LOOSE, HARD = shape(), shape(preemptible=False)


def spot(number: int | str, free: int = 5, **rest: Any) -> Supply:
    """A spot VM that has worked for an hour, and is free in `free` minutes."""
    values = {"free_ms": NOW + free * MINUTE, "intended_ms": NOW - 60 * MINUTE, **rest}
    return instance(number, SPOT, S.BUSY, pools=(POOL,), load=busy(LOOSE, 1), **values)


def waits(wanted: Any, count: int = 1, minutes: int = 60, **rest: Any) -> DemandItem:
    return demand(wanted, count, oldest_ms=NOW - minutes * MINUTE, **rest)


def full(*items: DemandItem, supply: Any = (), **rest: Any) -> Snapshot:
    """Two spot VMs at work under a cap of two, unless told otherwise."""
    exists = supply or (spot("late", 9), spot("soon", 2))
    values = {"pools": (POOL,), "offerings": (SPOT, FIRM), "caps": Caps(instances=len(exists)), **rest}
    return snapshot(items, supply=exists, **values)


def why(scene: Snapshot) -> list[str]:
    return [action.reason for action in plan(scene).actions if isinstance(action, Drain)]


def test_who_has_a_higher_priority_than_all_that_waits_gets_a_place_at_once() -> None:
    """The one that is free first; the reason tells why."""
    scene = full(waits(LOOSE, 50), waits(HARD, minutes=0, priority=1))
    assert drained(plan(scene)) == {"batch-soon": "turn"}
    (reason,) = why(scene)
    assert "makes room under a cap" in reason
    assert "has a lower priority" in reason


@pytest.mark.parametrize(("others", "minutes", "gone"), [(50, 60, True), (60, 60, False), (5, 11, True), (5, 9, False)])
def test_among_equals_who_has_waited_longest_does_and_not_before_the_pools_drain(
    others: int, minutes: int, gone: bool
) -> None:
    scene = full(waits(LOOSE, 50, others), waits(HARD, minutes=minutes))
    assert list(drained(plan(scene))) == ["batch-soon"] * gone
    assert ["waited for longer" in reason for reason in why(scene)] == [True] * gone


def test_by_age_nobody_goes_who_was_rented_later_than_the_pools_drain() -> None:
    """With a long queue all have waited for longer: else each would go with its first task."""
    supply = (spot("soon", 1, intended_ms=NOW - 9 * MINUTE), spot("late", 5, intended_ms=NOW - 10 * MINUTE))
    assert list(drained(plan(full(waits(LOOSE, 50, 5), waits(HARD), supply=supply)))) == ["batch-late"]
    assert drained(plan(full(waits(LOOSE, 50, 5), waits(HARD), supply=supply[:1]))) == {}
    assert list(drained(plan(full(waits(LOOSE, 50, 5), waits(HARD, priority=1), supply=supply)))) == ["batch-soon"]


def test_what_has_a_lower_priority_waits_however_long() -> None:
    scene = full(waits(LOOSE, 50, 1, priority=1), waits(HARD, minutes=600))
    assert drained(plan(scene)) == {}


def test_where_nothing_else_waits_it_goes_by_age_too() -> None:
    """What comes meanwhile would keep them: nobody knows its priority."""
    assert list(drained(plan(full(waits(HARD, minutes=11))))) == ["batch-soon"]
    assert drained(plan(full(waits(HARD, minutes=9, priority=9)))) == {}


def test_by_priority_so_many_go_as_are_wanted_by_age_one() -> None:
    supply = [spot(number, number) for number in range(5)]
    first = waits(HARD, 3, 0, priority=1)
    assert set(drained(plan(full(waits(LOOSE, 50, 5), first, supply=supply)))) == {"batch-0", "batch-1", "batch-2"}
    assert set(drained(plan(full(waits(LOOSE, 50, 5), waits(HARD, 3), supply=supply)))) == {"batch-0"}


def test_nobody_else_goes_while_a_place_is_on_its_way() -> None:
    """While one drains, while what comes boots, and while it runs: by age. By priority what is still lacking goes."""
    scene = full(waits(LOOSE, 50, 5), waits(HARD, 3))
    draining = applied(scene, plan(scene))
    assert drained(plan(draining)) == {}
    assert "instances 2 of 2, 1 about to end" in plan(draining).waiting[-1].reason
    for state in (S.BOOTING, S.IDLE, S.BUSY):
        load = busy(HARD, 1) if state is S.BUSY else Load()
        comes = instance("firm", FIRM, state, pools=(POOL,), load=load)
        scene = full(waits(LOOSE, 50, 5), waits(HARD, 3), supply=(spot("late"), comes))
        assert drained(plan(scene)) == {}
    scene = full(waits(LOOSE, 50, 5), waits(HARD, 3, priority=1), supply=(spot("late"), comes))
    assert drained(plan(scene)) == {"batch-late": "turn"}


def test_what_can_run_together_gets_one_place() -> None:
    """Of two kinds of tasks the second has its place where the first has."""
    large = offering("large", 8, 32, 400)
    supply = [spot(number) for number in range(3)]
    scene = full(
        waits(LOOSE, 50, 5), waits(shape(6, preemptible=False), 1), waits(shape(7, preemptible=False), 1, 59),
        supply=supply, offerings=(SPOT, FIRM, large),
    )  # fmt: skip
    assert len(drained(plan(scene))) == 1


@pytest.mark.parametrize("state", [S.BUSY, S.IDLE])
def test_by_priority_too_what_can_run_together_gets_one_place(state: InstanceState) -> None:
    """Of what goes at once, and of what idles: what has room for all of them comes for the first."""
    load = busy(LOOSE, 1) if state is S.BUSY else Load()
    supply = [instance(number, SPOT, state, pools=(POOL,), load=load, free_ms=NOW) for number in range(5)]
    hard = [waits(shape(3 + number / 10, preemptible=False), 1, 0, priority=1) for number in range(5)]
    large = offering("large", 64, 256, 1000)
    scene = full(
        waits(LOOSE, 50) if load.tasks else waits(hard[0].shape), *hard, supply=supply, offerings=(SPOT, large)
    )
    assert len(drained(plan(scene))) == 1


def test_who_idles_goes_before_who_works() -> None:
    idle = instance("idle", SPOT, pools=(POOL,))
    scene = full(waits(HARD, priority=1), supply=(spot("soon", 0), idle))
    assert drained(plan(scene)) == {"batch-idle": "surplus"}


@pytest.mark.parametrize(
    "changes",
    [
        {"behaviour": Behaviour.HOLD},
        {"state": S.OUT_OF_CONTACT},
        {"load": busy(shape(0.5), 2), "stays": busy(shape(0.5), 1)},
    ],
)
def test_who_is_held_unheard_or_works_for_long_beside_others_does_not_go(changes: dict[str, Any]) -> None:
    scene = full(waits(LOOSE, 50), waits(HARD, priority=1), supply=(replace(spot("soon"), **changes), spot("late", 9)))
    assert drained(plan(scene)) == {"batch-late": "turn"}
    alone = full(waits(LOOSE, 50), waits(HARD, priority=1), supply=(replace(spot("soon"), **changes),))
    assert drained(plan(alone)) == {}


def test_whose_one_task_takes_long_or_nobody_knows_how_long_goes_after_the_others() -> None:
    one = spot("one", 0, stays=busy(LOOSE, 1))
    both = full(waits(LOOSE, 50), waits(HARD, priority=1), supply=(one, spot("late", 9)))
    assert drained(plan(both)) == {"batch-late": "turn"}
    assert drained(plan(full(waits(LOOSE, 50), waits(HARD, priority=1), supply=(one,)))) == {"batch-one": "turn"}


@pytest.mark.parametrize(
    "rest",
    [
        {"pools": (replace(POOL, minimum=2),)},
        {"targets": (TargetItem(MAIN, 2, "rest"),)},
        {"targets": (TargetItem(MAIN, 0, "rest", may_drain=False),)},
        {"caps": Caps(instances=9), "pools": (replace(POOL, caps=Caps(instances=0)),)},
        {"failed": (Blocked(AWS, NOW - 1, "none", type="small", market="on-demand"),)},
        {"blocked": (Blocked(AWS, NOW + 1, "none", type="small", market="on-demand"),)},
        {"silent": (AWS,)},
        {"unknowns": True},
    ],
)
def test_nobody_goes_in_vain(rest: dict[str, Any]) -> None:
    """Where the pool keeps them, another cap is in the way, or what would come is not sure to be had."""
    scene = full(waits(LOOSE, 50), waits(HARD, priority=1))
    assert drained(plan(scene))
    assert drained(plan(replace(scene, **rest))) == {}


def test_what_failed_is_no_reason_where_something_else_would_be_rented_in_its_place() -> None:
    """The cheapest is tried first, and then that: where the price factor allows it."""
    scene = full(waits(LOOSE, 50), waits(HARD, priority=1))
    failed = (Blocked(AWS, NOW - 1, "none", type="small", market="on-demand"),)
    for price, gone in ((200, ["batch-soon"]), (500, [])):
        offerings = (SPOT, FIRM, offering("other", price=price))
        assert list(drained(plan(replace(scene, offerings=offerings, failed=failed)))) == gone


def test_what_failed_at_another_price_or_for_another_pool_is_no_reason() -> None:
    scene = full(waits(LOOSE, 50), waits(HARD, priority=1))
    for other in (Blocked(AWS, NOW - 1, "", pool="other"), Blocked(AWS, NOW - 1, "", from_rate=200_000_000)):
        assert drained(plan(replace(scene, failed=(other,)))) == {"batch-soon": "turn"}
    dear = Blocked(AWS, NOW - 1, "a limit", pool="main", from_rate=90_000_000)
    assert drained(plan(replace(scene, failed=(dear,)))) == {}


def test_nobody_goes_whose_place_others_would_have_that_come_first() -> None:
    """They can run on what exists, and so it is not their turn; but more of it would be rented for them."""
    pools = (POOL, replace(POOL, name=OTHER))
    rival = instance("rival", SPOT, S.BUSY, pools=pools, of=OTHER, load=busy(LOOSE, 1), intended_ms=NOW - 60 * MINUTE)
    first, last = shape(pool="main"), shape(pool="other")
    hard = waits(shape(pool="main", preemptible=False), minutes=50)
    for others, gone in ((waits(first, 50, 55), []), (waits(first, 50, 45), ["batch-rival"])):
        scene = full(others, hard, waits(last, 50, 20), supply=(spot("main"), rival), pools=pools)
        assert list(drained(plan(scene))) == gone


def test_nobody_goes_whose_place_is_too_small_alone() -> None:
    """Of two, what is smaller would have the place of the one that ends first before the other ends."""
    four = offering("four", 4, 16, 120, market=Market.SPOT)
    eight, large = offering("eight", 8, 32, 240, market=Market.SPOT), offering("large", 8, 32, 800)
    hard = waits(shape(8, preemptible=False), priority=1)

    def works(number: int, on: Offering) -> Supply:
        return instance(number, on, S.BUSY, pools=(POOL,), load=busy(LOOSE, 1), free_ms=NOW + number * MINUTE)

    for supply, gone in (((0, four), (1, four)), {}), (((0, four), (1, eight)), {"batch-1": "turn"}):
        exists = [works(*each) for each in supply]
        caps = Caps(vcpus=sum(one.vcpus for one in exists))
        scene = full(waits(LOOSE, 50), hard, supply=exists, offerings=(four, large), caps=caps)
        assert drained(plan(scene)) == gone


def test_what_starts_now_is_no_rival() -> None:
    """Of a higher priority, and it has its room: the place is for what waits."""
    roomy = instance("roomy", offering(cpus=2, market=Market.SPOT), S.BUSY, pools=(POOL,), load=busy(LOOSE, 1))
    first = waits(LOOSE, 1, priority=2)
    assert len(drained(plan(full(first, waits(HARD, priority=1), supply=(roomy, spot("soon")))))) == 1
    assert drained(plan(full(replace(first, count=2), waits(HARD, priority=1), supply=(roomy, spot("soon"))))) == {}
