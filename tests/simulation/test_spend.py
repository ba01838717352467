"""Limits in whole runs: the clouds' own meters never pass them, and what they pay for is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.agent.ending import NEVER_MS
from cloud_dispatch.agent.timer import Renewal
from cloud_dispatch.domain.money import HOUR_MS, Amount
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import of_theme
from cloud_dispatch.simulation.guest import Guest
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import AgentTiming, Scenario, Work
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Window
from tests.simulation.scenes import scene

DOLLAR = 1_000_000
#: Proportions of the defaults, for runs of minutes.
PACE = Pace(lease_ms=120_000, drain_ms=20_000)


def under(scenario: Scenario, *budgets: Budget, **fields: Any) -> Scenario:
    return msgspec.structs.replace(scenario, budgets=budgets, pace=PACE, **fields)


def total(cents: float, key: Key = EVERYTHING) -> Budget:
    return Budget(key, Window.TOTAL, Amount(round(cents * DOLLAR / 100)))


@pytest.mark.parametrize("cloud", Cloud)
def test_an_ample_limit_changes_nothing(cloud: Cloud) -> None:
    outcome = run(under(scene(cloud), total(10_000)))
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 6  # type: ignore[index]


@pytest.mark.parametrize("cloud", Cloud)
def test_a_limit_too_small_for_one_vm_launches_none(cloud: Cloud) -> None:
    outcome = run(under(scene(cloud), total(0.0001)))
    assert outcome.ok, outcome.findings
    assert outcome.bill == ()
    assert outcome.tasks["queued"] == 6  # type: ignore[index]


@pytest.mark.parametrize("cloud", Cloud)
def test_a_limit_elsewhere_cuts_no_work_off(cloud: Cloud) -> None:
    """Nobody knows how long the tasks take, and they take longer than what a VM gets to find out where a limit covers
    it. Where none does, each of them runs once."""
    other = Cloud.GCE if cloud is Cloud.ARM else Cloud.ARM
    usual = scene(cloud, other)
    pools = tuple(replace(pool, profiles=(usual.accounts[0].profile,)) for pool in usual.pools)
    work = (Work(count=4, conduct=Conduct(run_ms=900_000)),)
    outcome = run(under(usual, total(100, Key(Scope.DRIVER, str(other))), pools=pools, work=work))
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 4  # type: ignore[index]
    assert sum("runs task" in line for line in outcome.journal) == 4


@pytest.mark.parametrize("cloud", [Cloud.EC2, Cloud.ARM])
def test_what_runs_in_a_pool_that_leaves_is_finished(cloud: Cloud) -> None:
    """A limit covers it, and pays for it; the work takes longer than the end that its VM has when its pool leaves."""
    left = Fault(FaultKind.CONFIGURE, 120_000, 2_000_000, which=1)
    work = (Work(count=4, conduct=Conduct(run_ms=900_000)),)
    outcome = run(under(scene(cloud), total(1_000), work=work, faults=(left,)))
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 4  # type: ignore[index]
    assert sum("runs task" in line for line in outcome.journal) == 4


@pytest.mark.parametrize("theme", ["calm", "crashes", "agents", "clouds", "clouds-and-crashes", "mishaps", "spot"])
@pytest.mark.parametrize("seed", range(3))
def test_no_meter_passes_the_limit_whatever_goes_wrong(theme: str, seed: int) -> None:
    scenario = of_theme(theme, seed)
    drivers = [Key(Scope.DRIVER, name) for name in dict.fromkeys(scenario.drivers.values())]
    budgets = [total(1.5 + seed), *(total(0.8 + seed / 2, key) for key in drivers)]
    outcome = run(under(scenario, *budgets))
    assert [str(finding) for finding in outcome.findings if finding.checker == "P3 spend"] == []
    assert outcome.ok, outcome.findings


def test_a_rule_that_admits_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standing, "refusal", lambda *_: None)
    monkeypatch.setattr(Standing, "room", lambda self, wanted, most: most)
    outcome = run(under(scene(work=(Work(count=9, conduct=Conduct(run_ms=200_000)),)), total(0.2)))
    assert any(finding.checker == "P3 spend" for finding in outcome.findings), outcome.findings


def test_who_seeks_a_finding_is_spared_what_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is the same and the run is over with it; where nothing is found, nothing is spared."""
    scenario = under(scene(work=(Work(count=9, conduct=Conduct(run_ms=200_000)),)), total(0.2))
    assert run(scenario, sought="P3 spend").digest == run(scenario).digest
    monkeypatch.setattr(Standing, "refusal", lambda *_: None)
    monkeypatch.setattr(Standing, "room", lambda self, wanted, most: most)
    whole, sought = run(scenario), run(scenario, sought="P3 spend")
    assert whole.findings[0].checker == "P3 spend"
    assert sought.findings[0] == whole.findings[0]
    assert sought.virtual_ms < whole.virtual_ms


def long_work(count: int = 3, run_ms: int = 900_000, expected_ms: int = 0) -> tuple[Work, ...]:
    return (Work(count=count, conduct=Conduct(run_ms=run_ms), expected_ms=expected_ms),)


@pytest.mark.parametrize("cloud", [Cloud.EC2, Cloud.ARM])
@pytest.mark.parametrize("expected_ms", [0, 60_000, 900_000])
def test_ends_are_moved_on_as_long_as_the_work_goes_on(cloud: Cloud, expected_ms: int) -> None:
    """A quarter of an hour of work under leases of two minutes, whatever its tasks said."""
    outcome = run(under(scene(cloud, work=long_work(expected_ms=expected_ms)), total(10_000)))
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 3  # type: ignore[index]


