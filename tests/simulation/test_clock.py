"""The dispatcher's clock is set while VMs boot and tasks run: nothing has happened by that."""

from __future__ import annotations

import re

import pytest

from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Work
from tests.simulation.scenes import scene

MINUTE = 60_000
BOOTING, RUNNING = 20_000, 240_000
WORK = (Work(count=4, conduct=Conduct(run_ms=900_000)),)


def moved(cloud: Cloud, at_ms: int, by_ms: int, *more: Fault) -> Outcome:
    """Four tasks of a quarter of an hour on one VM of GCE, on two of EC2."""
    fault = Fault(FaultKind.CLOCK, at_ms, 50 * MINUTE, by_ms)
    return run(scene(cloud, work=WORK, faults=(fault, *more)), keep=100_000)


@pytest.mark.parametrize("by_ms", [MINUTE, 10 * MINUTE, 60 * MINUTE, 180 * MINUTE, -60 * MINUTE])
@pytest.mark.parametrize("at_ms", [BOOTING, RUNNING])
@pytest.mark.parametrize(("cloud", "vms"), [(Cloud.GCE, 1), (Cloud.EC2, 2)])
def test_a_clock_that_is_set_costs_no_boot_and_no_attempt(cloud: Cloud, vms: int, at_ms: int, by_ms: int) -> None:
    outcome = moved(cloud, at_ms, by_ms)
    assert outcome.ok, outcome.findings
    text = outcome.journal.text()
    assert len(re.findall(r" runs task ", text)) == 4
    assert len(set(re.findall(r"store instance (\S+) intended", text))) == vms


@pytest.mark.parametrize("by_ms", [60 * MINUTE, 180 * MINUTE])
@pytest.mark.parametrize("kind", [FaultKind.STOP, FaultKind.CRASH])
def test_a_start_after_the_clock_was_set_forward_knows_the_agents(kind: FaultKind, by_ms: int) -> None:
    """Which have been answered in between: what they have then is good by the clock of now."""
    outcome = moved(Cloud.GCE, RUNNING, by_ms, Fault(kind, RUNNING + 2 * MINUTE, amount=2_000))
    assert outcome.ok, outcome.findings
    assert len(re.findall(r" runs task ", outcome.journal.text())) == 4


@pytest.mark.parametrize("by_ms", [10 * MINUTE, 24 * 60 * MINUTE])
@pytest.mark.parametrize(("cloud", "vms"), [(Cloud.GCE, 1), (Cloud.EC2, 2), (Cloud.ARM, 1)])
def test_vms_that_are_launched_by_a_clock_that_is_ahead_register(cloud: Cloud, vms: int, by_ms: int) -> None:
    """How old their proofs are is for the provider's clock to say. Nothing is launched, and ended unused, for ever."""
    outcome = moved(cloud, 1, by_ms)
    assert outcome.ok, outcome.findings
    assert len(set(re.findall(r"store instance (\S+) intended", outcome.journal.text()))) == vms


@pytest.mark.parametrize("cloud", [Cloud.GCE, Cloud.EC2, Cloud.ARM])
def test_by_a_clock_that_is_behind_by_a_lifetime_no_vm_after_the_other_is_launched(cloud: Cloud) -> None:
    """Each has its hard end before it has booted. Somebody is told, and once the clock is right all is done."""
    outcome = run(
        scene(cloud, work=WORK, faults=(Fault(FaultKind.CLOCK, 1, 30 * MINUTE, -24 * 60 * MINUTE),)), keep=100_000
    )
    assert outcome.ok, outcome.findings
    text = outcome.journal.text()
    assert len(re.findall(r"clock.apart", text)) == 1
    assert len(set(re.findall(r"store instance (\S+) intended", text))) <= 8
