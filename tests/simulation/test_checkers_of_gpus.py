"""Who uses a VM's GPUs: bugs of the agent are planted, and each has to be found in a whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.agent import baggage, claims, machine
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.checkers.base import Process
from cloud_dispatch.simulation.checkers.gpus import Gpus
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.demands import selling_more
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import AgentTiming, Scenario, Work
from tests.simulation.scenes import scene
from tests.simulation.test_checkers_alone import Truth

Plant = Callable[[pytest.MonkeyPatch], None]


def shared() -> Scenario:
    """One VM of four GPUs, tasks of one or two and of none that begin and end at different times, and an agent that is
    replaced while they run, by that of a newer dispatcher."""
    usual = scene()
    accounts = tuple(selling_more(account) for account in usual.accounts)
    lasting = [
        (1, 400_000),
        (1, 60_000),
        (0, 90_000),
        (1, 250_000),
        (1, 70_000),
        (2, 80_000),
        (1, 50_000),
        (1, 400_000),
    ]
    work = tuple(
        Work(shape=Shape(Resources(500, GIB, gpus=gpus), gpu_type="l4" if gpus else ""), conduct=Conduct(run_ms=run_ms))
        for gpus, run_ms in lasting
    )
    pool = replace(usual.pools[0], caps=replace(usual.pools[0].caps, instances=1))
    agents = AgentTiming(kill_grace_ms=3_000, silence_ms=120_000, replace_ms=2_000)
    newer = (Fault(FaultKind.CRASH, 180_000, amount=2_000),)
    return msgspec.structs.replace(usual, accounts=accounts, pools=(pool,), work=work, agents=agents, faults=newer)


def test_without_a_bug_nothing_is_found() -> None:
    """Tasks with GPUs run beside each other, and when their agent is replaced some do."""
    outcome = run(shared(), keep=200)
    assert outcome.ok, outcome.findings
    assert any("its agent is" in line and " now, 0 " not in line for line in outcome.journal)


def always_the_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "lend", lambda wanted, there, held: tuple(range(wanted)))


def one_too_many(patch: pytest.MonkeyPatch) -> None:
    lend = claims.lend
    patch.setattr(claims, "lend", lambda wanted, there, held: lend(wanted + 1, there + 1, held))


def free_again_once_they_are_handed_over(patch: pytest.MonkeyPatch) -> None:
    take_over = baggage.take_over

    def forgetful(agent: machine.Machine, known: baggage.Carried, now_ms: int) -> None:
        for attempt in known.running:
            attempt.gpus = ()
        take_over(agent, known, now_ms)

    patch.setattr(machine, "take_over", forgetful)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (always_the_first, "both use GPU 0"),
        (one_too_many, "asked for 1 GPUs and is told of (0, 1)"),
        (free_again_once_they_are_handed_over, "both use GPU"),
    ],
)
def test_what_an_agent_lends_wrongly_is_found(plant: Plant, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    outcome = run(shared(), keep=50)
    said = [str(finding) for finding in outcome.findings]
    assert any(finding.checker == "gpus" and text in finding.text for finding in outcome.findings), said


# -- alone


def watched() -> tuple[Truth, Gpus]:
    kind = SimpleNamespace(name="four", capacity=Resources(4_000, GIB, gpus=4))
    settings = SimpleNamespace(sells=[SimpleNamespace(type=kind)])
    view = Truth(SimpleNamespace(accounts=[SimpleNamespace(profile="a", settings=settings)]))
    return view, Gpus(view)  # type: ignore[arg-type]


def process(token: int, *gpus: int, vm: str = "vm-1", born_ms: int = 0) -> Process:
    there: Any = SimpleNamespace(id=vm, profile="a", type="four", birth=("a", vm, born_ms))
    return Process(there, token, token, 0, gpus=gpus, asked_gpus=len(gpus))


def test_what_was_given_back_and_what_another_vm_has_is_no_finding() -> None:
    view, checker = watched()
    first = process(1, 0, 3)
    checker.process_started(first)
    checker.process_started(process(2, 0, vm="vm-2"))
    checker.process_started(process(3, 0, born_ms=5))  # a VM of the same name, when that one is gone
    checker.process_started(process(4))
    checker.process_ended(first)
    checker.process_started(process(5, 3))
    assert view.found == []
    checker.process_started(process(6, 3))
    assert view.found == ["tokens 5 and 6 both use GPU 3 of vm-1"]


def test_a_gpu_that_is_none_and_one_told_twice_are_found() -> None:
    view, checker = watched()
    checker.process_started(process(1, 4))
    checker.process_started(process(2, 1, 1))
    assert view.found[0] == "task 1 is told of GPU 4 of vm-1, which has 4"
    assert view.found[1] == "task 2 on vm-1 asked for 2 GPUs and is told of (1, 1)"
