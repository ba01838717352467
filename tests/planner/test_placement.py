"""What counts as capacity: demand is fitted onto what runs and boots before anything is launched."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.pool import EndRules
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine, Shape, room_for
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.bins import Bin, Host
from cloud_dispatch.planner.needs import Need, Pace
from cloud_dispatch.planner.snapshot import DemandItem
from tests.planner.scenes import (
    MAIN,
    MINUTE,
    NOW,
    OTHER,
    applied,
    busy,
    demand,
    instance,
    launched,
    offering,
    pool,
    shape,
    snapshot,
)  # fmt: skip

S = InstanceState


@pytest.mark.parametrize("state", [S.INTENDED, S.LAUNCHING, S.BOOTING, S.IDLE])
def test_what_is_on_its_way_or_idle_is_not_launched_again(state: InstanceState) -> None:
    """One task, one instance that will take it: nothing is launched, in whatever state before work it is."""
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[instance(state=state)]))) == {}


@pytest.mark.parametrize("state", [S.DRAINING, S.DRAINED, S.FAILED, S.LOST, S.TERMINATING])
def test_what_is_ending_serves_nobody(state: InstanceState) -> None:
    """An instance on its way out takes no new work, so the task gets another one."""
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[instance(state=state)]))) == {"small": 1}


def test_an_unregistered_instance_stops_counting_after_its_boot_time() -> None:
    """Past the boot deadline it will be failed; the task must not wait for it."""
    late = instance(state=S.BOOTING, intended_ms=NOW - 10 * MINUTE)
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[late]))) == {"small": 1}
    in_time = instance(state=S.BOOTING, intended_ms=NOW - 10 * MINUTE + 1)
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[in_time]))) == {}


def test_a_launch_in_doubt_is_capacity_for_a_short_while_only() -> None:
    """An unanswered launch holds back another one for `doubt_ms`, then others may serve."""
    young = instance(state=S.LAUNCHING, in_doubt=True, intended_ms=NOW - 59_999)
    old = instance(state=S.LAUNCHING, in_doubt=True, intended_ms=NOW - 60_000)
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[young]))) == {}
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[old]))) == {"small": 1}


@pytest.mark.parametrize("state", [S.OUT_OF_CONTACT, S.UNKNOWN])
def test_a_short_silence_launches_nothing_and_a_long_one_does(state: InstanceState) -> None:
    """A network blip over a hundred instances must not rent a hundred more; a real loss must be replaced."""
    tasks = [demand(shape(), 100)]
    blip = [instance(i, state=state, since_ms=NOW - 59_999) for i in range(100)]
    loss = [instance(i, state=state, since_ms=NOW - 60_000) for i in range(100)]
    assert launched(plan(snapshot(tasks, supply=blip))) == {}
    assert launched(plan(snapshot(tasks, supply=loss))) == {"small": 100}


@pytest.mark.parametrize("rest", [{"behaviour": Behaviour.HOLD}, {"behaviour": Behaviour.DRAIN}, {"stale": "gone"}])
def test_held_drained_and_stale_instances_serve_nobody(rest: dict[str, object]) -> None:
    """What takes no work by an operator's or the configuration's word is no capacity."""
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[instance(**rest)]))) == {"small": 1}


def test_a_full_instance_serves_what_it_finishes_within_the_target_drain() -> None:
    """Ten-minute target, one-minute tasks: a busy slot serves nine more after the one that runs."""
    full = instance(state=S.BUSY, load=busy(shape(), 1))
    assert launched(plan(snapshot([demand(shape(), 9, expected_ms=MINUTE)], supply=[full]))) == {}
    assert launched(plan(snapshot([demand(shape(), 12, expected_ms=MINUTE)], supply=[full]))) == {"small": 1}


@pytest.mark.parametrize(("free_in", "follow"), [(0, 9), (MINUTE, 9), (4 * MINUTE + 1, 5), (9 * MINUTE, 1)])
def test_what_follows_begins_when_what_runs_is_done(free_in: int, follow: int) -> None:
    """Of the ten minutes only those count that are left by then."""
    full = instance(state=S.BUSY, load=busy(shape(), 1), free_ms=NOW + free_in)
    assert launched(plan(snapshot([demand(shape(), follow, expected_ms=MINUTE)], supply=[full]))) == {}
    assert launched(plan(snapshot([demand(shape(), follow + 1, expected_ms=MINUTE)], supply=[full]))) == {"small": 1}


@pytest.mark.parametrize(("free_in", "rented"), [(0, 1), (MINUTE, 1), (MINUTE + 1, 2)])
def test_a_long_task_follows_where_room_comes_free_before_another_instance_would_be_up(
    free_in: int, rented: int
) -> None:
    """One of half an hour, too long for what is planned ahead: renting for it would let it begin no sooner. Of two of
    them one has the slot."""
    small = offering(boot_ms=MINUTE)
    full = instance(rented=small, state=S.BUSY, load=busy(shape(), 1), free_ms=NOW + free_in)
    before = snapshot([demand(shape(), 2, expected_ms=30 * MINUTE)], supply=[full], offerings=[small])
    found = plan(before)
    assert launched(found) == {"small": rented}
    assert launched(plan(applied(before, found))) == {}


@pytest.mark.parametrize("rest", [{"stays": busy(shape(), 1)}, {"free_ms": NOW + 11 * MINUTE}])
@pytest.mark.parametrize("count", [1, 30])
def test_nothing_follows_on_what_is_not_expected_to_be_done(rest: dict[str, Any], count: int) -> None:
    """Little work too: nobody knows that what runs makes room for it, so one more instance is rented for it."""
    full = instance(state=S.BUSY, load=busy(shape(), 1), **rest)
    rented = offering(boot_ms=MINUTE)
    items = [demand(shape(), count, expected_ms=10_000)]
    before = snapshot(items, supply=[full], offerings=[rented])
    found = plan(before)
    assert launched(found) == {"small": 1}
    assert "follow" not in " ".join(w.reason for w in found.waiting)
    assert launched(plan(applied(before, found))) == {}


def test_what_is_done_soon_serves_beside_what_stays() -> None:
    """One task of unknown length on a large instance: the room of the short ones beside it comes free."""
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = instance(rented=large, state=S.BUSY, load=busy(shape(), 4), stays=busy(shape(), 1), free_ms=NOW + 10_000)
    for count in (1, 3 * 59):
        items = [demand(shape(), count, expected_ms=10_000)]
        assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == {}
    items = [demand(shape(), 3 * 59 + 6, expected_ms=10_000)]
    assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == {"large": 1}
    alone = demand(shape(exclusive=True), 1, expected_ms=10_000)
    assert launched(plan(snapshot([alone], supply=[used], offerings=[large]))) == {"large": 1}


def test_what_stays_counts_against_the_limit_of_its_shape() -> None:
    """Two beside each other, one of which stays: one slot serves after the other."""
    limited = shape(max_per_instance=2)
    large = offering("large", cpus=4)
    used = instance(rented=large, state=S.BUSY, load=busy(limited, 2), stays=busy(limited, 1))
    for count, expected in ((9, {}), (10, {"large": 1})):
        items = [demand(limited, count, expected_ms=MINUTE)]
        assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == expected


@pytest.mark.parametrize("wanted", [shape(4), shape(exclusive=True)])
@pytest.mark.parametrize("expected", [MINUTE, 5_000])
def test_who_has_waited_for_long_counts_no_more_on_room_that_several_have_to_leave(
    wanted: Shape, expected: int
) -> None:
    """What is smaller and waits takes what the first of them leaves, again and again: one more is rented, for little
    work too. The others follow as before."""
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = instance(rented=large, state=S.BUSY, load=busy(shape(), 4), free_ms=NOW + MINUTE)
    for waited, rented in ((10 * MINUTE - 1, {}), (10 * MINUTE, {"large": 1})):
        items = [demand(wanted, 3, expected_ms=expected, oldest_ms=NOW - waited)]
        before = snapshot(items, supply=[used], offerings=[large])
        found = plan(before)
        assert launched(found) == rented
        assert f"{3 - len(rented)} follow on instances that run" in found.waiting[0].reason
        assert launched(plan(applied(before, found))) == {}


@pytest.mark.parametrize(("waiting", "follow"), [(9, 8), (10, 9), (12, 9)])
def test_of_those_who_have_waited_for_long_just_one_counts_no_more_on_what_runs(waiting: int, follow: int) -> None:
    """Nine can follow, and do where there are as many besides."""
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = instance(rented=large, state=S.BUSY, load=busy(shape(), 4), free_ms=NOW + MINUTE)
    found = plan(
        snapshot([demand(shape(4), waiting, expected_ms=MINUTE, oldest_ms=1)], supply=[used], offerings=[large])
    )
    assert launched(found) == {"large": 1}
    reason = found.waiting[0].reason
    assert reason.startswith(f"{follow} follow on instances that run")
    assert f"{waiting - follow} start on instances that this plan launches" in reason


def test_who_has_waited_for_long_counts_no_more_on_turns_that_more_urgent_tasks_take() -> None:
    """What is more urgent and comes again and again takes each of them: then something is rented for one."""
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = instance(rented=large, state=S.BUSY, load=busy(shape(), 4), free_ms=NOW + MINUTE)
    urgent = demand(shape(), 36, expected_ms=MINUTE, priority=5, oldest_ms=NOW - 1)
    for waited, rented in ((10 * MINUTE - 1, {}), (10 * MINUTE, {"large": 1})):
        items = [urgent, demand(shape(1, 2), 1, expected_ms=5_000, oldest_ms=NOW - waited)]
        assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == rented


@pytest.mark.parametrize(("runs", "wanted"), [
    (busy(shape(4), 1), shape(4)), (busy(shape(), 4), shape()), (busy(shape(2), 2), shape(2)),
    (busy(shape(), 1), shape(exclusive=True)), (busy(shape(), 2), shape(3)),
])  # fmt: skip
def test_however_long_it_has_waited_it_counts_on_room_that_one_task_leaves(runs: Load, wanted: Shape) -> None:
    """With what is free already: then its turn comes like that of all others."""
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = instance(rented=large, state=S.BUSY, load=runs, free_ms=NOW + MINUTE)
    items = [demand(wanted, 2, expected_ms=MINUTE, oldest_ms=1)]
    assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == {}


def test_what_stays_brings_no_turn() -> None:
    """Two of four are expected to be done: the end of one makes room for one cpu, not for two."""
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = instance(rented=large, state=S.BUSY, load=busy(shape(), 4), stays=busy(shape(), 2), free_ms=NOW + MINUTE)
    for wanted, rented in ((shape(1), {}), (shape(2), {"large": 1})):
        items = [demand(wanted, 1, expected_ms=MINUTE, oldest_ms=1)]
        assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == rented


def test_no_turn_comes_on_an_instance_that_ends_before_it_takes_another_task() -> None:
    """The end of its one task is no reason to wait for another instance, on which several have to end."""
    pools = [pool(), pool(OTHER, end=EndRules(max_tasks=1))]
    large = offering("large", cpus=4, boot_ms=MINUTE)
    used = [
        instance(of, large, S.BUSY, load=load, of=of, pools=pools, free_ms=NOW + MINUTE)
        for of, load in ((MAIN, busy(shape(), 2)), (OTHER, busy(shape(4), 1)))
    ]
    items = [demand(shape(4), 1, expected_ms=MINUTE, oldest_ms=1)]
    for supply in (used[:1], used):
        assert launched(plan(snapshot(items, supply=supply, pools=pools, offerings=[large]))) == {"large": 1}


def test_a_full_instance_serves_nothing_of_unknown_runtime() -> None:
    """Nobody knows when its slot comes free, so a task of unknown runtime gets its own."""
    full = instance(state=S.BUSY, load=busy(shape(), 1))
    assert launched(plan(snapshot([demand(shape(), 1)], supply=[full]))) == {"small": 1}


def test_a_large_task_waits_for_the_whole_of_a_partly_used_instance() -> None:
    """4 cpus of which 3 are in use will be free within the target: a 4-cpu task needs no new instance."""
    large = offering("large", cpus=4)
    used = instance(rented=large, state=S.BUSY, load=busy(shape(3), 1))
    items = [demand(shape(4, 1), 1, expected_ms=MINUTE)]
    assert launched(plan(snapshot(items, supply=[used], offerings=[large]))) == {}


def test_memory_limits_what_fits_although_cpus_are_free() -> None:
    """Packing is in all dimensions: 4 cpus with 4 GiB hold one task of 1 cpu and 3 GiB."""
    rented = offering("wide", cpus=4, memory=4)
    items = [demand(shape(1, 3), 2)]
    assert launched(plan(snapshot(items, supply=[instance(rented=rented)], offerings=[rented]))) == {"wide": 1}


def test_small_tasks_leave_the_large_instance_to_the_large_task() -> None:
    """One small and one large idle instance serve one small and one large task, in whatever order they are listed."""
    large = offering("large", cpus=8, memory=32, price=800)
    supply = [instance(1, large), instance(0)]
    items = [demand(shape(), 1, oldest_ms=1), demand(shape(8), 1, oldest_ms=2)]
    assert launched(plan(snapshot(items, supply=supply, offerings=[offering(), large]))) == {}


def test_a_pool_that_limits_tasks_at_once_limits_what_an_instance_serves() -> None:
    """Two tasks at once at most: four tasks need a second instance although the cpus would do."""
    pools = [pool(max_tasks_per_instance=2)]
    rented = offering("large", cpus=8, memory=32)
    supply = [instance(rented=rented, pools=pools)]
    found = plan(snapshot([demand(shape(), 4)], supply=supply, pools=pools, offerings=[rented]))
    assert launched(found) == {"large": 1}


def test_a_shape_that_limits_tasks_per_instance_counts_those_that_run() -> None:
    """At most two of the shape beside each other: one runs, one fits, the third needs another instance."""
    limited = shape(max_per_instance=2)
    rented = offering("large", cpus=8, memory=32)
    supply = [instance(rented=rented, state=S.BUSY, load=busy(limited, 1))]
    assert launched(plan(snapshot([demand(limited, 1)], supply=supply, offerings=[rented]))) == {}
    assert launched(plan(snapshot([demand(limited, 2)], supply=supply, offerings=[rented]))) == {"large": 1}


def test_an_exclusive_task_takes_an_instance_for_itself() -> None:
    """A used instance does not serve it, and what serves it serves nothing else."""
    rented = offering("large", cpus=8, memory=32)
    alone = shape(exclusive=True)
    used = instance(rented=rented, state=S.BUSY, load=busy(shape(), 1))
    assert launched(plan(snapshot([demand(alone, 1)], supply=[used], offerings=[rented]))) == {"large": 1}
    items = [demand(alone, 1), demand(shape(), 1)]
    found = plan(snapshot(items, supply=[instance(rented=rented)], offerings=[rented]))
    assert launched(found) == {"large": 1}


def test_labels_are_asked_of_what_runs() -> None:
    """An idle instance in zone a is nothing to a task that must run in zone b."""
    here, there = offering(zone="a"), offering(zone="b")
    items = [demand(shape(labels=(("zone", "b"),)), 1)]
    found = plan(snapshot(items, supply=[instance(rented=here)], offerings=[here, there]))
    assert [action.offering.zone for action in found.actions if hasattr(action, "offering")] == ["b"]


def test_an_instance_that_ends_after_some_tasks_serves_no_more_than_these() -> None:
    """Short tasks, but each instance ends after 5: twenty tasks need four."""
    pools = [pool(end=EndRules(max_tasks=5))]
    items = [demand(shape(), 20, expected_ms=1_000)]
    assert launched(plan(snapshot(items, pools=pools, offerings=[offering(boot_ms=0)]))) == {"small": 4}


@pytest.mark.parametrize(("most", "there", "boots"), [(1, 0, 20), (5, 0, 4), (5, 1, 3), (20, 1, 0), (0, 1, 0)])
def test_tasks_too_short_for_a_boot_do_not_wait_for_who_ends_after_some(most: int, there: int, boots: int) -> None:
    """They would follow on what boots, where that takes more than it is to: else each so many want a boot anyway."""
    pools = [pool(end=EndRules(max_tasks=most))]
    coming = [instance(f"c-{number}", state=S.BOOTING, pools=pools) for number in range(there)]
    items = [demand(shape(), 20, expected_ms=1_000)]
    found = plan(snapshot(items, supply=coming, pools=pools, offerings=[offering(boot_ms=60_000)]))
    assert sum(launched(found).values()) == boots


def test_capacity_of_another_pool_does_not_serve_a_task_that_names_its_pool() -> None:
    """Idle capacity elsewhere is no reason to let such a task wait."""
    pools = [pool(MAIN), pool(OTHER)]
    items = [demand(shape(pool=str(OTHER)), 1)]
    found = plan(snapshot(items, supply=[instance(pools=pools)], pools=pools))
    assert [action.pool for action in found.actions if hasattr(action, "offering")] == [OTHER]


AMOUNTS = st.integers(0, 6)
SHAPES = st.builds(
    lambda cpus, memory, disk, gpus, exclusive, limit, label: Shape(
        Resources(cpus * 500, memory * GIB, disk * GIB, gpus), exclusive=exclusive, max_per_instance=limit,
        labels=(("zone", "a"),) if label else (),
    ),
    AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 2), st.booleans(), st.integers(0, 3), st.booleans(),
)  # fmt: skip
MACHINES = st.builds(
    lambda cpus, memory, disk, gpus, tasks, label: Machine(
        Resources(cpus * 500, memory * GIB, disk * GIB, gpus), max_tasks=tasks,
        labels=(("zone", "a"),) if label else (),
    ),
    st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 3), st.integers(0, 4), st.booleans(),
)  # fmt: skip


@given(machine=MACHINES, running=st.lists(SHAPES, max_size=4), wanted=SHAPES)
def test_free_slots_agree_with_the_domains_own_answer(machine: Machine, running: list[Shape], wanted: Shape) -> None:
    """The planner's fast arithmetic says exactly what `room_for` says, for any machine, load and shape."""
    load = Load()
    for other in running:
        if room_for(machine, load, other, 1):
            load = load.plus(other)
    need = Need(0, DemandItem(wanted, 1))
    host = Host(machine)
    group = Bin(host, Pace(0, 0, MINUTE, 0, 0, 0), 1, load, ())
    ours = min(max(group.slots_now(need), 0), 1000) if host.can(need) else 0
    assert ours == room_for(machine, load, wanted, 1000)


@given(machine=MACHINES, wanted=SHAPES)
def test_whether_a_machine_runs_a_shape_at_all_agrees_with_the_domain(machine: Machine, wanted: Shape) -> None:
    """`can` means that an empty machine has room for one."""
    assert Host(machine).can(Need(0, DemandItem(wanted, 1))) is (room_for(machine, Load(), wanted, 1) == 1)
