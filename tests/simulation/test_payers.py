"""Limits of projects in whole runs: a meter of its own never passes them, on VMs that projects share."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.money import HOUR_MS, Amount
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.generate import of_theme
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore import paying
from cloud_dispatch.statestore.payers import Payers
from tests.simulation.plants import PLANTS
from tests.simulation.scenes import scene
from tests.simulation.test_spend import total, under

POOR, BOB = Key(Scope.PROJECT, "poor"), Key(Scope.USER, "bob")


def shared(scenario: Scenario) -> Scenario:
    """Its work done for two projects, half and half."""
    work = []
    for one in scenario.work:
        half = max(one.count // 2, 1)
        work.append(msgspec.structs.replace(one, count=half, project="poor", user="ann"))
        work.append(msgspec.structs.replace(one, count=max(one.count - half, 1), project="rich", user="bob"))
    return msgspec.structs.replace(scenario, work=tuple(work))


def of(project: str, count: int, run_ms: int = 120_000, expected_ms: int = 0) -> Work:
    return Work(count=count, conduct=Conduct(run_ms=run_ms), expected_ms=expected_ms, project=project)


def done(outcome: Outcome) -> int:
    return outcome.tasks["succeeded"]  # type: ignore[index]


def found(outcome: Outcome, checker: str = "P3 payers") -> list[str]:
    return [str(finding) for finding in outcome.findings if finding.checker == checker]


@pytest.mark.parametrize(
    "theme", ["calm", "crashes", "agents", "clouds-and-crashes", "mishaps", "spot", "restore", "clock", "fleet"]
)
@pytest.mark.parametrize("seed", range(2))
def test_no_project_passes_its_limit_whatever_goes_wrong(theme: str, seed: int) -> None:
    """Nor does a user; the deployment has a limit besides."""
    budgets = [total(0.3 + seed / 5, POOR), total(0.5, BOB), total(5)]
    outcome = run(under(shared(of_theme(theme, seed)), *budgets))
    assert outcome.ok, outcome.findings


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize("expected_ms", [0, 120_000])
def test_a_project_at_its_limit_leaves_the_other_working(cloud: Cloud, expected_ms: int) -> None:
    """All of the one is done, some of the other, and what is not paid for keeps no VM. Where an end can't be moved a
    task of unknown length may take the VM's whole lifetime: it is begun when others have told how long it takes."""
    work = (of("poor", 12, expected_ms=expected_ms), of("rich", 12, expected_ms=expected_ms))
    outcome = run(under(scene(cloud, work=work), total(1.0, POOR)))
    assert outcome.ok, outcome.findings
    assert 12 < done(outcome) < 24
    alone = run(under(scene(cloud, work=work[1:]), total(1_000, POOR)))
    assert done(alone) == 12


def test_an_ample_limit_of_a_project_changes_nothing() -> None:
    outcome = run(under(scene(Cloud.EC2, work=(of("poor", 6), of("rich", 6))), total(10_000, POOR)))
    assert outcome.ok, outcome.findings
    assert done(outcome) == 12


@pytest.mark.parametrize("expected_ms", [0, 120_000])
def test_who_can_not_pay_burns_at_most_a_vm(expected_ms: int) -> None:
    """Whatever the limit is: what is launched is launched for what is done."""
    for cents in (0.001, 0.1, 0.2, 0.25, 0.3, 0.35, 0.5):
        outcome = run(under(scene(Cloud.EC2, work=(of("poor", 12, expected_ms=expected_ms),)), total(cents, POOR)))
        assert outcome.ok, outcome.findings
        vms = {line.vm for line in outcome.bill if not line.vm.endswith("-disk")}
        assert len(vms) <= min(done(outcome), 1), (cents, outcome.bill)


def test_a_claim_that_is_refused_where_it_is_made_launches_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where VMs turn out dearer than what was reckoned with: one is launched in vain, and no other."""
    monkeypatch.setattr("cloud_dispatch.reconcile.payers.affordable", lambda context, demand: demand)
    outcome = run(under(scene(Cloud.EC2, work=(of("poor", 1, expected_ms=120_000),)), total(0.1, POOR)))
    assert outcome.ok, outcome.findings
    assert done(outcome) == 0
    assert len({line.batch for line in outcome.bill}) == 1


def overstaying(**fields: Any) -> Scenario:
    """Two tasks that take far longer than they said."""
    return scene(Cloud.EC2, work=(of("poor", 2, 1_800_000, 60_000),), **fields)


def test_a_rule_that_admits_every_claim_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "refusal", lambda *_: None)
    monkeypatch.setattr(Standing, "room", lambda self, wanted, most: most)
    outcome = run(under(scene(work=(of("poor", 9, 200_000),)), total(0.2, POOR)))
    assert found(outcome), outcome.findings


def test_a_hard_end_that_is_moved_on_whatever_claims_may_cost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, the VM ends with what runs on it, and the log says once why."""
    outcome = run(under(overstaying(), total(1.0, POOR)), keep=200_000)
    assert outcome.ok, outcome.findings
    told = [line for line in outcome.journal.text().splitlines() if "instance.not_extended" in line]
    assert all("why=task" in line and "the budget project poor total" in line for line in told)
    assert 0 < len(told) <= len({line.batch for line in outcome.bill})
    monkeypatch.setattr(paying, "raise_all", lambda *_: None)
    assert found(run(under(overstaying(), total(1.0, POOR)), sought="P3 payers"))