def test_what_the_limit_pays_for_is_finished() -> None:
    """Twenty tasks of a quarter of an hour on machines of 9.6 cents an hour: 15 cents pay for six of them and more."""
    scenario = scene(Cloud.EC2, work=long_work(20, expected_ms=900_000), horizon_ms=6 * 3_600_000)
    outcome = run(under(scenario, total(15)))
    assert outcome.ok, outcome.findings
    billed = sum(line.amount for line in outcome.bill)
    assert billed <= 0.15 * DOLLAR
    done = outcome.tasks["succeeded"]  # type: ignore[index]
    alone = run(under(scene(Cloud.EC2, work=long_work(1, expected_ms=900_000)), total(10_000)))
    each = sum(line.amount for line in alone.bill)
    assert done >= 0.85 * (0.15 * DOLLAR // each), (done, billed, each)


def test_soft_thresholds_stop_launches_and_drain() -> None:
    """At a fifth of the limit the operator is told, at half nothing more is launched."""
    scenario = scene(Cloud.EC2, work=long_work(40, 60_000, 60_000), horizon_ms=6 * 3_600_000)
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(4 * DOLLAR // 100), 20, 50, 75)
    outcome = run(under(scenario, budget), keep=200_000)
    assert outcome.ok, outcome.findings
    said = outcome.journal.text()
    assert said.index("budget.notify") < said.index("budget.no-launch")
    assert outcome.tasks["queued"] > 0  # type: ignore[index]
    assert sum(line.amount for line in outcome.bill) <= 4 * DOLLAR // 100


def test_what_can_not_be_moved_on_is_drained_before_its_end() -> None:
    """A task that takes far longer than it said, on a VM with a maximum run time."""
    work = (Work(count=1, conduct=Conduct(run_ms=900_000), expected_ms=60_000, max_attempts=1),)
    outcome = run(under(scene(Cloud.GCE, work=work), total(10_000)), keep=200_000)
    assert outcome.ok, outcome.findings
    said = outcome.journal.text()
    assert "draining budget" in said
    assert said.index("its hard end comes") < said.index("powers off: timer")


def test_a_dispatcher_whose_clock_is_ahead_stays_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By five minutes, when it launches and dies, and no guest ends by itself: the VM lives to its hard end, which
    comes so much later. Reckoned without a difference of the clocks the limit is passed, and the checker says so."""
    monkeypatch.setattr(Guest, "_watch_timer", lambda self: None)
    monkeypatch.setattr(Renewal, "leave_ms", lambda self, policy: NEVER_MS)
    scenario = scene(
        Cloud.GCE,
        work=long_work(1, 3_600_000, 3_000),
        faults=(
            Fault(FaultKind.CLOCK, 0, 120_000, 300_000),
            Fault(FaultKind.CRASH, 120_000, amount=6_000_000),
        ),
        agents=AgentTiming(silence_ms=10 * 3_600_000),
        caps=Caps(instances=1),
        horizon_ms=2 * 3_600_000,
    )
    ample = run(under(scenario, total(10_000)))
    billed = ample.bill[0].amount

    def tight(clocks_ms: int) -> list[str]:
        monkeypatch.setattr(clocks, "CLOCKS_MS", clocks_ms)
        outcome = run(under(scenario, Budget(EVERYTHING, Window.TOTAL, Amount(billed - 1))))
        return [str(finding) for finding in outcome.findings if finding.checker == "P3 spend"]

    assert tight(300_000) == []
    assert tight(0) != []


@pytest.mark.parametrize("shut", [Cloud.EC2, Cloud.GCE])
def test_a_driver_at_its_limit_leaves_the_others_working(shut: Cloud) -> None:
    """Both are used as long as both may be. Then everything is done at the other one, and the reason is said."""
    both = scene(Cloud.EC2, Cloud.GCE)

    def billed(*budgets: Budget) -> tuple[set[Cloud], str]:
        outcome = run(under(both, total(10_000), *budgets), keep=200_000)
        assert outcome.ok, outcome.findings
        assert outcome.tasks["succeeded"] == 6  # type: ignore[index]
        return {Cloud.EC2 if line.vm.startswith("i-") else Cloud.GCE for line in outcome.bill}, outcome.journal.text()

    assert billed()[0] == {Cloud.EC2, Cloud.GCE}
    used, said = billed(total(0, Key(Scope.DRIVER, str(shut))))
    assert used == {Cloud.EC2, Cloud.GCE} - {shut}
    assert f"of the budget driver {shut} total" in said


def edge(minutes: float, edge_ms: int, **fields: Any) -> Scenario:
    """Work for an hour's budget of so many VM-minutes and more, `edge_ms` before the hour ends; the dispatcher believes
    that it ends two minutes earlier."""
    scenario = scene(
        Cloud.EC2,
        work=long_work(60, 100_000, 100_000),
        faults=(Fault(FaultKind.CLOCK, edge_ms - 119_000, edge_ms + 180_000, 120_000),),
        caps=Caps(instances=20),
        begins_ms=HOUR_MS - edge_ms,
    )
    return under(scenario, Budget(EVERYTHING, Window.HOUR, Amount(round(minutes * 1_700))), **fields)


def test_an_hour_that_has_ended_for_the_dispatcher_alone_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it launches for the next hour is billed in this one, which is spent already."""

    def billed_too_much(clocks_ms: int) -> list[str]:
        monkeypatch.setattr(clocks, "CLOCKS_MS", clocks_ms)
        outcome = run(edge(30, 720_000), keep=10)
        return [str(finding) for finding in outcome.findings if finding.checker == "P3 spend"]

    assert billed_too_much(120_000) == []
    assert billed_too_much(0) != []
