"""What is let go and what is kept: idle release, drains by order, and the end of what is over."""

from dataclasses import replace

import pytest

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.pool import Caps, EndRules
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import DriverCaps, Supply, TargetItem
from tests.planner.scenes import (
    AWS,
    GCP,
    MAIN,
    MINUTE,
    NOW,
    OTHER,
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
    terminated,
)  # fmt: skip

S = InstanceState
LONG_AGO = NOW - 5 * MINUTE


def test_an_instance_goes_when_it_was_idle_for_the_timeout() -> None:
    """One minute is the pool's timeout: not a millisecond earlier."""
    early = instance(0, idle_since_ms=NOW - MINUTE + 1)
    due = instance(1, idle_since_ms=NOW - MINUTE)
    assert drained(plan(snapshot(supply=[early, due]))) == {due.instance: "idle"}


def test_an_agent_that_asks_to_end_may_go_at_once() -> None:
    """It knows that it has nothing to do; only surplus is approved."""
    asking = instance(idle_since_ms=NOW, asks_end=True)
    assert drained(plan(snapshot(supply=[asking]))) == {asking.instance: "idle"}
    assert drained(plan(snapshot(supply=[asking], pools=[pool(minimum=1)]))) == {}


def test_a_pool_without_an_idle_timeout_keeps_its_instances() -> None:
    """0 is no limit of that kind."""
    pools = [pool(end=EndRules(idle_ms=0))]
    assert drained(plan(snapshot(supply=[instance(idle_since_ms=0)], pools=pools))) == {}


def test_an_instance_with_work_is_never_drained_for_want_of_it() -> None:
    """Whatever its timestamps say, claims keep it."""
    loaded = instance(state=S.IDLE, load=busy(shape(), 1), idle_since_ms=0, asks_end=True)
    assert drained(plan(snapshot(supply=[loaded]))) == {}


def test_an_instance_that_a_waiting_task_could_use_stays() -> None:
    """Ending it now would only rent it again; others of its kind that nobody needs may go."""
    supply = [instance(i, idle_since_ms=LONG_AGO) for i in range(3)]
    found = plan(snapshot([demand(shape(), 1)], supply=supply))
    assert len(drained(found)) == 2
    assert launched(found) == {}


def test_an_idle_instance_that_no_waiting_task_fits_goes() -> None:
    """Demand for something else is no reason to keep it."""
    found = plan(snapshot([demand(shape(8), 1)], supply=[instance(idle_since_ms=LONG_AGO)]))
    assert list(drained(found).values()) == ["idle"]


def test_the_dearest_go_first_when_only_some_may() -> None:
    """The pool keeps two: the cheap ones."""
    supply = [
        instance(0, offering("dear", price=300), idle_since_ms=LONG_AGO),
        instance(1, offering("cheap", price=100), idle_since_ms=LONG_AGO),
        instance(2, offering("middle", price=200), idle_since_ms=LONG_AGO),
    ]
    assert drained(plan(snapshot(supply=supply, pools=[pool(minimum=2)]))) == {"batch-0": "idle"}


def test_nothing_goes_for_want_of_work_while_any_instance_is_unknown() -> None:
    """After a start, who was not heard yet may hold the work or the claim to it."""
    supply = [instance(0, idle_since_ms=LONG_AGO, asks_end=True), instance(1, state=S.UNKNOWN)]
    assert drained(plan(snapshot(supply=supply, unknowns=True))) == {}


def test_an_idle_instance_makes_room_under_a_cap_before_its_timeout() -> None:
    """The cap is full of what nobody needs: one goes at once, and says for whom."""
    large = offering("large", cpus=8, memory=32, price=800)
    scene = snapshot(
        [demand(shape(8), 1)], supply=[instance(0), instance(1)], offerings=[offering(), large],
        pools=[pool(caps=Caps(instances=2))],
    )  # fmt: skip
    found = plan(scene)
    assert list(drained(found).values()) == ["surplus"]
    assert "makes room under a cap for tasks of 8 cpu" in found.actions[0].reason
    assert drained(plan(applied(scene, found))) == {}, "one is enough: the next plan waits for it to be gone"


