"""Configurations that become others while a dispatcher runs: every promise holds, and what they say comes about."""

from __future__ import annotations

import re

import pytest

from cloud_dispatch.domain.money import Amount
from cloud_dispatch.reconcile import leaving
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import CONFIGURED
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from tests.simulation.scenes import broken, scene

SEEDS = 6
FROM_MS, UNTIL_MS = 60_000, 900_000
FEWER, NO_POOL, LESS_MONEY, NO_PROFILE = range(4)


@pytest.mark.parametrize("theme", CONFIGURED)
def test_every_promise_holds_whatever_the_configuration_becomes(theme: str) -> None:
    assert broken(theme, SEEDS) == ""


def configured(which: int, *clouds: Cloud, amount: int = 0, faults: tuple[Fault, ...] = ()) -> Outcome:
    """48 tasks of a minute; for a while the configuration is another."""
    fault = Fault(FaultKind.CONFIGURE, FROM_MS, UNTIL_MS, amount, which=which)
    work = (Work(count=48, conduct=Conduct(run_ms=60_000)),)
    budgets = (Budget(EVERYTHING, Window.TOTAL, Amount(200_000)),) if which == LESS_MONEY else ()
    outcome = run(scene(*clouds, work=work, budgets=budgets, faults=(fault, *faults)), keep=200_000)
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 48  # type: ignore[index]
    return outcome


def lives(outcome: Outcome, cloud: str = "") -> list[tuple[int, int]]:
    """When VMs came into being and were no more by their clouds' own word, milliseconds of the run."""
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    for moment, vm, what in re.findall(r"^ *(\d+) (\S+) (pending|gone)$", outcome.journal.text(), re.M):
        if vm.startswith(cloud):
            (begun if what == "pending" else ended).setdefault(vm, int(moment))
    return sorted((at, ended[vm]) for vm, at in begun.items())


def begun_meanwhile(outcome: Outcome) -> list[int]:
    found = [begun for begun, _ in lives(outcome)]
    assert any(begun < FROM_MS for begun in found), "the scene shows nothing"
    return [begun for begun in found if FROM_MS + 5_000 < begun < UNTIL_MS]


@pytest.mark.parametrize("which", [FEWER, NO_POOL, LESS_MONEY])
def test_nothing_is_launched_that_it_does_not_allow(which: int) -> None:
    """From the moment on; what runs is finished, and the rest when it allows it again."""
    outcome = configured(which, Cloud.EC2)
    assert not begun_meanwhile(outcome)


def test_it_is_that_of_the_dispatcher_that_comes_next_too() -> None:
    crash = Fault(FaultKind.CRASH, FROM_MS + 100, amount=10_000)
    assert not begun_meanwhile(configured(FEWER, Cloud.EC2, faults=(crash,)))


def on_gce(outcome: Outcome) -> list[tuple[int, int]]:
    return [life for life in lives(outcome, "us-central1") if life[0] < FROM_MS]


def test_the_vms_of_a_profile_that_left_are_ended_while_it_is_away() -> None:
    """By the driver that it had; the others do its work meanwhile."""
    outcome = configured(NO_PROFILE, Cloud.EC2, Cloud.GCE, amount=1)
    assert on_gce(outcome), "the scene shows nothing"
    assert max(end for _, end in on_gce(outcome)) < FROM_MS + 180_000
    assert begun_meanwhile(outcome), "on the other"
    assert "instance-lost" not in outcome.journal.text()


def test_a_driver_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: nobody can end its VMs any more until it is back."""
    monkeypatch.setattr(leaving, "kept", lambda before, after, rows: after)
    outcome = configured(NO_PROFILE, Cloud.EC2, Cloud.GCE, amount=1)
    assert max(end for _, end in on_gce(outcome)) > UNTIL_MS
