"""The guest timer in whole runs: the last hand where a cloud has none, and nobody's trouble where all is well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.agent.ending import NEVER_MS
from cloud_dispatch.agent.timer import GuestTimer, Renewal
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import of_theme
from cloud_dispatch.simulation.guest import Guest
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import AgentTiming, Scenario, Work
from tests.simulation.scenes import scene
from tests.simulation.test_spend import total, under

HOUR = 3_600_000
#: Agents that endure a dispatcher's silence for longer than any of these runs: only the timer ends their VMs.
PATIENT = AgentTiming(kill_grace_ms=3_000, silence_ms=10 * HOUR, hang_ms=10 * HOUR)


def alone(scenario: Scenario, *, accepted: bool = True) -> Scenario:
    """On clouds without a hand of their own, as far as they may be without one."""
    accounts = tuple(
        msgspec.structs.replace(
            account, settings=replace(account.settings, reaper_period_ms=0), guest_enforced=accepted
        )
        for account in scenario.accounts
    )
    return msgspec.structs.replace(scenario, accounts=accounts)


def orphaned(**fields: Any) -> Scenario:
    """VMs at work for hours. Their dispatcher dies for good, and one of their agents before it."""
    work = (Work(count=3, conduct=Conduct(run_ms=3 * HOUR), expected_ms=3 * HOUR, max_attempts=1),)
    faults = (
        Fault(FaultKind.AGENT_CRASH, 290_000),
        Fault(FaultKind.CRASH, 300_000, amount=20 * HOUR),
    )
    usual = scene(Cloud.EC2, work=work, faults=faults, agents=PATIENT, horizon_ms=6 * HOUR)
    return msgspec.structs.replace(alone(usual), **fields)


def findings(outcome: Outcome, checker: str) -> list[str]:
    return [str(finding) for finding in outcome.findings if finding.checker == checker]


def billed(outcome: Outcome) -> int:
    return sum(line.amount for line in outcome.bill)


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that do not go by themselves before the timer ends: hung, or replaced."""
    monkeypatch.setattr(Renewal, "leave_ms", lambda self, policy: NEVER_MS)


@pytest.mark.usefixtures("stubborn")
def test_with_the_dispatcher_dead_for_good_every_vm_ends_by_its_timer() -> None:
    """No reaper, no word, agents that do not care: and the meter stays where the limit was sure to keep it."""
    ample = run(under(orphaned(), total(10_000)), keep=200_000)
    said = ample.journal.text()
    assert said.count("powers off: the guest timer ended") == said.count(" boots\n") >= 2
    assert "hard-end" not in said
    cents = billed(ample) / 10_000
    for part in (0.3, 0.6, 0.9, 1.2, 2):
        outcome = run(under(orphaned(), total(cents * part)))
        assert findings(outcome, "P3 spend") == []
        assert billed(outcome) <= cents * part * 10_000


def test_an_agent_that_works_goes_before_its_timer_ends() -> None:
    said = run(under(orphaned(), total(10_000)), keep=200_000).journal.text()
    assert said.count("powers off: timer") == said.count(" boots\n") >= 2


@pytest.mark.usefixtures("stubborn")
def test_a_guest_that_ignores_its_timer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter runs on past the limit, and the checker says so: that is what guest-enforced means."""
    limit = total(billed(run(under(orphaned(), total(10_000)))) / 10_000 * 1.2)
    assert findings(run(under(orphaned(), limit), sought="P3 spend"), "P3 spend") == []
    monkeypatch.setattr(Guest, "_watch_timer", lambda self: None)
    assert findings(run(under(orphaned(), limit), sought="P3 spend"), "P3 spend") != []


def test_a_vm_that_boots_late_ends_with_its_first_hard_end() -> None:
    """The dispatcher dies before the VM's birth, so that it can't register: it counts from the launch all the same."""
    scenario = orphaned(faults=(Fault(FaultKind.CRASH, 20_000, amount=20 * HOUR),))
    outcome = run(under(scenario, total(10_000)), keep=200_000)
    assert "powers off" in outcome.journal.text()
    limit = total(billed(outcome) / 10_000)
    assert findings(run(under(scenario, limit)), "P3 spend") == []


@pytest.mark.parametrize("expected_ms", [0, 60_000, 900_000])
def test_ends_that_only_timers_keep_are_moved_on_as_long_as_the_work_goes_on(expected_ms: int) -> None:
    """A quarter of an hour of work under leases of two minutes, whatever its tasks said; nothing is cut off."""
    work = (Work(count=3, conduct=Conduct(run_ms=900_000), expected_ms=expected_ms),)
    usual = scene(Cloud.EC2, work=work, agents=AgentTiming(kill_grace_ms=3_000, silence_ms=40_000))
    outcome = run(under(alone(usual), total(10_000)), keep=200_000)
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 3  # type: ignore[index]
    assert "timer" not in outcome.journal.text()


def test_without_acceptance_an_end_that_nobody_keeps_is_not_moved_on() -> None:
    work = (Work(count=1, conduct=Conduct(run_ms=900_000), expected_ms=60_000, max_attempts=1),)
    outcome = run(under(alone(scene(Cloud.EC2, work=work), accepted=False), total(10_000)), keep=200_000)
    assert "its hard end comes and can't be moved on" in outcome.journal.text()


@pytest.mark.parametrize("theme", ["calm", "crashes", "agents"])
@pytest.mark.parametrize("seed", [1, 4, 7])  # on EC2, alone or with another
def test_no_meter_passes_the_limit_by_timers_alone(theme: str, seed: int) -> None:
    """Whatever goes wrong with dispatchers, networks and agents. Not on Azure, where a guest can't end its bill."""
    scenario = of_theme(theme, seed)
    outcome = run(under(alone(scenario), total(1.5 + seed / 4)))
    assert findings(outcome, "P3 spend") == []
    assert outcome.ok, outcome.findings


def test_leases_are_renewed_over_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hours of one task under the usual lease, without any limit: some thirty words, and never a close call."""
    heard: list[int] = []
    hear = GuestTimer.hear

    def watched(timer: GuestTimer, text: str) -> bool:
        news = hear(timer, text)
        if news:
            heard.append(timer.words)
        return news

    monkeypatch.setattr(GuestTimer, "hear", watched)
    work = (Work(count=1, conduct=Conduct(run_ms=4 * HOUR)),)
    outcome = run(scene(Cloud.EC2, work=work, horizon_ms=5 * HOUR))
    assert outcome.ok, outcome.findings
    assert 10 <= len(heard) // 2 <= 40  # the agent's and the supervisor's


@pytest.mark.parametrize(
    ("begins_ms", "off_ms", "lives"), [(0, 0, True), (0, HOUR, False), (HOUR, 0, True), (HOUR, HOUR, False)]
)
def test_a_guest_whose_wall_clock_is_past_its_end_does_not_begin(begins_ms: int, off_ms: int, lives: bool) -> None:
    """By its wall clock its first hard end is over when it boots, on whatever day: it powers off and runs nothing."""
    usual = alone(under(scene(Cloud.EC2), total(100)))
    (account,) = usual.accounts
    wrong = CloudFault(CloudFaultKind.WRONG_CLOCK, amount=off_ms, times=1)
    faulty = (msgspec.structs.replace(account, faults=(wrong,)),)
    outcome = run(msgspec.structs.replace(usual, accounts=faulty, begins_ms=begins_ms), keep=200_000)
    assert outcome.findings == ()
    assert ("powers off: the guest timer ended" in outcome.journal.text()) is bool(off_ms)