def test_room_is_made_under_the_cap_of_a_driver() -> None:
    """Which covers all profiles of it, and those of no other."""
    large = offering("large", cpus=8, memory=32, price=800, profile=GCP)
    pools = [pool(MAIN, AWS, GCP)]
    for profiles, gone in (((AWS, GCP), ["surplus"]), ((GCP,), [])):
        scene = snapshot(
            [demand(shape(8), 1)], supply=[instance(0, pools=pools)], offerings=[offering(), large], pools=pools,
            driver_caps=(DriverCaps("cloud", profiles, Caps(vcpus=8)), DriverCaps("else", (), Caps())),
        )  # fmt: skip
        assert list(drained(plan(scene)).values()) == gone


def test_no_room_is_made_at_a_level_that_does_not_bind() -> None:
    """The other pool's cap is full; ending an instance of this one would help nobody."""
    large = offering("large", cpus=8, memory=32, price=800)
    pools = [pool(MAIN), pool(OTHER, caps=Caps(instances=0))]
    found = plan(
        snapshot([demand(shape(8, pool=OTHER), 1)], supply=[instance(0, pools=pools)], pools=pools, offerings=[large])
    )
    assert drained(found) == {}


def test_an_operators_drain_is_carried_out_with_work_or_without() -> None:
    """It finishes what it runs and ends; the agent sees to that."""
    idle = instance(0, behaviour=Behaviour.DRAIN)
    loaded = instance(1, state=S.BUSY, load=busy(shape(), 1), behaviour=Behaviour.DRAIN)
    found = plan(snapshot(supply=[idle, loaded]))
    assert drained(found) == {idle.instance: "behaviour", loaded.instance: "behaviour"}


def test_an_instance_whose_type_left_the_configuration_drains() -> None:
    """Also one whose pool is not there any more; with the reason."""
    stale = instance(0, state=S.BUSY, load=busy(shape(), 1), stale="type small is no longer allowed")
    orphan = instance(1, of=OTHER)
    found = plan(snapshot(supply=[stale, orphan]))
    assert drained(found) == {stale.instance: "stale", orphan.instance: "stale"}
    assert [action.reason for action in found.actions] == [
        "type small is no longer allowed", "pool other left the configuration",
    ]  # fmt: skip


def test_what_an_operator_holds_is_neither_drained_nor_ended() -> None:
    """Held to be looked at: idle, stale or failed, it stays until its hard end."""
    supply = [
        instance(0, behaviour=Behaviour.HOLD, idle_since_ms=LONG_AGO, asks_end=True),
        instance(1, behaviour=Behaviour.HOLD, stale="type left"),
        instance(2, behaviour=Behaviour.HOLD, state=S.FAILED),
    ]
    assert plan(snapshot(supply=supply)).actions == ()


@pytest.mark.parametrize("state", [S.DRAINED, S.FAILED, S.LOST])
def test_what_is_over_is_terminated(state: InstanceState) -> None:
    """Nothing of value is on it any more; the cause is its state."""
    assert terminated(plan(snapshot(supply=[instance(state=state)]))) == {"batch-0": str(state)}


def test_a_silent_profile_is_left_as_it_is() -> None:
    """What can't be listed is neither ended nor released for want of work, but an operator's drain holds."""
    supply = [
        instance(0, idle_since_ms=LONG_AGO), instance(1, state=S.DRAINED), instance(2, stale="type left"),
        instance(3, behaviour=Behaviour.DRAIN),
    ]  # fmt: skip
    found = plan(snapshot(supply=supply, silent=(AWS,)))
    assert drained(found) == {"batch-3": "behaviour"}
    assert terminated(found) == {}


