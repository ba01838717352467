"""Windows, scales, bounds and splits of a workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.workload.cut import Cut, collect
from cloud_dispatch.simulation.workload.items import WorkItem, compact

SMALL = Shape(Resources(1000, GIB))


def item(submit_ms: int, *, count: int = 1, run_ms: int = 100, shape: Shape = SMALL) -> WorkItem:
    return WorkItem(submit_ms, shape, run_ms, count)


def test_neighbours_that_are_alike_become_one_item() -> None:
    """An array of equal tasks is one item with a count; what differs stays apart."""
    assert list(compact([item(0), item(0, count=2), item(5), item(0)])) == [item(0, count=3), item(5), item(0)]


def test_work_is_in_order_of_submission_whatever_the_order_of_the_log() -> None:
    """A log may be out of order; tasks of one moment keep the order in which they came."""
    found = collect([item(7), item(3, run_ms=2), item(3, run_ms=1)], Cut(), "log")
    assert [(one.submit_ms, one.run_ms) for one in found.items] == [(0, 2), (0, 1), (4, 100)]


def test_a_run_begins_with_the_first_submission() -> None:
    """A log may count from an epoch: its first task does not wait for half a century. A window begins where it is."""
    found = collect([item(1_700_000_000_000), item(1_700_000_060_000)], Cut(), "log")
    assert [one.submit_ms for one in found.items] == [0, 60_000]
    assert found.assumptions == ("the run begins with the first submission, at 1700000000s by the log's own time",)
    assert [one.submit_ms for one in collect([item(30)], Cut(from_ms=10), "log").items] == [20]
    assert [one.submit_ms for one in collect([item(30)], Cut(from_ms=0), "log").items] == [30]
    assert collect([item(0)], Cut(), "log").assumptions == ()


def test_a_window_holds_its_first_moment_and_not_its_last() -> None:
    """Times count from the window's start, and what lies outside is counted in the assumptions."""
    found = collect([item(9), item(10), item(19), item(20, count=4)], Cut(from_ms=10, until_ms=20), "log")
    assert [one.submit_ms for one in found.items] == [0, 9]
    assert found.assumptions == ("5 tasks outside the window 10ms to 20ms are left out",)


def test_the_bound_keeps_the_tasks_submitted_first() -> None:
    """Of an unordered log the earliest tasks are kept, of an array as many as still fit."""
    found = collect([item(30), item(10, count=2), item(20, count=5), item(40)], Cut(tasks=4), "log")
    assert [(one.submit_ms, one.count) for one in found.items] == [(0, 2), (10, 2)]
    assert found.assumptions[-1] == "only the first 4 tasks are taken, 5 later ones are left out"


def test_a_log_larger_than_the_bound_is_never_held() -> None:
    """While a long log is read, no more items live than tasks are wanted."""
    living = most = 0

    class Counted(WorkItem):
        def __init__(self, *values: object, **named: object) -> None:
            nonlocal living, most
            super().__init__(*values, **named)  # type: ignore[arg-type]
            living += 1
            most = max(most, living)

        def __del__(self) -> None:
            nonlocal living
            living -= 1

    def log() -> Iterator[WorkItem]:
        for moment in range(2000):
            yield Counted(moment, SMALL, moment)

    found = collect(log(), Cut(tasks=10), "log")
    assert found.tasks == 10
    assert 0 < most < 40


def test_scales_multiply_times_rounded_half_up() -> None:
    """Arrivals and run times have scales of their own; expectations follow the run times."""
    one = replace(item(3), expected_ms=7)
    found = collect([item(0), one], Cut(arrivals=Fraction(1, 2), runtimes=Fraction(3, 2)), "log")
    assert [(own.submit_ms, own.run_ms, own.expected_ms) for own in found.items] == [(0, 150, 0), (2, 150, 11)]
    assert found.assumptions == ("times between submissions are multiplied by 1/2", "run times are multiplied by 3/2")


def test_a_scale_makes_no_time_longer_than_a_log_may_have() -> None:
    """No clock and no statestore goes so far."""
    with pytest.raises(InvalidInput, match="log: expected no time above 100 years, scales included"):
        collect([item(0, run_ms=3_600_000)], Cut(runtimes=Fraction(1_000_000)), "log")


def test_a_wide_job_becomes_tasks_that_fit() -> None:
    """A job of 10 cpu split at 4 is two tasks of 4 and one of 2, each with its share of memory and disk."""
    wide = item(0, count=3, shape=Shape(Resources(10_000, 100, 50)))
    found = collect([wide], Cut(split_cpus_milli=4000), "log")
    assert [(own.shape.resources, own.count) for own in found.items] == [
        (Resources(4000, 40, 20), 6),
        (Resources(2000, 20, 10), 3),
    ]
    assert found.assumptions[0].startswith("3 tasks of more than 4 cpu are split")


def test_a_job_with_gpus_stays_whole() -> None:
    """GPUs can't be divided by cpus."""
    wide = item(0, shape=Shape(Resources(10_000, 100, 0, 2)))
    assert collect([wide], Cut(split_cpus_milli=4000), "log").items == (wide,)


def test_nothing_left_is_refused() -> None:
    """A window without tasks is a mistake that is told, not an empty run."""
    with pytest.raises(InvalidInput, match="log: expected at least one task in the window"):
        collect([item(1)], Cut(from_ms=5), "log")


@pytest.mark.parametrize(
    "bad",
    [
        {"from_ms": -1},
        {"from_ms": 5, "until_ms": 5},
        {"tasks": 0},
        {"runtimes": Fraction(0)},
        {"arrivals": Fraction(-1)},
    ],
)
def test_a_cut_that_makes_no_sense_is_refused(bad: dict[str, int]) -> None:
    """Windows that end before they begin, no tasks, scales below zero."""
    with pytest.raises(InvalidInput):
        Cut(**bad)  # type: ignore[arg-type]
