"""Breakers in whole runs: what never registers burns no more than it may, however often the dispatcher dies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.reconcile.breakers import Breakers
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.simulation.world import World
from tests.simulation.scenes import SELDOM, scene

HOUR = 3_600_000
ALLOWANCE = 40_000  # four cents
CRASHES = tuple(Fault(FaultKind.CRASH, at, amount=20_000) for at in range(60_000, 3 * HOUR, 290_000))


def broken(cloud: Cloud, kind: CloudFaultKind, until_ms: int = 0, **fields: Any) -> Scenario:
    """Fifty tasks for twenty VMs, none of which comes up before `until_ms`."""
    usual = scene(cloud, work=(Work(count=50, conduct=Conduct(run_ms=20_000)),), caps=Caps(instances=20))
    accounts = tuple(
        msgspec.structs.replace(account, faults=(CloudFault(kind, until_ms=until_ms),)) for account in usual.accounts
    )
    pools = tuple(replace(pool, boot_allowance=ALLOWANCE) for pool in usual.pools)
    return msgspec.structs.replace(usual, accounts=accounts, pools=pools, timing=SELDOM, horizon_ms=3 * HOUR, **fields)


def burnt(scenario: Scenario, **plants: Any) -> tuple[Outcome, dict[str, list[int]]]:
    """The run, and what each VM was billed, by zone."""
    by_zone: defaultdict[str, list[int]] = defaultdict(list)

    def read(world: World) -> None:
        for account in world.accounts:
            zones = {vm.id: vm.zone for vm in account.inventory()}
            billed: defaultdict[str, int] = defaultdict(int)
            for line in account.bill():
                billed[line.vm] += line.amount
            for vm, zone in zones.items():
                by_zone[zone].append(billed[vm])

    return run(scenario, checkers=(), keep=300_000, finish=read, **plants), by_zone


def beyond(by_zone: dict[str, list[int]], said: str) -> list[str]:
    """The zones in which more was burnt than the allowance, a boot, and one for each time that the breaker opened."""
    found = []
    for zone, amounts in by_zone.items():
        opened = sum("breaker.opened" in line and f"in zone {zone}:" in line for line in said.splitlines())
        if sum(amounts) > ALLOWANCE + (1 + opened) * max(amounts):
            found.append(f"{zone}: {sum(amounts)} by {len(amounts)}, opened {opened} times")
    return found


@pytest.mark.parametrize("cloud", Cloud)
@pytest.mark.parametrize("kind", [CloudFaultKind.NEVER_BOOTS, CloudFaultKind.USER_DATA_FAILS])
@pytest.mark.parametrize("faults", [(), CRASHES], ids=["calm", "crashes"])
def test_a_template_that_never_registers_burns_its_allowance(
    cloud: Cloud, kind: CloudFaultKind, faults: tuple[Fault, ...]
) -> None:
    outcome, by_zone = burnt(broken(cloud, kind, faults=faults))
    assert beyond(by_zone, outcome.journal.text()) == []
    assert outcome.broken <= {"progress"}, outcome.findings
    assert sum(map(sum, by_zone.values())) >= ALLOWANCE


def test_without_the_breaker_it_burns_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run, judged in the same way."""
    monkeypatch.setattr(Breakers, "admits", lambda self, one, wanted, rows: (wanted, ""))
    monkeypatch.setattr(Breakers, "blocked", lambda self: ())
    soon = msgspec.structs.replace(broken(Cloud.GCE, CloudFaultKind.NEVER_BOOTS), horizon_ms=HOUR // 2)
    outcome, by_zone = burnt(soon)
    assert beyond(by_zone, outcome.journal.text()) != []


@pytest.mark.parametrize("cloud", Cloud)
def test_what_comes_up_again_is_used_again(cloud: Cloud) -> None:
    """For half an hour nothing boots; then one trial registers, and the work is done."""
    outcome, _ = burnt(broken(cloud, CloudFaultKind.USER_DATA_FAILS, until_ms=HOUR // 2))
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 50  # type: ignore[index]
    said = outcome.journal.text()
    assert "cloud-init: user data failed" in said
    assert said.index("breaker.opened") < said.index("breaker.closed")


def test_a_clock_that_was_ahead_holds_nothing_back_once_it_is_right() -> None:
    """No VM can register with a dispatcher whose clock is a day ahead, and all of them fail. Their failures are of
    tomorrow: what they block would be blocked until then, and no operator could reset it."""
    ahead = Fault(FaultKind.CLOCK, 5_000, HOUR // 2, 24 * HOUR)
    outcome = run(scene(faults=(ahead,), horizon_ms=3 * HOUR), keep=50)
    assert outcome.ok, outcome.findings