def test_terminations_come_before_launches_and_drains_last() -> None:
    """The order in which to act: stop billing, serve, tidy up."""
    supply = [instance(0, state=S.DRAINED), instance(1, idle_since_ms=LONG_AGO)]
    found = plan(snapshot([demand(shape(8), 1)], supply=supply, offerings=[offering("large", cpus=8, memory=32)]))
    assert [type(action).__name__ for action in found.actions] == ["Terminate", "Launch", "Drain"]


# -- pools that shall have instances whatever waits


def test_a_pool_is_brought_up_to_its_minimum() -> None:
    """With the cheapest that it may rent; what boots counts."""
    scene = snapshot(
        pools=[pool(minimum=3)], supply=[instance(0, state=S.BOOTING)],
        offerings=[offering("dear", price=200), offering(price=100)],
    )  # fmt: skip
    found = plan(scene)
    assert launched(found) == {"small": 2}
    assert found.actions[0].reason.startswith("pool main shall have 3 instances (its minimum)")
    assert plan(applied(scene, found)).actions == ()


def test_the_highest_target_counts_and_is_named() -> None:
    """Sources do not add up, and the reason says who asked."""
    targets = (TargetItem(MAIN, 2, "rest"), TargetItem(MAIN, 4, "schedule mon-fri"))
    found = plan(snapshot(pools=[pool(minimum=1)], targets=targets))
    assert launched(found) == {"small": 4}
    assert "the target of schedule mon-fri" in found.actions[0].reason


def test_of_a_pools_minimum_and_its_targets_the_highest_counts_whichever_is_told_first() -> None:
    for counts in ((2, 5, 3), (5, 3, 2), (3, 2, 5)):
        targets = tuple(TargetItem(MAIN, count, f"source {count}") for count in counts)
        for least, highest, source in (
            (0, 5, "source 5"),
            (4, 5, "source 5"),
            (5, 5, "its minimum"),
            (6, 6, "minimum"),
        ):
            found = plan(replace(snapshot(pools=[pool(minimum=least)]), targets=targets))
            assert launched(found) == {"small": highest}
            assert source in found.actions[0].reason


def test_what_demand_launches_counts_for_the_target() -> None:
    """Three wanted, two rented for tasks anyway: one more."""
    targets = (TargetItem(MAIN, 3, "rest"),)
    large = offering("large", cpus=8, memory=32, price=800)
    found = plan(snapshot([demand(shape(8), 2)], targets=targets, offerings=[offering(), large]))
    assert launched(found) == {"large": 2, "small": 1}


def test_busy_instances_count_for_the_target_and_held_ones_do_not() -> None:
    """A target is instances that serve."""
    supply = [
        instance(0, state=S.BUSY, load=busy(shape(), 1)), instance(1, behaviour=Behaviour.HOLD),
        instance(2, state=S.DRAINING),
    ]  # fmt: skip
    assert launched(plan(snapshot(supply=supply, targets=(TargetItem(MAIN, 2, "rest"),)))) == {"small": 1}


def test_a_lowered_target_lets_idle_surplus_go_only_when_every_source_allows_it() -> None:
    """One source that may not drain keeps the pool as it is."""
    supply = [instance(i, idle_since_ms=LONG_AGO) for i in range(3)]
    may = TargetItem(MAIN, 1, "rest")
    may_not = TargetItem(MAIN, 1, "script", may_drain=False)
    assert len(drained(plan(snapshot(supply=supply, targets=(may,))))) == 2
    assert drained(plan(snapshot(supply=supply, targets=(may, may_not)))) == {}


def test_a_target_beyond_a_cap_is_reported_short() -> None:
    """Caps bind targets too, and the plan says how many are missing and why."""
    found = plan(snapshot(targets=(TargetItem(MAIN, 5, "rest"),), caps=Caps(instances=2)))
    assert launched(found) == {"small": 2}
    (short,) = found.shortfalls
    assert short.missing == 3
    assert short.reason == "the target of rest wants 5 instances; cap of everything reached (instances 2 of 2)"


