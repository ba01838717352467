"""What is shared: an account by two profiles, a cap by the profiles of a driver, limits by users and projects; and what
is left: a profile for good, a deployment that somebody stops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import ModuleType

import msgspec
import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.planner.snapshot import DriverCaps
from cloud_dispatch.reconcile import leftovers, observe, places
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.neighbours import STORE
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault as Trouble
from cloud_dispatch.simulation.faults import FaultKind as TroubleKind
from cloud_dispatch.simulation.generate import LEFT, SHARED, of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.simulation.world import World
from tests.simulation.scenes import broken, scene

SEEDS = 6
FIRST, SECOND = ProfileName("ec2"), ProfileName("second")


@pytest.mark.parametrize("theme", [*SHARED, *LEFT])
def test_every_promise_holds_whatever_is_shared_or_left(theme: str) -> None:
    assert broken(theme, SEEDS) == ""


def beside(*whose: str, **reads: bool) -> Scenario:
    """VMs of others in the account, one of which leaves its disk behind."""
    usual = scene(Cloud.GCE)
    (account,) = usual.accounts
    theirs = [Fault(FaultKind.NEIGHBOUR, code=name, times=2, until_ms=60_000) for name in whose]
    left = Fault(FaultKind.LEFTOVER, until_ms=100_000)
    settings = replace(account.settings, reads=replace(account.settings.reads, **reads))
    account = msgspec.structs.replace(account, settings=settings, faults=(*theirs, left))
    return msgspec.structs.replace(usual, accounts=(account,), work=(*usual.work, Work(600_000)))


@pytest.mark.parametrize("loose", [False, True])
def test_what_is_somebody_elses_is_let_be(loose: bool) -> None:
    """Whatever listings show. VMs of another statestore of the deployment are told, and no others."""
    outcome = run(beside("simulated", "simulated-2", "SIMULATED", "", loose=loose))
    assert outcome.findings == ()
    assert sum("instance.foreign" in line for line in outcome.journal) == 2
    assert outcome.tasks[TaskState.SUCCEEDED] == 7


@pytest.mark.parametrize(("where", "text"), [(observe, "ends "), (leftovers, "deletes ")])
def test_who_takes_it_for_his_own_is_found(monkeypatch: pytest.MonkeyPatch, where: ModuleType, text: str) -> None:
    """Planted: a dispatcher that has inherited, as it thinks, the neighbour's statestore."""
    heritage = where.heritage
    monkeypatch.setattr(where, "heritage", lambda store: heritage(store) | {STORE})
    outcome = run(beside("simulated"), keep=50)
    assert any(one.checker == "neighbours" and text in one.text for one in outcome.findings), outcome.findings


def shared(*faults: Fault) -> Scenario:
    """One account with two profiles of two VMs each, a cap of three for the driver of both, and work for more."""
    usual = scene(Cloud.EC2)
    (account,), (pool,) = usual.accounts, usual.pools
    profiles = (FIRST, SECOND)
    return msgspec.structs.replace(
        usual,
        accounts=tuple(
            msgspec.structs.replace(account, profile=profile, caps=Caps(instances=2), faults=faults)
            for profile in profiles
        ),
        pools=(replace(pool, profiles=profiles),),
        work=(Work(count=24, conduct=Conduct(run_ms=60_000), max_attempts=10),),
        caps=Caps(instances=6),
        driver_caps=(DriverCaps("ec2", profiles, Caps(instances=3)),),
    )


def test_two_profiles_of_an_account_leave_each_others_vms_alone() -> None:
    """Each lists the VMs of both, those too of which the launch is not answered yet. None is taken for a stranger, by
    either, and together they are a driver's."""
    lists: list[Counter[ProfileName]] = []

    def look(world: World) -> None:
        (account,) = world.accounts
        lists.append(Counter(vm.profile for vm in account.inventory()))

    outcome = run(shared(Fault(FaultKind.SLOW, operation="launch", amount=18_000)), finish=look)
    assert outcome.findings == ()
    assert outcome.tasks[TaskState.SUCCEEDED] == 24
    assert lists == [{FIRST: 2, SECOND: 1}]
    assert not any("zombie" in line or "foreign" in line for line in outcome.journal)


def test_a_driver_whose_cap_is_not_heeded_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Incarnation._settings
    monkeypatch.setattr(Incarnation, "_settings", lambda self, *args: replace(settings(self, *args), driver_caps=()))
    found = run(shared(), keep=20).findings
    assert found[0].checker == "P4 caps"
    assert "the cap of driver ec2 is 3" in found[0].text


def test_a_driver_whose_cap_forgets_who_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the cap is over the profiles that the configuration still has, as it was before."""
    monkeypatch.setattr(places, "counted", lambda store, settings: settings)
    outcome = run(of_theme("sharing-and-configurations", 51_000_129))
    assert "P4 caps" in {finding.checker for finding in outcome.findings}


def test_the_driver_of_a_profile_that_left_is_kept_until_its_vms_are_gone() -> None:
    """Also while the cloud refuses to end them: minutes, and not until the profile comes back an hour later."""
    usual = scene(Cloud.ARM, Cloud.GCE)  # whose VMs are stopped by their guests, and bill on
    first, second = usual.accounts
    refused = Fault(FaultKind.ERROR, operation="terminate", from_ms=60_000, until_ms=240_000)
    ended: list[int] = []

    def look(world: World) -> None:
        vms = [vm for account in world.accounts if account.name == "arm" for vm in account.inventory()]
        ended.extend((vm.ended_ms or 0) - world.clock.now() + world.now_ms for vm in vms)

    scenario = msgspec.structs.replace(
        usual,
        accounts=(msgspec.structs.replace(first, faults=(refused,), caps=Caps(instances=1)), second),
        pools=tuple(replace(pool, profiles=(first.profile, second.profile)) for pool in usual.pools),
        work=(Work(count=6, conduct=Conduct(run_ms=60_000), max_attempts=10),),
        faults=(Trouble(TroubleKind.CONFIGURE, 70_000, 4_000_000, 0, which=3),),
        horizon_ms=5_000_000,
    )
    assert run(scenario, finish=look).findings == ()
    assert len(ended) == 1
    assert 240_000 < ended[0] < 400_000
