"""One health check, without an agent around."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_dispatch.agent.checks import CheckRun
from cloud_dispatch.agent.folders import NoneFree
from cloud_dispatch.wire.messages import HealthCheck

TAKEN = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT)


def outcome(error: Exception, *, beside: bool) -> bool | None:
    """What is told of a check that meets `error` at its start."""
    told: list[tuple[int, bool | None, str]] = []

    def spawn(*_: object) -> int:
        raise error

    processes: Any = SimpleNamespace(spawn=spawn)
    open_before = os.listdir("/proc/self/fd")
    run = CheckRun(3, HealthCheck(["check"]), processes, {}, beside, lambda *words: told.append(words))
    assert not run.begin()
    assert os.listdir("/proc/self/fd") == open_before
    ((index, passed, _),) = told
    assert index == 3
    return passed


@pytest.mark.parametrize("number", TAKEN)
def test_what_tasks_have_taken_all_of_says_nothing_of_the_machine(number: int) -> None:
    """A task that fills the disk or the table of processes would have all others killed with it. Where there is none,
    it is the machine that has no room."""
    error = OSError(number, os.strerror(number))
    assert outcome(error, beside=True) is None
    assert outcome(error, beside=False) is False


def test_other_errors_are_failures() -> None:
    """But for a user that is still being cleaned up after."""
    assert outcome(FileNotFoundError(errno.ENOENT, "no such file"), beside=True) is False
    assert outcome(NoneFree("every uid is in use"), beside=False) is None


def test_a_check_that_finds_no_descriptor_ends_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made outside of what is caught."""

    def full(*_: object) -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe2", full)
    told: list[bool | None] = []
    none: Any = None
    run = CheckRun(0, HealthCheck(["check"]), none, {}, True, lambda _, passed, __: told.append(passed))
    assert not run.begin()
    assert told == [None]