def test_a_target_while_paused_is_reported_short() -> None:
    """Nothing is launched, and nobody has to guess why."""
    found = plan(snapshot(targets=(TargetItem(MAIN, 1, "rest"),), stop=Stop(StopLevel.LAUNCHES, "for a test")))
    assert found.actions == ()
    assert found.shortfalls[0].reason.endswith("launching is stopped: for a test")


def test_a_target_of_an_unknown_pool_changes_nothing() -> None:
    """A request for a pool that left the configuration is not an error of the plan."""
    assert plan(replace(snapshot(), targets=(TargetItem(OTHER, 5, "rest"),))).actions == ()


@pytest.mark.parametrize("state", [S.IDLE, S.BUSY, S.OUT_OF_CONTACT])
def test_a_drain_of_everything_drains_what_works_and_ends_what_has_not_come_up(state: InstanceState) -> None:
    """What an operator holds stays, and what is being launched is ended once it is there."""
    supply = [
        instance(0, state=state, load=busy(shape(), 1)),
        instance(1, state=S.BOOTING),
        instance(2, state=S.LAUNCHING),
        instance(3, state=state, behaviour=Behaviour.HOLD),
    ]
    found = plan(snapshot([demand(shape(), 5)], supply=supply, stop=Stop(StopLevel.DRAIN, "too dear")))
    assert drained(found) == {supply[0].instance: "stopped"}
    assert terminated(found) == {supply[1].instance: "stopped"}
    assert not launched(found)
    assert "too dear" in found.waiting[0].reason


def test_the_end_of_everything_spares_nothing() -> None:
    """Neither what is held nor what can't be listed; what has no VM yet, and what is ending, needs no more."""
    states = (S.BOOTING, S.IDLE, S.BUSY, S.OUT_OF_CONTACT, S.UNKNOWN, S.DRAINING, S.DRAINED, S.FAILED, S.LOST)
    supply = [instance(i, state=each) for i, each in enumerate(states)]
    supply.append(instance(20, behaviour=Behaviour.HOLD))
    spared = [instance(30, state=S.LAUNCHING), instance(31, state=S.TERMINATING)]
    stop = Stop(StopLevel.TERMINATE, "stolen keys")
    found = plan(snapshot(supply=[*supply, *spared], silent=(AWS,), unknowns=True, stop=stop))
    assert terminated(found) == {row.instance: "stopped" for row in supply}
    assert len(found.actions) == len(supply), "each is told once"
    assert not drained(found)
    assert not launched(found)


def old(number: int = 0, **more: object) -> Supply:
    """An instance that declines the first of what waits."""
    return instance(number, declines=(0,), **more)  # type: ignore[arg-type]


def test_what_waits_is_not_for_who_declines_it() -> None:
    """It is launched for as if that one were not there; what it does not decline it is given."""
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[old()]))) == {"small": 1}
    both = [demand(shape(), 1), demand(shape(0.5), 1)]
    found = plan(snapshot(both, supply=[old()]))
    assert launched(found) == {"small": 1}
    assert launched(plan(snapshot(both[::-1], supply=[old()]))) == {"small": 1}
    assert launched(plan(snapshot(both[1:], supply=[instance()]))) == {}


def test_who_is_busy_or_boots_declines_too() -> None:
    """What is left on it now, and what comes free later: none of it is counted on."""
    pools = [pool(target_drain_ms=10 * MINUTE)]
    item = demand(shape(0.5), 2, expected_ms=MINUTE)
    for state, load in ((S.BUSY, busy(shape(0.5), 1)), (S.BOOTING, Load())):
        taking = instance(state=state, load=load)
        assert launched(plan(snapshot([item], supply=[taking], pools=pools))) == {}
        assert launched(plan(snapshot([item], supply=[replace(taking, declines=(0,))], pools=pools))) == {"small": 1}


