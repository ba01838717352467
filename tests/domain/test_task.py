"""What the end of an attempt means for its task."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.errors import IllegalTransition
from cloud_dispatch.domain.task import (
    HELD,
    TASK_TABLE,
    TERMINAL,
    Cause,
    Outcome,
    RetryRules,
    TaskEvent,
    TaskState,
    event_after,
)


def after(cause: Cause, attempts: int = 1, rules: RetryRules = RetryRules(), **more: object) -> TaskEvent:
    return event_after(Outcome(cause, **more), rules, attempts, cancelling=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(Cause.EXIT_CODE, 3), "exit-code 3"),
        (Outcome(Cause.SIGNAL, signal=9), "signal 9"),
        (Outcome(Cause.TIMEOUT, signal=15), "timeout"),
        (Outcome(Cause.CANNOT_START, detail="command not found: fit"), "cannot-start, command not found: fit"),
    ],
)
def test_an_outcome_is_described_once(outcome: Outcome, words: str) -> None:
    """The cause as retry rules name it, its number, and what nothing else says."""
    assert outcome.describe() == words


def test_success_ends_the_task() -> None:
    """The only way to succeed."""
    assert after(Cause.SUCCESS) is TaskEvent.SUCCEED


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.INSTANCE_LOST, Cause.CANNOT_START])
def test_machine_causes_are_retried_until_attempts_run_out(cause: Cause) -> None:
    """Twice more by default, then the task fails."""
    assert [after(cause, n) for n in (1, 2, 3)] == [TaskEvent.RETRY, TaskEvent.RETRY, TaskEvent.FAIL]


@pytest.mark.parametrize("cause", [Cause.EXIT_CODE, Cause.SIGNAL, Cause.TIMEOUT, Cause.OUT_OF_MEMORY])
def test_a_tasks_own_failures_are_not_retried_unless_asked(cause: Cause) -> None:
    """A failing program fails again; who wants it tried again says so."""
    assert after(cause, exit_code=1) is TaskEvent.FAIL
    assert after(cause, rules=RetryRules(causes=frozenset({cause})), exit_code=1) is TaskEvent.RETRY


def test_single_exit_codes_can_be_retried() -> None:
    """75 (temporary failure) is retried, 1 is not."""
    rules = RetryRules(exit_codes=frozenset({75}))
    assert after(Cause.EXIT_CODE, rules=rules, exit_code=75) is TaskEvent.RETRY
    assert after(Cause.EXIT_CODE, rules=rules, exit_code=1) is TaskEvent.FAIL


def test_a_cancelled_task_ends_cancelled_whatever_its_attempt_says() -> None:
    """Even a success that arrives late."""
    assert event_after(Outcome(Cause.SUCCESS), RetryRules(), 1, cancelling=True) is TaskEvent.CANCELLED


def test_states_are_either_waiting_held_or_terminal() -> None:
    """Every state belongs to exactly one of the three kinds, and terminal ones have no exits."""
    assert set(TaskState) == HELD | TERMINAL | {TaskState.QUEUED}
    assert all(not TASK_TABLE.exits(state) for state in TERMINAL)


def test_an_impossible_arrow_is_a_programmers_error() -> None:
    """A terminal task can't be started."""
    with pytest.raises(IllegalTransition, match="a task that is succeeded has no arrow for start"):
        TASK_TABLE.apply(TaskState.SUCCEEDED, TaskEvent.START)
