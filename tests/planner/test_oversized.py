"""Small tasks that keep coming keep no large instance alive for which smaller ones would do."""

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import Blocked, Supply, TargetItem
from tests.planner.scenes import (
    AWS,
    GCP,
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
LARGE = offering("large", 16, 64, 800)
HALF = offering("half", 8, 32, 400)
SMALL = offering("small", 1, 4, 50)
SOLD = (SMALL, HALF, LARGE)
DAY = 24 * 60 * MINUTE
ELSEWHERE = (replace(SMALL, profile=GCP), LARGE)


def half_used(number: int = 0, for_ms: int = 3 * MINUTE, **rest: Any) -> Supply:
    """A large one with two small tasks that are done in a minute."""
    values: dict[str, Any] = {
        "load": busy(shape(), 2), "shapes": (shape(),), "free_ms": NOW + MINUTE, "slack_since_ms": NOW - for_ms,
    }  # fmt: skip
    return instance(number, LARGE, S.BUSY, **{**values, **rest})


def test_one_goes_that_smaller_ones_would_do_for() -> None:
    """It finishes what it runs; nothing is rented before something waits."""
    before = snapshot(supply=[half_used()], offerings=SOLD)
    found = plan(before)
    assert drained(found) == {"batch-0": "oversized"}
    assert "small" in found.actions[0].reason
    assert plan(applied(before, found)).actions == ()


@pytest.mark.parametrize(("caps", "goes"), [(2, False), (3, True)])
def test_where_places_are_scarce_it_stays(caps: int, goes: bool) -> None:
    """Small ones would take them, and a burst find no large one: there has to be one left for each that lives, and for
    those that take its place."""
    found = plan(snapshot(supply=[half_used()], offerings=(HALF, LARGE), caps=Caps(instances=caps)))
    assert (drained(found) == {"batch-0": "oversized"}) is goes


@pytest.mark.parametrize(
    ("one", "rest"),
    [
        (half_used(slack_since_ms=None), {}),
        (half_used(for_ms=MINUTE - 1, free_ms=NOW), {"offerings": (replace(SMALL, boot_ms=0), LARGE)}),
        (half_used(stays=busy(shape(), 1)), {}),
        (half_used(behaviour=Behaviour.HOLD), {}),
        (half_used(rate=None), {}),
        (replace(half_used(), state=S.OUT_OF_CONTACT), {}),
        (half_used(), {"items": [demand(shape(9), 1)]}),
        (half_used(), {"offerings": (LARGE,)}),
        (half_used(for_ms=DAY), {"offerings": (replace(LARGE, rate=Rate(700_000_000)),)}),
        (half_used(for_ms=DAY), {"offerings": (replace(LARGE, zone="b", rate=Rate(700_000_000)), LARGE)}),
        (half_used(for_ms=DAY), {"offerings": (offering("alike", 16, 64, 700), LARGE)}),
        (half_used(for_ms=DAY), {"offerings": (offering("other", 8, 65, 300), LARGE)}),
        (half_used(), {"blocked": tuple(Blocked(AWS, NOW + 1, "sold out", type=t) for t in ("small", "half"))}),
        (half_used(for_ms=DAY), {"blocked": (Blocked(AWS, NOW + 1, "sold out", type="small"),)}),
        (half_used(), {"failed": tuple(Blocked(AWS, NOW, "sold out", type=t) for t in ("small", "half"))}),
        (half_used(for_ms=DAY), {"failed": (Blocked(AWS, NOW, "sold out", type="small"),)}),
        (half_used(), {"caps": Caps(instances=2)}),
        (half_used(), {"caps": Caps(vcpus=18), "offerings": (HALF, LARGE)}),
        (half_used(), {"pools": [pool(end=EndRules(idle_ms=0))]}),
        (half_used(), {"pools": [pool(minimum=2)]}),
        (half_used(), {"targets": (TargetItem(MAIN, 0, "rest", may_drain=False),)}),
        (half_used(), {"silent": (AWS,), "offerings": ELSEWHERE, "pools": [pool(MAIN, AWS, GCP)]}),
        (half_used(), {"unknowns": True}),
        (half_used(), {"stop": Stop(StopLevel.LAUNCHES)}),
        (half_used(shapes=(shape(labels=(("type", "large"),)),)), {}),
        (half_used(shapes=(shape(), shape(memory=33))), {}),
    ],
    ids=[
        "was used", "too short", "long task", "held", "no price", "silent", "wanted", "nothing smaller",
        "cheaper than it was", "cheaper in a zone", "cheaper and as large", "more memory", "sold out",
        "too dear beside what is sold out", "was sold out", "too dear beside what was sold out", "cap",
        "cap on vcpus", "no timeout", "minimum", "target", "profile silent", "unknowns", "stopped",
        "asked for by its type", "one task needs it",
    ],
)  # fmt: skip
def test_it_stays(one: Supply, rest: dict[str, Any]) -> None:
    """Each of these alone keeps it: it was of use, is wanted, or nothing is known to come in its place."""
    values: dict[str, Any] = {"offerings": SOLD, **rest}
    beside = instance(1, SMALL, S.BUSY, load=busy(shape(), 1), stays=busy(shape(), 1))
    assert drained(plan(snapshot(values.pop("items", ()), supply=[one, beside], **values))) == {}


@pytest.mark.parametrize("how", ["blocked", "failed"])
@pytest.mark.parametrize(("price", "goes"), [(75, True), (76, False)])
def test_what_is_left_where_the_cheapest_can_not_be_had(price: int, goes: bool, how: str) -> None:
    """What costs no more than the price factor over it will be rented when something waits, and only that. What did not
    come of another profile says nothing."""
    sold = (SMALL, offering("next", 1, 4, price), LARGE)
    gone = {how: (Blocked(AWS, NOW + (how == "blocked"), "sold out", type="small"),)}
    found = plan(snapshot(supply=[half_used(for_ms=DAY)], offerings=sold, **gone))
    assert bool(drained(found)) is goes
    other = {how: (Blocked(GCP, NOW + (how == "blocked"), "sold out", type="small"),)}
    assert drained(plan(snapshot(supply=[half_used()], offerings=sold, **other))) != {}


def test_it_has_to_be_worth_the_boot_and_what_both_cost_meanwhile() -> None:
    """Of 800 an hour 300 are saved for as long as it was half used; 500 cost a boot of one minute, and one until what
    runs is done: for three minutes and twenty seconds that is as much."""
    sold = (offering("half", 8, 32, 500, boot_ms=MINUTE), LARGE)
    enough = 10 * MINUTE // 3
    for long_ms, causes in ((enough, []), (enough + 1, ["oversized"])):
        found = plan(snapshot(supply=[half_used(for_ms=long_ms)], offerings=sold))
        assert list(drained(found).values()) == causes


def test_what_is_billed_at_least_counts() -> None:
    """An hour is paid for, however soon the smaller one goes again."""
    sold = (replace(HALF, minimum_ms=60 * MINUTE), LARGE)
    for long_ms, causes in ((60 * MINUTE, []), (60 * MINUTE + 1, ["oversized"])):
        found = plan(snapshot(supply=[half_used(for_ms=long_ms)], offerings=sold))
        assert list(drained(found).values()) == causes


def test_many_small_ones_are_no_cheaper() -> None:
    """Half of it may come again at once: eight small ones cost as much as it does."""
    dear = offering("small", 1, 4, 100)
    assert drained(plan(snapshot(supply=[half_used(for_ms=60 * MINUTE)], offerings=(dear, LARGE)))) == {}


def test_a_spot_machine_is_none_for_what_must_not_be_preempted() -> None:
    """Of the same size it would do for others."""
    sold = (offering("spot", 8, 32, 100, market=Market.SPOT), LARGE)
    both = [pool(markets=(Market.ON_DEMAND, Market.SPOT))]
    for wanted, causes in ((shape(preemptible=False), []), (shape(), ["oversized"])):
        one = half_used(load=busy(wanted, 2), shapes=(wanted,))
        assert list(drained(plan(snapshot(supply=[one], offerings=sold, pools=both))).values()) == causes


def test_one_at_a_time_the_dearest_first() -> None:
    """What the others have to do without it shows whether they are too large as well."""
    dear = replace(half_used(2), rate=Rate(801_000_000))
    before = snapshot(supply=[half_used(0), half_used(1), dear], offerings=SOLD)
    found = plan(before)
    assert drained(found) == {"batch-2": "oversized"}
    assert drained(plan(applied(before, found))) == {}
    assert launched(plan(applied(before, found))) == {}


def test_what_its_pool_keeps_stays() -> None:
    """Who idles goes first; the rest is as many as the pool shall have."""
    idle = instance(1, SMALL, idle_since_ms=NOW - 5 * MINUTE)
    before = snapshot(supply=[half_used(), idle], offerings=SOLD, pools=[pool(minimum=1)])
    assert drained(plan(before)) == {"batch-1": "idle"}
