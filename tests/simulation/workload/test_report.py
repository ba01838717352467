"""The figures of a run, each computed by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName, TaskId
from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.simulation.record import Record, Rental, Run, TaskTimes
from cloud_dispatch.simulation.report import SAMPLES, Parts, Spread, as_json, covered, report, spread

#: A micro-dollar a second.
CHEAP = Rate(3_600_000)
DONE = TaskState.SUCCEEDED


def task(
    number: int, submit: int = 0, started: int | None = 0, ended: int | None = 0, state: TaskState = DONE, cpus: int = 1
) -> TaskTimes:
    return TaskTimes(TaskId(number), submit, started, ended, state, Shape(Resources(cpus * 1000, 1)))


def run(number: int, start: int, end: int | None, cause: Cause | None = Cause.SUCCESS, instance: str = "i-0") -> Run:
    return Run(TaskId(number), InstanceId(instance), start, end, cause)


def rental(
    launched: int = 0, registered: int | None = 0, ended: int | None = 0, *, name: str = "i-0",
    rate: Rate | None = CHEAP, kind: str = "t", billed: int | None = None, minimum_ms: int = 0,
    prices: tuple[tuple[int, int], ...] = (),
) -> Rental:  # fmt: skip
    return Rental(
        InstanceId(name), PoolName("p"), ProfileName("x"), kind, "z", Market.ON_DEMAND, 2000, launched, registered,
        ended, rate, minimum_ms, 1, None if billed is None else Amount(billed), prices=prices,
    )  # fmt: skip


def record(
    tasks: Sequence[TaskTimes] = (), runs: Sequence[Run] = (), rentals: Sequence[Rental] = (), end: int = 100_000
) -> Record:
    return Record(tuple(tasks), tuple(runs), tuple(rentals), end)


def test_an_instances_life_is_split_into_boot_work_idle_and_lost() -> None:
    """10 s boot; runs of two tasks that overlap cover 20 s to 50 s; a preempted run 60 s to 70 s; the rest idle."""
    runs = [
        run(1, 20_000, 40_000),
        run(2, 30_000, 50_000),
        run(3, 60_000, 70_000, Cause.PREEMPTED),
        run(3, 75_000, 80_000, instance="elsewhere"),
    ]
    found = report(record([task(1), task(2), task(3)], runs, [rental(0, 10_000, 100_000)]))
    assert found.time == Parts(boot=10_000, work=30_000, lost=10_000, idle=50_000)
    assert found.cost == Parts(boot=10, work=30, lost=10, idle=50)
    assert found.work_permille == 300


def test_a_run_that_had_to_be_repeated_is_lost_though_the_task_failed_by_itself() -> None:
    """Only the last attempt's result counts; before it the machine ran for nothing."""
    runs = [run(1, 0, 4_000, Cause.EXIT_CODE), run(1, 4_000, 10_000)]
    assert report(record([task(1)], runs, [rental(0, 0, 10_000)])).time == Parts(work=6_000, lost=4_000)


def test_a_failed_task_that_is_not_repeated_was_work() -> None:
    """The user asked for it and got its answer."""
    runs = [run(1, 0, 4_000, Cause.EXIT_CODE)]
    assert report(record([task(1)], runs, [rental(0, 0, 4_000)])).time == Parts(work=4_000)


def test_failures_are_counted_by_what_ended_them_last() -> None:
    """A task that succeeded in the end has none, whatever ended it before; one that never ran has no cause."""
    failed = TaskState.FAILED
    tasks = [task(1), task(2, state=failed), task(3, state=failed), task(4, state=failed), task(5, state=failed)]
    runs = [
        run(1, 0, 1, Cause.PREEMPTED), run(1, 1, 2), run(2, 0, 1, Cause.EXIT_CODE), run(2, 1, 2, Cause.PREEMPTED),
        run(3, 0, 1, Cause.PREEMPTED), run(4, 0, 1, Cause.TIMEOUT),
    ]  # fmt: skip
    assert as_json(report(record(tasks, runs)))["failed_by"] == {"preempted": 2, "timeout": 1}


def test_where_counted_and_lost_runs_overlap_it_is_work() -> None:
    """A machine that does something useful is working, whatever else it does."""
    runs = [run(1, 0, 6_000), run(2, 2_000, 9_000, Cause.INSTANCE_LOST)]
    assert report(record([task(1), task(2)], runs, [rental(0, 0, 10_000)])).time == Parts(
        work=6_000, lost=3_000, idle=1_000
    )


