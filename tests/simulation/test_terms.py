"""How long leases are: while a dispatcher is away, and where it comes back with shorter ones than agents go by that it
can't reach."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest

from cloud_dispatch.config import schema
from cloud_dispatch.reconcile import agreed
from cloud_dispatch.reconcile.loop import Loop
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import RETIMED, TIMING
from cloud_dispatch.simulation.network import Network
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import AgentTiming, Work
from tests.simulation.scenes import broken, scene

SEEDS = 12
#: The lease is five times as long for all who start in the first minutes, and agents hear nothing of the next start.
TERMS = Fault(FaultKind.TERMS, 0, 200_000, amount=5)
THREE = Fault(FaultKind.TARGET, 1_000, 1_500_000, amount=3)
DEATH = Fault(FaultKind.CRASH, 240_000, amount=2_000)
CUT = CloudFault(CloudFaultKind.CUT_OFF, from_ms=239_000, until_ms=600_000, times=1)


@pytest.mark.parametrize("theme", RETIMED)
def test_every_promise_holds_whatever_the_next_start_has_for_a_lease(theme: str) -> None:
    assert broken(theme, SEEDS) == ""


def shortened() -> Outcome:
    """Tasks of a quarter of an hour on all VMs but one, which would take what is put back at once."""
    work = (Work(count=4, conduct=Conduct(run_ms=900_000)),)
    usual = scene(Cloud.GCE, work=work, faults=(TERMS, DEATH, THREE))
    accounts = tuple(msgspec.structs.replace(account, faults=(CUT,)) for account in usual.accounts)
    return run(msgspec.structs.replace(usual, accounts=accounts), keep=100_000)


@pytest.mark.parametrize(("lease_ms", "attempts"), [(schema.Timing().lease_ms, 4), (60_000, 8)])
def test_a_control_vm_that_is_away_for_minutes_costs_no_attempt(lease_ms: int, attempts: int) -> None:
    """As long as the lease that agents have unless another one is set, and not as the minute that it was."""
    told = schema.Timing()
    work = (Work(count=4, conduct=Conduct(run_ms=900_000)),)
    usual = scene(Cloud.GCE, work=work, faults=(Fault(FaultKind.CRASH, 240_000, amount=240_000),))
    times = replace(TIMING, heartbeat_ms=told.heartbeat_ms, poll_ms=told.poll_ms, lease_ms=lease_ms)
    agents = AgentTiming(kill_grace_ms=told.kill_grace_ms, silence_ms=told.silence_ms)
    outcome = run(msgspec.structs.replace(usual, timing=times, agents=agents), keep=100_000)
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 1
    assert len(re.findall(r" runs task ", outcome.journal.text())) == attempts


def away(fault: Fault, cut: CloudFault | None = None, *more: Fault) -> Outcome:
    """Tasks of a quarter of an hour on all VMs, with the lease that agents have unless another one is set, and a
    dispatcher that is away once they run."""
    told = schema.Timing()
    work = (Work(count=6, conduct=Conduct(run_ms=900_000)),)
    usual = scene(Cloud.GCE, work=work, faults=(fault, THREE, *more))
    times = replace(TIMING, heartbeat_ms=told.heartbeat_ms, poll_ms=told.poll_ms, lease_ms=told.lease_ms)
    agents = AgentTiming(kill_grace_ms=told.kill_grace_ms, silence_ms=told.silence_ms)
    faults = (cut,) if cut else ()
    accounts = tuple(msgspec.structs.replace(account, faults=faults) for account in usual.accounts)
    changed = msgspec.structs.replace(usual, timing=times, agents=agents, accounts=accounts, horizon_ms=7_200_000)
    return run(changed, keep=100_000)


@pytest.mark.parametrize(("kind", "attempts"), [(FaultKind.STOP, 6), (FaultKind.CRASH, 12)])
def test_a_stop_on_purpose_may_last_for_twice_the_lease(kind: FaultKind, attempts: int) -> None:
    """Who dies can't tell anybody. The slack is that of the last request before the stop."""
    outcome = away(Fault(kind, 240_000, amount=560_000))
    assert outcome.ok, outcome.findings
    assert outcome.deaths == (kind is FaultKind.CRASH)
    assert len(re.findall(r" runs task ", outcome.journal.text())) == attempts


