"""The last work of an instance: what it could not finish before its end is begun on another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Caps, EndRules
from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore import endings
from tests.simulation.scenes import SELDOM, scene
from tests.simulation.test_checkers import found

MINUTE_MS = 60_000
ALONE = Shape(Resources(1_000, GIB), exclusive=True)


def work(count: int, minutes: int, *, shape: Shape = ALONE, told: bool = True) -> Work:
    return Work(0, count, shape, Conduct(minutes * MINUTE_MS), minutes * MINUTE_MS * told, max_attempts=3)


def begun(outcome: Outcome) -> int:
    """How often a command was started. No promise was broken."""
    assert outcome.ok, outcome.findings
    return sum("runs task" in line for line in outcome.journal)


def aging(cloud: Cloud, *items: Work, lifetime_minutes: int = 30) -> Scenario:
    """One machine at a time, each of which lives for so long."""
    usual = scene(cloud, work=items, caps=Caps(instances=1), horizon_ms=8 * 60 * MINUTE_MS)
    (pool,) = usual.pools
    end = EndRules(idle_ms=20_000, lifetime_ms=lifetime_minutes * MINUTE_MS)
    return replace_pools(usual, replace(pool, end=end))


def replace_pools(scenario: Scenario, *pools: Any) -> Scenario:
    return scene(*(one.settings.cloud for one in scenario.accounts), work=scenario.work, caps=scenario.caps,
                 horizon_ms=scenario.horizon_ms, pools=pools, budgets=scenario.budgets, pace=scenario.pace)  # fmt: skip


@pytest.mark.parametrize("cloud", Cloud)
def test_nothing_is_begun_that_a_lifetime_would_cut_off(cloud: Cloud) -> None:
    """Eight tasks of ten minutes, on machines that live for half an hour: two on each, none of them in vain."""
    outcome = run(aging(cloud, work(8, 10)))
    assert begun(outcome) == 8
    assert sum("is registered as" in line for line in outcome.journal) == 4


@pytest.mark.parametrize("cloud", Cloud)
def test_without_that_it_is(monkeypatch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    """Planted: nobody looks at what is left of a life. It is seen at once."""
    monkeypatch.setattr(ClaimTerms, "remaining", lambda self, instance, now_ms: None)
    found(run(aging(cloud, work(6, 12))), "waste", "720000 ms, and has")


def test_who_declines_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whatever is known to take a while is declined by everybody, however young."""
    monkeypatch.setattr(ClaimTerms, "remaining", lambda self, instance, now_ms: Remaining(0, 1 << 62))
    usual = scene(work=(work(2, 1),), horizon_ms=10 * MINUTE_MS)
    found(run(usual), "starvation", "has room for")


def test_what_takes_longer_than_any_life_is_tried_all_the_same() -> None:
    """An expectation of two hours that is wrong, and a life of half an hour: no machine goes without having worked."""
    wrong = Work(0, 3, ALONE, Conduct(5 * MINUTE_MS), 120 * MINUTE_MS)
    outcome = run(aging(Cloud.EC2, wrong))
    assert begun(outcome) == 3
    assert sum("is registered as" in line for line in outcome.journal) == 1


def test_nobody_knows_how_long_it_takes() -> None:
    """Then it is begun, and its machine's lifetime is what may end it."""
    outcome = run(aging(Cloud.EC2, work(2, 5, told=False)))
    assert begun(outcome) == 2


def later(at_minutes: int, count: int, minutes: int, *, shape: Shape = ALONE) -> Work:
    one = work(count, minutes, shape=shape)
    return msgspec.structs.replace(one, submit_ms=at_minutes * MINUTE_MS)


