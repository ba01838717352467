"""Whose money it was, in whole runs: all that the ledger has is somebody's, and the clouds' bills agree with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.money import cost
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.generate import of_theme
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.simulation.world import World
from cloud_dispatch.spend.costs import CostKey, CostQuery, total_of
from cloud_dispatch.statestore import departures
from tests.simulation.scenes import scene

WAYS = ((), (CostKey.PROJECT,), (CostKey.USER, CostKey.DAY), (CostKey.POOL, CostKey.PROVIDER, CostKey.PROFILE))
#: A VM is known to be gone by a listing after it went.
_KNOWN_LATE_MS = 120_000


def asked(scenario: Scenario) -> tuple[Outcome, dict[str, Any]]:
    """A run, and what its statestore says at the end."""
    noted: dict[str, Any] = {}

    async def finish(world: World) -> None:
        store = world.store
        assert store is not None
        noted["ledger"] = await store.ledger(limit=10_000)
        noted["ways"] = [await store.costs(CostQuery(by)) for by in WAYS]
        page = await store.costs_by_task(CostQuery((CostKey.TASK, CostKey.PROJECT)), limit=10_000)
        noted["tasks"] = page.rows
        vms = {own.id: (own.vm, own.rate) for own in await store.past_instances(limit=10_000)}
        noted["vms"] = vms

    return run(scenario, finish=finish), noted


def shared(*clouds: Cloud, **fields: Any) -> Scenario:
    """Three projects on the same machines."""
    work = tuple(
        Work(
            submit_ms=at, count=8, conduct=Conduct(run_ms=run_ms), user=f"{name}-user", project=name, expected_ms=run_ms
        )
        for at, run_ms, name in ((0, 40_000, "genes"), (20_000, 25_000, "stars"), (60_000, 70_000, "bones"))
    )
    return scene(*clouds, work=work, **fields)


@pytest.mark.parametrize("cloud", Cloud)
def test_costs_are_the_ledger_and_the_ledger_is_the_bill(cloud: Cloud) -> None:
    """To the micro-dollar the first; the second but for the time until a VM was known to be gone."""
    outcome, noted = asked(shared(cloud))
    assert outcome.ok, outcome.findings
    booked = sum(entry.amount for entry in noted["ledger"])
    assert booked > 0
    for costs in noted["ways"]:
        assert total_of(row.cost for row in costs.rows).whole == booked
        assert (costs.running, costs.unpriced) == (0, 0)
    projects = {row.keys[0]: row.cost for row in noted["ways"][1].rows}
    assert {"genes", "stars", "bones"} <= set(projects)
    assert projects["bones"].work > projects["stars"].work
    assert total_of(row.cost for row in noted["tasks"]).whole == booked
    for name, paid in projects.items():
        assert total_of(row.cost for row in noted["tasks"] if row.keys[1] == name) == paid
    billed: dict[str, int] = {line.vm: line.amount for line in outcome.bill}
    for entry in noted["ledger"]:
        vm, rate = noted["vms"][entry.instance]
        assert billed[vm] <= entry.amount <= billed[vm] + cost(rate, _KNOWN_LATE_MS) + 1


@pytest.mark.parametrize("theme", ["crashes", "agents", "clouds-and-crashes", "spot", "everything"])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_whatever_goes_wrong(theme: str, seed: int) -> None:
    scenario = of_theme(theme, seed)
    work = [msgspec.structs.replace(one, project=f"p{n % 3}", user=f"u{n % 2}") for n, one in enumerate(scenario.work)]
    outcome, noted = asked(msgspec.structs.replace(scenario, work=tuple(work)))
    assert outcome.ok, outcome.findings
    booked = sum(entry.amount for entry in noted["ledger"])
    for costs in noted["ways"]:
        assert total_of(row.cost for row in costs.rows).whole == booked
    assert total_of(row.cost for row in noted["tasks"]).whole == booked


def test_attempts_that_are_charged_to_nobody_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: shares of less than the whole; the store's own check says so."""
    honest = departures.shares_of
    monkeypatch.setattr(departures, "shares_of", lambda *facts: [replace(one, idle=0) for one in honest(*facts)])
    outcome = run(shared(Cloud.EC2))
    assert any("do not sum to what was booked" in str(finding) for finding in outcome.findings), outcome.findings