def test_a_short_task_is_done_before_a_long_one_that_its_limit_does_not_pay_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: who claims looks no further than the first of a line. It is seen that VMs have room."""
    long = of("poor", 1, 36_000_000, 36_000_000)
    work = (long, *(of(project, 3, 300_000, 300_000) for project in ("poor", "rich")))
    scenario = under(scene(Cloud.EC2, work=work, horizon_ms=3_600_000), total(2, POOR))
    outcome = run(scenario)
    assert outcome.ok, outcome.findings
    assert done(outcome) == 6
    looked = paying._first_of_each
    monkeypatch.setattr(paying, "_first_of_each", lambda *of_line: islice(looked(*of_line), 1))
    assert found(run(scenario, sought="starvation"), "starvation")


def test_an_end_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that cost nothing once they are over."""
    work = (of("poor", 40, 120_000, 120_000),)
    assert found(run(under(scene(Cloud.EC2, work=work), total(1.0, POOR)))) == []
    monkeypatch.setattr(Payers, "settle", lambda *_: None)
    monkeypatch.setattr("cloud_dispatch.statestore.purse.Purse.charge", lambda *_: None)
    assert found(run(under(scene(Cloud.EC2, work=work), total(1.0, POOR)), sought="P3 payers"))


def over_the_hour(cents: float, count: int, run_ms: int) -> Scenario:
    """More work of a project than its limit of an hour pays for, from ten minutes before the hour on."""
    budget = replace(total(cents, POOR), window=Window.HOUR)
    work = (of("poor", count, run_ms, run_ms),)
    begins_ms = HOUR_MS - 600_000
    return under(scene(Cloud.EC2, work=work, horizon_ms=3 * HOUR_MS), budget, begins_ms=begins_ms)


def test_each_hour_has_its_own_limit() -> None:
    """What is used in all is more than the limit, and in none of the hours."""
    scenario = over_the_hour(1.0, 40, 120_000)
    hourly, whole = run(scenario), run(under(scenario, total(1.0, POOR)))
    assert (hourly.findings, whole.findings) == ((), ())
    assert done(hourly) > 1.5 * done(whole) > 0


def test_a_claim_that_goes_on_in_a_later_hour_without_being_held_against_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the window in which it begins alone is asked."""
    scenario = over_the_hour(0.9, 6, 3_000_000)
    assert found(run(scenario)) == []
    PLANTS["looks_at_the_first_window_alone"](monkeypatch)
    (said, *_) = found(run(scenario))
    assert f"by project poor hour in the window that begins at {EPOCH_MS + HOUR_MS}" in said


def test_soft_thresholds_begin_nothing_more_of_a_project() -> None:
    """At a fifth of the limit the operator is told, at half no task is begun; what runs is finished."""
    budget = Budget(POOR, Window.TOTAL, Amount(20_000), 20, 50, 75)
    work = (of("poor", 40, 60_000, 60_000), of("rich", 10, 60_000, 60_000))
    outcome = run(under(scene(Cloud.EC2, work=work, horizon_ms=6 * 3_600_000), budget), keep=200_000)
    assert outcome.ok, outcome.findings
    said = outcome.journal.text()
    assert said.index("budget.notify") < said.index("budget.no-launch")
    assert 10 < done(outcome) < 50
    assert "budget.limit" not in said


def test_what_a_projects_limit_pays_for_is_finished() -> None:
    """Of what its limit pays for, by the share that its tasks hold, most is done; nothing is cut off at the end."""
    work = (of("poor", 60, 600_000, 600_000),)
    outcome = run(under(scene(Cloud.EC2, work=work, horizon_ms=12 * 3_600_000), total(10, POOR), total(1_000)))
    assert outcome.ok, outcome.findings
    assert set(outcome.tasks) >= {"succeeded", "queued"}
    assert not outcome.tasks.get("failed")  # type: ignore[call-overload]
    each = _share_of_a_task(600_000)
    assert done(outcome) >= 0.85 * (100_000 // each), (done(outcome), each)


def _share_of_a_task(run_ms: int) -> float:
    """Micro-dollars, from the ledger's own bill of one alone on its VM: at most what a share may come to."""
    outcome = run(under(scene(Cloud.EC2, work=(of("poor", 1, run_ms, run_ms),)), total(10_000)))
    return sum(line.amount for line in outcome.bill) / 2