HALF = Shape(Resources(1_000, GIB))


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize(
    ("items", "at_once", "machines"),
    [
        # an array of long ones and an array of short ones: old machines have the short ones
        ((work(4, 15), work(16, 1, shape=replace(ALONE, labels=(("market", "on-demand"),)))), 4, 6),
        # it has nothing to do when the long one comes
        ((work(1, 16), later(18, 1, 12)), 4, 2),
        # a part of it is free, and the rest is not for long
        ((work(1, 16, shape=HALF), later(10, 1, 20, shape=HALF)), 4, 2),
        # the first of the queue takes long, and others like it do not
        ((work(1, 20), later(1, 1, 15), later(1, 4, 1)), 1, 2),
    ],
)
def test_whatever_waits_nothing_is_cut_off(cloud: Cloud, items: tuple[Work, ...], at_once: int, machines: int) -> None:
    outcome = run(msgspec.structs.replace(aging(cloud, *items), caps=Caps(instances=at_once)))
    assert begun(outcome) == sum(item.count for item in items)
    assert sum("is registered as" in line for line in outcome.journal) <= machines


def test_a_machine_that_a_pool_keeps_is_replaced_for_what_it_is_too_old_for() -> None:
    """The one that there shall be, and may be; it has had nothing to do for an hour."""
    usual = aging(Cloud.EC2, later(20, 1, 15), lifetime_minutes=30)
    (pool,) = usual.pools
    outcome = run(replace_pools(usual, replace(pool, minimum=1)))
    assert begun(outcome) == 1
    assert any("draining" in line and "left of its life" in line for line in outcome.journal)


def limited(*items: Work, **fields: Any) -> Scenario:
    """Google's machines, whose ends can't be moved on, under a limit that pays for everything."""
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(1_000_000_000))
    pace = Pace(lease_ms=120_000, drain_ms=20_000)
    return scene(Cloud.GCE, work=items, budgets=(budget,), pace=pace, horizon_ms=8 * 60 * MINUTE_MS, **fields)