def test_an_instance_that_never_registered_is_lost_and_one_that_still_boots_is_not() -> None:
    """A boot that failed is money for nothing; one under way is a boot."""
    assert report(record(rentals=[rental(0, None, 5_000)])).time == Parts(lost=5_000)
    assert report(record(rentals=[rental(0, None, None)], end=5_000)).time == Parts(boot=5_000)


def test_what_still_runs_counts_up_to_the_end_of_the_record() -> None:
    """A running task and a living instance have no end; the makespan is not known."""
    running = task(1, ended=None, state=TaskState.RUNNING)
    found = report(record([running], [run(1, 2_000, None, None)], [rental(0, 1_000, None)], end=7_000))
    assert found.time == Parts(boot=1_000, idle=1_000, work=5_000)
    assert found.makespan_ms is None
    assert as_json(found)["unfinished"] == 1


def test_runs_seen_outside_an_instances_life_do_not_lengthen_it() -> None:
    """The dispatcher may hear of an end later than the cloud ended the VM."""
    assert report(record([task(1)], [run(1, 0, 9_000)], [rental(0, 1_000, 5_000)])).time == Parts(
        boot=1_000, work=4_000
    )


def test_minimum_billing_is_split_like_the_time() -> None:
    """60 s are billed for 10 s: 2 s of boot and 8 s of work share 60 micro-dollars."""
    found = report(record([task(1)], [run(1, 2_000, 10_000)], [rental(0, 2_000, 10_000, minimum_ms=60_000)]))
    assert found.cost == Parts(boot=12, work=48)


def test_the_clouds_own_meter_beats_the_rate() -> None:
    """Where the meter's amount is known it is the cost."""
    found = report(record([task(1)], [run(1, 0, 10_000)], [rental(0, 0, 20_000, billed=7)]))
    assert found.cost.total == 7


def test_money_goes_to_what_was_under_way_when_it_was_charged() -> None:
    """10 s boot at 1, work of 10 s at 9, then idle: 5 s at 9, 5 s at 1, and 10 s that are not billed at all."""
    prices = ((0, 1_000), (10_000, 9_000), (25_000, 1_000), (30_000, 0))
    found = report(record([task(1)], [run(1, 10_000, 20_000)], [rental(0, 10_000, 40_000, billed=150, prices=prices)]))
    assert found.time == Parts(boot=10_000, work=10_000, idle=20_000)
    assert found.cost == Parts(boot=10, work=90, idle=50)


def test_what_costs_only_after_its_end_is_split_like_the_time() -> None:
    """Something to go by is needed where nothing was charged in its own time."""
    found = report(record([task(1)], [run(1, 2_000, 8_000)], [rental(0, 2_000, 8_000, billed=8, prices=((9_000, 1),))]))
    assert found.cost == Parts(boot=2, work=6)


def test_an_unknown_price_is_counted_and_not_taken_for_free() -> None:
    """The sum says of how many instances it knows nothing."""
    found = report(record(rentals=[rental(0, 0, 5_000, rate=None), rental(0, 0, 5_000, name="i-1")]))
    assert (found.unpriced, found.cost.total) == (1, 5)
    assert [line["unpriced"] for line in as_json(found)["instances"]["by_type"]] == [1]


def test_instances_are_summed_by_type() -> None:
    """A line a profile, type and market, in order of name."""
    found = report(record(rentals=[rental(kind="b", ended=1_000), rental(kind="a", ended=2_000), rental(kind="b")]))
    assert [(line.type, line.count, line.cost.total) for line in found.types] == [("a", 1, 2), ("b", 2, 1)]


def test_waits_end_with_the_first_start_and_percentiles_are_of_real_waits() -> None:
    """Ten waits of 1 s to 10 s: the median is the fifth, p90 the ninth, p99 and max the tenth."""
    tasks = [task(n, submit=100, started=100 + n * 1000, ended=20_000) for n in range(10, 0, -1)]
    assert report(record(tasks)).wait == Spread(10, 5_500, 5_000, 9_000, 10_000, 10_000)


def test_tasks_that_never_started_have_no_wait() -> None:
    """They are counted by state instead."""
    found = report(record([task(1, started=None, ended=None, state=TaskState.QUEUED), task(2, 0, 5, 9)]))
    assert found.wait.count == 1
    assert found.tasks == {TaskState.QUEUED: 1, TaskState.SUCCEEDED: 1}