def test_who_declines_makes_room_under_a_cap_also_where_its_pool_keeps_it() -> None:
    """The one instance that the pool shall have, and may: at once, one for each that is kept from being launched."""
    pools = [pool(minimum=1, caps=Caps(instances=1))]
    found = plan(snapshot([demand(shape(), 1)], supply=[old()], pools=pools))
    assert drained(found) == {"batch-0": "lifetime"}
    assert found.actions[0].reason == (
        "makes room under a cap for tasks of 1 cpu, 1GiB memory, which take longer than is left of its life"
    )
    many = [pool(minimum=3, caps=Caps(instances=3))]
    assert len(drained(plan(snapshot([demand(shape(), 1)], supply=[old(n) for n in range(3)], pools=many)))) == 1
    assert drained(plan(snapshot([demand(shape(), 1)], supply=[instance()], pools=pools))) == {}


def test_who_declines_stays_for_what_it_can_do() -> None:
    """As long as something else waits that it could begin now; or while nothing may be launched in its place."""
    pools = [pool(minimum=1, caps=Caps(instances=1))]
    waiting = [demand(shape(), 1), demand(shape(0.5), 1)]
    assert drained(plan(snapshot(waiting, supply=[old()], pools=pools))) == {}
    stopped = snapshot(waiting[:1], supply=[old(idle_since_ms=LONG_AGO)], pools=pools, stop=Stop(StopLevel.LAUNCHES))
    assert drained(plan(stopped)) == {}


def test_who_declines_is_kept_where_nobody_needs_its_place() -> None:
    """By its pool: however long it has been idle, where another one boots for what waits, nothing may or can be
    launched, a target is not to be lowered, or a cap keeps something else out that it could not run anyway."""
    kept, capped = [pool(minimum=1)], [pool(minimum=1, caps=Caps(instances=1))]
    one = old(idle_since_ms=LONG_AGO)
    item = demand(shape(), 1)
    assert drained(plan(snapshot([item], supply=[one], pools=kept))) == {}
    assert drained(plan(snapshot([item], supply=[one, instance(1, state=S.BOOTING)], pools=[pool(minimum=2)]))) == {}
    assert drained(plan(snapshot([replace(item, withheld="no money")], supply=[one], pools=capped))) == {}
    assert drained(plan(snapshot([item], supply=[one], pools=capped, offerings=()))) == {}
    target = TargetItem(MAIN, 1, "rest", may_drain=False)
    assert drained(plan(snapshot([item], supply=[one], pools=capped, targets=(target,)))) == {}
    large = demand(shape(8), 1)
    offerings = [offering(), offering("large", cpus=8, memory=32, price=800)]
    booting = instance(1, state=S.BOOTING)
    scene = snapshot([item, large], supply=[one, booting], pools=[pool(minimum=2)], offerings=offerings)
    assert drained(plan(replace(scene, caps=Caps(instances=2)))) == {}


def test_of_two_that_may_make_room_the_one_that_declines_does() -> None:
    """Though the other one, of a pool that the task is not for, is dearer."""
    pools = [pool(MAIN), pool(OTHER)]
    supply = [instance(0, offering("dear", price=300), of=OTHER, pools=pools), old(1)]
    item = demand(shape(pool=str(MAIN)), 1)
    found = plan(snapshot([item], supply=supply, pools=pools, caps=Caps(instances=2)))
    assert drained(found) == {"batch-1": "lifetime"}
    supply[1] = replace(supply[1], state=S.BUSY, load=busy(shape(), 1), idle_since_ms=None)
    found = plan(snapshot([item], supply=supply, pools=pools, caps=Caps(instances=2)))
    assert drained(found) == {"batch-0": "surplus"}


def test_who_makes_room_for_its_price_ends_by_that_cause() -> None:
    """What was refused for what it costs has a rate at most; what has none is too long for who declines it."""
    pools = [pool(minimum=1, caps=Caps(instances=1))]
    rented = [offering("cheap", price=10)]
    item = demand(shape(), 1, payer=Payer("poor", "ann"))
    most = rented[0].top_rate
    for most_rate, cause in ((most, "price"), (0, "lifetime")):
        scene = snapshot([replace(item, most_rate=most_rate)], supply=[old()], pools=pools, offerings=rented)
        assert drained(plan(scene)) == {"batch-0": cause}