#: A VM hears the last word before the stop, and nothing afterwards.
UNHEARD = CloudFault(CloudFaultKind.CUT_OFF, from_ms=241_000, until_ms=1_500_000, times=1)
SHORTLY = Fault(FaultKind.STOP, 240_000, amount=2_000)


def test_no_task_runs_twice_at_once_after_a_stop() -> None:
    outcome = away(SHORTLY, UNHEARD)
    assert outcome.ok, outcome.findings
    assert len(re.findall(r" runs task ", outcome.journal.text())) > 6


def test_nor_where_the_clock_is_set_after_the_start_and_that_start_dies() -> None:
    """As on a machine that came up with a wrong clock: the start after it waits for the same agents."""
    forward = Fault(FaultKind.CLOCK, 246_000, 5_000_000, 3_600_000)
    outcome = away(SHORTLY, UNHEARD, forward, Fault(FaultKind.CRASH, 260_000, amount=2_000))
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 1
    assert len(re.findall(r" runs task ", outcome.journal.text())) > 6


def test_what_hangs_once_it_was_heard_after_a_stop_is_waited_for_as_ever() -> None:
    """It has the lease of the new start by then: its tasks begin anew before the one from the stop would be over."""
    later = replace(UNHEARD, from_ms=300_000)
    outcome = away(SHORTLY, later)
    assert outcome.ok, outcome.findings
    begun = [int(line.split()[0]) for line in outcome.journal.text().splitlines() if " runs task " in line]
    assert 600_000 < begun[6] < 800_000


def test_a_stop_that_does_not_write_down_what_it_tells_agents_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the next start goes by the lease."""

    async def careless(loop: Loop, lease_ms: int) -> bool:
        return True

    monkeypatch.setattr(Loop, "leave", careless)
    outcome = away(SHORTLY, UNHEARD)
    assert any(name.startswith("P1") for name in outcome.broken), outcome.findings


def test_where_it_can_not_be_written_down_agents_are_told_of_no_longer_lease() -> None:
    """The stop goes on all the same."""
    fails = Fault(FaultKind.STORE_FAILS, 239_000, 242_000)
    outcome = away(msgspec.structs.replace(SHORTLY, amount=1), UNHEARD)
    text = outcome.journal.text()
    assert "agents.short_lease" not in text
    usual = outcome.scenario
    failed = run(msgspec.structs.replace(usual, faults=(*usual.faults, fails)), keep=100_000)
    assert failed.ok, failed.findings
    assert "agents.short_lease" in failed.journal.text()
    assert "agents.longer_lease" not in failed.journal.text()


def test_no_task_runs_twice_at_once_when_leases_become_shorter() -> None:
    outcome = shortened()
    assert outcome.ok, outcome.findings
    assert outcome.deaths == 1
    assert "agents.longer_lease" in outcome.journal.text()


def test_a_dispatcher_that_forgets_what_agents_were_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all are judged by the terms of the last start."""

    async def forgetful(loop: Loop) -> None:
        return None

    monkeypatch.setattr(Loop, "agree", forgetful)
    outcome = shortened()
    assert any(name.startswith("P1") for name in outcome.broken), outcome.findings


def test_what_agents_will_be_told_is_written_before_the_first_of_them_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one that dies in between would leave them with a lease that nobody knows of."""
    known: list[str | None] = []
    listen = Network.listen

    def listening(network: Network, server: Incarnation) -> None:
        assert server.store is not None
        known.append(server.store.fact(agreed.FACT))
        listen(network, server)

    monkeypatch.setattr(Network, "listen", listening)
    shortened()
    long_ms, short_ms = (replace(TIMING, lease_ms=n * 20_000, poll_ms=n * 10_000).silence_ms for n in (5, 1))
    assert [found.silence_ms for fact in known if (found := agreed.read(fact))] == [long_ms, short_ms]