def test_an_end_that_is_set_once_does_for_all_that_is_taken_at_first() -> None:
    """A short task is the first of the queue, and long ones fit beside it."""
    small = Shape(Resources(500, GIB // 2))
    outcome = run(limited(work(1, 1, shape=small), work(3, 20, shape=replace(small, preemptible=False))))
    assert begun(outcome) == 4


def test_nothing_is_begun_in_vain_while_nothing_can_be_launched() -> None:
    """An operator has stopped launches: what there is too little time for waits until he lets them go on."""
    stop = Fault(FaultKind.STOP_ALL, 60_000, 100 * MINUTE_MS, which=1)
    usual = aging(Cloud.EC2, work(3, 10))
    outcome = run(msgspec.structs.replace(usual, faults=(stop,)))
    assert begun(outcome) == 3
    (third,) = [int(line.split()[0]) for line in outcome.journal if "runs task 3 " in line]
    assert third > 100 * MINUTE_MS


def test_one_long_task_has_no_fleet_drained() -> None:
    """Of three machines that are old, and have short ones to do, one makes way: it has a higher priority than they."""
    many = [Work(0, 90, replace(ALONE, resources=Resources(500, GIB)), Conduct(30_000), 30_000)]
    long = Work(14 * MINUTE_MS, 1, ALONE, Conduct(20 * MINUTE_MS), 20 * MINUTE_MS, priority=5)
    usual = msgspec.structs.replace(aging(Cloud.EC2, *many, long), caps=Caps(instances=3))
    outcome = run(usual)
    assert begun(outcome) == 91
    lines = list(outcome.journal)
    begins = next(n for n, line in enumerate(lines) if "runs task 91 " in line)
    causes = [line.split()[-1] for line in lines[:begins] if " draining " in line and " store instance " in line]
    assert causes == ["turn"]
    assert any("runs task 90 " in line for line in lines[begins:]), "the others go on meanwhile"


def test_an_end_that_is_set_once_is_not_come_by_with_the_next_task() -> None:
    """The second long task is begun on a machine of its own, not in the lease that the first one has left."""
    outcome = run(limited(work(4, 20), caps=Caps(instances=1)))
    assert begun(outcome) == 4
    assert sum("is registered as" in line for line in outcome.journal) == 4


def registered(outcome: Outcome) -> int:
    return sum("is registered as" in line for line in outcome.journal)


@pytest.mark.parametrize(("minutes", "seconds"), [(20, 0), (26, 45), (27, 0), (27, 30), (29, 50)])
@pytest.mark.parametrize("cloud", Cloud)
def test_nobody_declines_what_it_was_launched_for(cloud: Cloud, minutes: int, seconds: int) -> None:
    """Almost a whole life long: else one would be launched after the other, and none would do."""
    run_ms = minutes * MINUTE_MS + seconds * 1_000
    one = Work(0, 1, ALONE, Conduct(run_ms - 5 * MINUTE_MS), run_ms, max_attempts=3)
    outcome = run(msgspec.structs.replace(aging(cloud, one), caps=Caps(instances=10)))
    assert (begun(outcome), registered(outcome)) == (1, 1)


def test_an_end_that_was_set_for_others_has_no_storm_of_launches_made() -> None:
    """Twenty short tasks come first, whose machines' ends are near, and a long one, which none of them is given: it has
    a machine of its own when theirs are under way."""
    short = msgspec.structs.replace(work(20, 1), priority=5)
    long = work(1, 180, shape=replace(ALONE, preemptible=False))
    usual = msgspec.structs.replace(limited(short, long, caps=Caps(instances=200)), pace=Pace())
    (pool,) = usual.pools
    pools = (replace(pool, target_drain_ms=10 * MINUTE_MS),)
    outcome = run(msgspec.structs.replace(usual, pools=pools))
    assert begun(outcome) == 21
    assert registered(outcome) <= 12


def test_an_end_that_just_does_is_enough() -> None:
    """Where the limit pays for hardly more than what the work takes, and the machine boots later than expected."""
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(120_000))
    usual = limited(work(1, 60))
    for seed in (1, 2, 3):
        outcome = run(msgspec.structs.replace(usual, budgets=(budget,), pace=Pace(), seed=seed))
        assert (begun(outcome), registered(outcome)) == (1, 1)


def test_expectations_that_are_always_wrong_are_learnt_from() -> None:
    """They say 25 minutes and take one: machines that live for half an hour do more than one of them."""
    outcome = run(aging(Cloud.EC2, Work(0, 60, ALONE, Conduct(MINUTE_MS), 25 * MINUTE_MS)))
    assert begun(outcome) == 60
    assert registered(outcome) <= 3


def test_an_end_that_was_set_by_what_was_said_is_judged_by_that() -> None:
    """Of a shape whose tasks have taken longer than they said: else nobody would ever be given the long one."""
    hasty = Work(0, 2, ALONE, Conduct(10_000), 1_000)
    outcome = run(limited(hasty, later(3, 1, 20), caps=Caps(instances=1)))
    assert begun(outcome) == 3
    assert registered(outcome) <= 2


@pytest.mark.parametrize("told", [True, False])
def test_what_was_cut_off_has_longer_the_next_time(told: bool) -> None:
    """Others of its shape are done in five minutes, or say so: an end that is set by that cuts off what takes a
    hundred, and the next one does not cut it off at the same moment again."""
    short = Work(0, 5, ALONE, Conduct(5 * MINUTE_MS), 5 * MINUTE_MS * told)
    long = Work(10 * MINUTE_MS, 3, ALONE, Conduct(100 * MINUTE_MS), MINUTE_MS * told, max_attempts=5)
    outcome = run(msgspec.structs.replace(limited(short, long, caps=Caps(instances=20), timing=SELDOM), pace=Pace()))
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == 8
    assert begun(outcome) <= 5 + 3 * 4


def test_else_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what was cut off is expected to take as long as before."""
    monkeypatch.setattr(endings, "_outlasted", lambda batch, lot, ran_ms: lot.expected_ms)
    with pytest.raises(AssertionError):
        test_what_was_cut_off_has_longer_the_next_time(True)