def test_a_wait_of_nobody_is_no_wait_of_zero() -> None:
    """Where no task started the worst configuration would look like the best."""
    found = as_json(report(record([task(1, started=None, ended=None, state=TaskState.QUEUED)])))
    nothing = {"count": 0, "mean": None, "p50": None, "p90": None, "p99": None, "max": None}
    assert (found["wait_ms"], found["turnaround_ms"]) == (nothing, nothing)


def test_the_makespan_is_from_the_first_submission_to_the_last_end() -> None:
    """Whatever order the tasks are in, and whatever instances there were before."""
    tasks = [task(1, 500, 600, 9_500), task(2, 1_000, 1_000, 2_000)]
    assert report(record(tasks)).makespan_ms == 9_000
    assert report(record(tasks, rentals=[rental(0, 0, 9_900)])).makespan_ms == 9_000


def test_cpu_use_is_of_the_cpu_time_paid_for() -> None:
    """A task of 1 cpu for 5 s on a machine of 2 cpu for 10 s uses a quarter; a lost run uses nothing."""
    runs = [run(1, 0, 5_000), run(2, 0, 5_000, Cause.PREEMPTED)]
    assert report(record([task(1), task(2)], runs, [rental(0, 0, 10_000)])).cpu_permille == 250


def test_instances_over_time_keep_the_area_and_the_peak() -> None:
    """Two instances, one of 120 s and one of 30 s in its middle: steps of a second, their area is 150 s."""
    found = report(record(rentals=[rental(0, 0, 120_000), rental(45_500, 50_000, 75_500, name="i-1")]))
    assert len(found.curve) == SAMPLES
    assert sum(sample.mean_milli for sample in found.curve) == 150_000
    by_second = {sample.at_ms: sample for sample in found.curve}
    assert (by_second[44_000].most, by_second[45_000].mean_milli, by_second[45_000].most) == (1, 1500, 2)
    assert (by_second[75_000].most, by_second[76_000].most) == (2, 1)
    assert found.most_instances == 2


def test_a_long_run_has_no_more_samples_than_a_short_one() -> None:
    """The curve is bounded, whatever the length."""
    many = [rental(n * 977, n * 977, n * 1013 + 5, name=f"i-{n}") for n in range(500)]
    assert 0 < len(report(record(rentals=many)).curve) <= SAMPLES


def test_a_run_of_nothing_has_a_report() -> None:
    """No tasks, no instances: zeros, and JSON of them."""
    found = report(record(), ["nothing was assumed"])
    assert (found.makespan_ms, found.time, found.curve) == (None, Parts(), ())
    assert json.loads(json.dumps(as_json(found)))["assumptions"] == ["nothing was assumed"]


def test_covered_time_counts_overlaps_once() -> None:
    """Intervals that overlap, touch, lie inside one another or are empty."""
    assert covered([(5, 9), (0, 3), (2, 4), (6, 7), (9, 10), (20, 20)]) == 9


def test_a_spread_of_one_value_is_that_value() -> None:
    """And one of none is zeros."""
    assert spread([7]) == Spread(1, 7, 7, 7, 7, 7)
    assert spread([]) == Spread()


times = st.integers(0, 50_000)


@given(
    st.lists(st.tuples(times, times, times, st.integers(0, 10**10)), max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), times, times, st.sampled_from(Cause)), max_size=12),
)
def test_parts_sum_exactly_whatever_happened(
    lives: list[tuple[int, int, int, int]], attempts: list[tuple[int, int, int, int, Cause]]
) -> None:
    """Milliseconds sum to the instances' lives and micro-dollars to their amounts; nothing is negative."""
    rentals = []
    for number, (a, b, c, rate) in enumerate(lives):
        launched, registered, ended = sorted((a, b, c))
        rentals.append(rental(launched, registered, ended, name=f"i-{number}", rate=Rate(rate), kind=f"t{number % 2}"))
    runs = [run(n, *sorted((a, b)), cause, f"i-{i}") for n, i, a, b, cause in attempts]
    found = report(record([task(n) for n in range(4)], runs, rentals))
    assert found.time.total == sum(own.ended_ms - own.launched_ms for own in rentals if own.ended_ms is not None)
    nano = [(own.rate or 0) * ((own.ended_ms or 0) - own.launched_ms) for own in rentals]
    assert found.cost.total == sum(-(-amount // 3_600_000_000) for amount in nano)
    for parts in (found.time, found.cost):
        assert min(parts.boot, parts.work, parts.idle, parts.lost) >= 0


@pytest.mark.parametrize("part", ["boot", "work", "idle", "lost", "total"])
def test_json_has_every_part_of_the_cost(part: str) -> None:
    """Programs find the split by name."""
    assert part in as_json(report(record()))["cost_micro"]
