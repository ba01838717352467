"""Newer dispatchers bring other agents, which take over from those that run: with and without tasks nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_dispatch.agent import baggage, machine
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import AgentTiming, Scenario, Work
from tests.simulation.scenes import scene

#: Two replacements of the dispatcher, while tasks of four minutes run.
DEATHS = tuple(Fault(FaultKind.CRASH, at_ms, amount=2_000) for at_ms in (180_000, 240_000))


def upgraded(replace_ms: int, **work: Any) -> Scenario:
    conduct = Conduct(run_ms=240_000, log_bytes=4_000)
    return scene(
        Cloud.GCE,
        work=(Work(count=6, conduct=conduct, **work),),
        faults=DEATHS,
        agents=AgentTiming(kill_grace_ms=3_000, silence_ms=120_000, replace_ms=replace_ms),
    )


def taken_over(outcome: Outcome) -> list[int]:
    """How many tasks ran, for each time that an agent became another program."""
    return [int(line.split(" now, ")[1].split()[0]) for line in outcome.journal if "its agent is" in line]


def test_with_tasks_that_run_on_nothing_is_lost() -> None:
    outcome = run(upgraded(replace_ms=2_000))
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 2
    assert sum(tasks > 0 for tasks in taken_over(outcome)) >= 4, "each VM, twice"


def test_where_an_idle_moment_comes_in_time_no_task_runs_then() -> None:
    outcome = run(upgraded(replace_ms=3_600_000))
    assert outcome.ok, outcome.findings
    assert taken_over(outcome)
    assert not any(taken_over(outcome))


def test_a_task_that_is_left_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the next program hears of nothing that runs."""
    take_over = baggage.take_over

    def forgetful(agent: machine.Machine, known: baggage.Carried, now_ms: int) -> None:
        known.running.clear()
        take_over(agent, known, now_ms)

    monkeypatch.setattr(machine, "take_over", forgetful)
    outcome = run(upgraded(replace_ms=2_000))
    assert outcome.broken == {"P1 strays"}, outcome.findings
