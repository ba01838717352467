"""Checkers can fail, continued: what is to end and does not, and ends that are told otherwise than they were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cloud_dispatch.agent import machine
from cloud_dispatch.agent.enforce import Enforcer
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.checkers.base import Process
from cloud_dispatch.simulation.checkers.orders import Orders
from cloud_dispatch.simulation.checkers.results import Results
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.facts import Commit, EndedAttempt, LiveTask
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.statestore.loading import tokens_by
from tests.simulation.scenes import scene
from tests.simulation.test_checkers import found
from tests.simulation.test_checkers_alone import Truth

NOTHING = Commit(new_tasks=(), live=(), ended=(), attempts=(), instances=(), pruned=frozenset())
LONG = Conduct(run_ms=300_000)
#: The token of a run's first claim.
FIRST = tokens_by(EPOCH_MS) + 1


def limited(**fields: Any) -> Scenario:
    return scene(work=(Work(count=2, conduct=LONG, max_runtime_ms=20_000, max_attempts=1),), **fields)


def cancelled(**fields: Any) -> Scenario:
    return scene(work=(Work(count=1, conduct=LONG),), faults=(Fault(FaultKind.CANCEL, 120_000),), **fields)


def test_without_a_bug_nothing_is_found() -> None:
    """The scenes that the bugs are planted into keep every promise, an agent that hangs included."""
    for one in (limited(), cancelled()):
        outcome = run(one, keep=50)
        assert outcome.ok, outcome.findings
        assert outcome.virtual_ms < 300_000, "what is to end was waited for"
    assert run(limited(faults=(Fault(FaultKind.AGENT_HANG, 75_000),)), keep=50).ok


def test_orders_finds_a_run_time_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent never looks at it."""
    monkeypatch.setattr(Enforcer, "_runtime_end", lambda self, attempt: None)
    found(run(limited(), keep=50), "orders", "it may for 20000")


def test_orders_finds_a_kill_that_stops_at_the_first_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not listen to SIGTERM is never killed."""
    deaf = Conduct(run_ms=300_000, ignores_term=True)
    monkeypatch.setattr(Enforcer, "_follows", lambda self, attempt, now_ms: False)
    found(run(scene(work=(Work(count=1, conduct=deaf, max_runtime_ms=20_000),)), keep=50), "orders", "it may for 20000")


def test_orders_finds_a_cancel_that_is_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is told and goes on."""
    monkeypatch.setattr(Machine, "_cancel", lambda self, token, now_ms: None)
    found(run(cancelled(), keep=50), "orders", "task 1 is cancelled since 12")


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("success", f"ended by success under token {FIRST} as (1, None), but its command as ('exit-code', 1, None)"),
        ("signal", f"ended by signal under token {FIRST} as (1, None)"),
    ],
)
def test_p1_finds_an_end_that_is_told_otherwise(monkeypatch: pytest.MonkeyPatch, told: str, text: str) -> None:
    """A command fails, and its agent reports something else."""
    monkeypatch.setattr(machine, "final_cause", lambda attempt, cause: told if cause == "exit-code" else cause)
    fails = Conduct(run_ms=20_000, cause=Cause.EXIT_CODE, exit_code=1)
    found(run(scene(work=(Work(count=1, conduct=fails, max_attempts=1),)), keep=50), "P1 results", text)


# -- alone


def truth(**fields: Any) -> Any:
    scenario = SimpleNamespace(
        faults=fields.pop("faults", ()),
        agents=SimpleNamespace(kill_grace_ms=1_000),
        timing=SimpleNamespace(heartbeat_ms=5_000, poll_ms=10_000),
    )
    found = Truth(scenario)
    found.now_ms, found.healthy_since_ms = 0, 0  # type: ignore[attr-defined]
    return found


def process(**fields: Any) -> Process:
    there: Any = SimpleNamespace(id="vm-1", drift_ppm=fields.pop("drift_ppm", 0))
    return Process(there, 7, 3, 0, **fields)


@pytest.mark.parametrize(
    ("ran_ms", "more", "complains"),
    [
        (13_000, {}, False),  # 10 s, its grace, and what signals take
        (13_001, {}, True),
        (13_001, {"unkillable": True}, False),
        (13_001, {"max_runtime_ms": 0}, False),
        (13_224, {"drift_ppm": -20_000}, False),  # its clock is slow
        (13_225, {"drift_ppm": -20_000}, True),
        (12_785, {"drift_ppm": 20_000}, True),
    ],
)
def test_a_run_time_is_what_it_may_be_and_what_it_takes_to_kill(
    ran_ms: int, more: dict[str, Any], complains: bool
) -> None:
    """Whether it is seen at its end or in a look; once."""
    for told in ("process_ended", "look"):
        view = truth()
        checker, one = Orders(view), process(**{"max_runtime_ms": 10_000, **more})
        checker.process_started(one)
        view.now_ms = ran_ms
        checker.process_ended(one) if told == "process_ended" else checker.look()
        checker.look()
        assert len(view.found) == complains, told


def test_an_agent_that_hangs_has_until_it_is_ended() -> None:
    """Longer than the longest of the scenario's, nobody waits."""
    view = truth(faults=[Fault(FaultKind.AGENT_HANG, 1)])
    checker, one = Orders(view), process(max_runtime_ms=10_000)
    checker.process_started(one)
    for view.now_ms in (78_000, 78_001):
        assert view.found == []
        checker.look()
    assert len(view.found) == 1


def cancelling(token: int = 3, state: str = "cancelling") -> Commit:
    lives = LiveTask(TaskId(7), state, 1, FencingToken(token), InstanceId("i"))
    return Commit(new_tasks=(), live=(lives,), ended=(), attempts=(), instances=(), pruned=frozenset())


@pytest.mark.parametrize(
    ("more", "complains"),
    [
        ({}, True),
        ({"healthy_since_ms": None}, False),  # a fault holds
        ({"healthy_since_ms": 100}, False),  # or did until just now
        ({"token": 4}, False),  # what runs is another attempt, of which other checkers know
        ({"unkillable": True}, False),
        ({"after": Commit((), (), [(TaskId(7), "cancelled")], (), (), frozenset())}, False),
        ({"after": cancelling(state="queued")}, False),  # the VM is gone, and the task waits to be cancelled
        ({"restored": True}, False),
    ],
)
def test_a_cancel_is_carried_out_once_the_agent_can_have_heard_of_it(more: dict[str, Any], complains: bool) -> None:
    """At most two answers and a kill later; it is told once."""
    view = truth()
    checker = Orders(view)
    view.processes[1] = process(unkillable=more.get("unkillable", False))
    checker.committed(cancelling(more.get("token", 3)))
    checker.committed(more.get("after", NOTHING))
    if more.get("restored"):
        checker.restored()
    view.healthy_since_ms = more.get("healthy_since_ms", 0)
    for view.now_ms in (23_000, 23_001, 23_002):
        checker.look()
        assert len(view.found) == (complains and view.now_ms > 23_000)


def test_only_a_commands_own_end_is_held_against_it() -> None:
    """What was done to it, such as a kill for its run time, is told as that, however it died."""
    view = truth()
    checker = Results(view)
    for cause, exit_code, complains in (("timeout", None, False), ("exit-code", 75, False), ("exit-code", 1, True)):
        one = process()
        one.end = ("exit-code", 75, None)
        checker.process_ended(one)
        attempt = EndedAttempt(7, one.token, 1, "i", cause, exit_code)
        before = len(view.found)
        checker.committed(Commit((), (), (), [attempt], (), frozenset()))
        assert len(view.found) - before == complains
