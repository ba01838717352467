"""Which failures say something of the machine: rows that are too improbable, by what others make of such work."""

from __future__ import annotations

from itertools import count

import pytest

from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Ended
from cloud_dispatch.reconcile import fitness
from cloud_dispatch.reconcile.fitness import FAILED_AFTER, LEAST_RESULTS, MOST_RESULTS, Fitness, Row, Unfit

GOOD, BAD = Cause.SUCCESS, Cause.EXIT_CODE


class Fleet:
    """Machines by their numbers, each with its row."""

    def __init__(self) -> None:
        self.fitness, self.rows, self.tasks = Fitness(), dict[int, Row](), count(1)

    def ends(self, machine: int, cause: Cause, times: int = 1, kind: str = "fit", task: int = 0) -> Unfit | None:
        """So many tasks end there, one after the other; what the first that says anything says of the machine."""
        row = self.rows.setdefault(machine, Row())
        for _ in range(times):
            one = Ended(TaskId(task or next(self.tasks)), cause, kind)
            if unfit := self.fitness.judge(InstanceId(f"i{machine}"), row, [one]):
                return unfit
        return None


@pytest.mark.parametrize("cause", [BAD, Cause.SIGNAL, Cause.OUTPUT_FAILED])
def test_a_row_of_failures_of_what_seldom_fails_elsewhere_is_the_machines(cause: Cause) -> None:
    fleet = Fleet()
    fleet.ends(1, GOOD, 40)
    assert fleet.ends(2, cause, FAILED_AFTER - 1) is None
    assert fleet.ends(2, cause) == Unfit(
        "tasks-fail", "5 tasks in a row failed here; of the last 40 of fit elsewhere 0 did"
    )


@pytest.mark.parametrize("cause", [Cause.TIMEOUT, Cause.OUT_OF_MEMORY, Cause.CANCELLED, Cause.PREEMPTED])
def test_other_ends_say_nothing(cause: Cause) -> None:
    fleet = Fleet()
    fleet.ends(1, GOOD, 40)
    assert fleet.ends(2, cause, 100) is None


def test_what_fails_everywhere_is_the_works_fault() -> None:
    """However much of it there is: an array of ten thousand whose program is not there."""
    fleet = Fleet()
    for _ in range(5_000):
        assert [fleet.ends(machine, BAD) for machine in range(1, 3)] == [None] * 2


def test_a_success_ends_the_row() -> None:
    fleet = Fleet()
    fleet.ends(1, GOOD, 40)
    for _ in range(50):
        assert fleet.ends(2, BAD, FAILED_AFTER - 1) is None
        fleet.ends(2, GOOD)


def test_a_new_row_is_as_probable_as_the_first() -> None:
    """Where three of ten fail anywhere, one of eight says nothing, however many there are."""
    fleet = Fleet()
    for _ in range(6):
        fleet.ends(1, BAD, 3)
        fleet.ends(1, GOOD, 7)
    for _ in range(2):
        assert fleet.ends(2, BAD, 8) is None
        fleet.ends(2, GOOD)


def test_a_machine_alone_is_compared_with_nothing() -> None:
    """Nor is one where the others have hardly done such work; nor work of which nobody remembers what it is."""
    fleet = Fleet()
    assert fleet.ends(1, BAD, 500) is None
    few = Fleet()
    few.ends(1, GOOD, LEAST_RESULTS - 1)
    assert few.ends(2, BAD, 500) is None
    nameless = Fleet()
    nameless.ends(1, GOOD, 40, kind="")
    assert nameless.ends(2, BAD, 500, kind="") is None


def test_other_work_is_no_measure() -> None:
    """A user's new program fails on the one machine that is free, while all others run his old one."""
    fleet = Fleet()
    fleet.ends(1, GOOD, 64, kind="old")
    assert fleet.ends(2, BAD, 500, kind="new") is None


def test_the_more_fails_elsewhere_the_longer_a_row_has_to_be() -> None:
    """Three of ten fail anywhere: rows of five are common, one of nine is not."""
    fleet = Fleet()
    for _ in range(6):
        fleet.ends(1, BAD, 3)
        fleet.ends(1, GOOD, 7)
    assert fleet.ends(2, BAD, 8) is None
    assert fleet.ends(2, BAD) is not None


def test_what_fails_everywhere_makes_no_row_of_what_does_not() -> None:
    """Sixty tasks of a program that is not there, then one of another, which may fail."""
    fleet = Fleet()
    fleet.ends(1, GOOD, MOST_RESULTS, kind="fit")
    for _ in range(60):
        assert fleet.ends(1, BAD, kind="gone") is fleet.ends(2, BAD, kind="gone") is None
    assert fleet.ends(2, BAD, FAILED_AFTER - 1) is None
    assert fleet.ends(2, BAD) is not None


def test_a_row_that_was_told_is_not_told_of_what_fails_everywhere() -> None:
    """It was kept, and meanwhile the others fail all of it too."""
    fleet = Fleet()
    fleet.ends(1, GOOD, MOST_RESULTS)
    assert fleet.ends(2, BAD, FAILED_AFTER) is not None
    for _ in range(MOST_RESULTS):
        fleet.ends(1, BAD)
    assert fleet.ends(2, BAD, 100) is None


def test_what_a_machine_fails_does_not_hide_what_others_do() -> None:
    """It fails thirty in the time in which one of twenty others brings a result: since a process began, so that nothing
    else was known before."""
    fleet = Fleet()
    for other in range(LEAST_RESULTS - 1):
        fleet.ends(100 + other, GOOD)
        assert fleet.ends(1, BAD, 30) is None
    fleet.ends(120, GOOD)
    assert fleet.ends(1, BAD, 2 * FAILED_AFTER) is not None


def test_work_that_turns_bad_drains_few_machines() -> None:
    """A thousand tasks in a row of an array fail, each as soon as it is begun, on the machine that is free; the others
    still run what succeeds."""
    fleet, drained = Fleet(), 0
    fleet.ends(0, GOOD, MOST_RESULTS)
    for _ in range(1_000):
        if fleet.ends(drained + 1, BAD) is not None:
            drained += 1
    assert 3 <= drained <= 12


def test_work_that_turns_bad_drains_few_of_many_machines() -> None:
    """Each of a hundred had one result of late: those that fail say so with more than one each."""
    fleet, drained = Fleet(), 0
    for machine in range(1_000, 1_100):
        fleet.ends(machine, GOOD)
    for _ in range(1_000):
        if fleet.ends(drained, BAD) is not None:
            drained += 1
    assert 3 <= drained <= 12


def test_a_task_that_fails_again_counts_once() -> None:
    """It is retried, here and on others."""
    fleet = Fleet()
    fleet.ends(1, GOOD, 40)
    for machine in (2, 3, 4):
        assert [fleet.ends(machine, BAD, task=10_000) for _ in range(50)] == [None] * 50


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first: tasks, kinds of work of which nothing ended for longest, results of one kind."""
    monkeypatch.setattr(fitness, "MOST_KINDS", 2)
    fleet = Fleet()
    for kind in ("a", "b", "c"):
        fleet.ends(1, GOOD, 3 * MOST_RESULTS, kind)
        fleet.ends(1, GOOD, kind="a")
    assert {kind: len(results.last) for kind, results in fleet.fitness._results.items()} == {
        "a": MOST_RESULTS, "c": MOST_RESULTS,
    }  # fmt: skip
