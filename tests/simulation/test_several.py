"""Several clouds at once: every promise holds with any fault in each of them, and one that is wholly down costs the
others nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.reconcile import asking
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.generate import SEVERAL, of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.simulation.several import WAYS_DOWN
from cloud_dispatch.simulation.world import World
from tests.simulation.scenes import broken, scene

SEEDS = 12
#: Seeds of one test, so that the tests can be spread over workers.
TOGETHER = 4
#: What is left of chance between two runs with other random numbers: how long VMs take to boot.
LUCK_MS = 10_000
_BACK_MS = 400_000


@pytest.mark.parametrize("theme", SEVERAL)
@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_every_promise_holds_over_three_clouds(theme: str, first: int) -> None:
    assert broken(theme, TOGETHER, first) == ""


def test_the_themes_have_every_fault_in_them() -> None:
    """In the seeds of a campaign; each way of being down too."""
    scenarios = [of_theme(theme, seed) for theme in SEVERAL for seed in range(60)]
    faults = [fault for one in scenarios for account in one.accounts for fault in account.faults]
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert {(way.kind, way.code) for way in WAYS_DOWN.values()} <= {(fault.kind, fault.code) for fault in faults}
    assert all({account.settings.cloud for account in one.accounts} == set(Cloud) for one in scenarios)


def work_over(*clouds: Cloud, down: Cloud | None = None, faults: Iterable[Fault] = ()) -> Scenario:
    """Eight tasks that each want a VM, of which each cloud gives four."""
    alone = Shape(Resources(1_000, GIB), exclusive=True)
    usual = scene(*clouds, work=(Work(count=8, shape=alone, conduct=Conduct(run_ms=60_000)),), caps=Caps(instances=12))
    accounts = tuple(
        CloudAccount(
            one.profile,
            replace(one.settings, mishaps=replace(one.settings.mishaps, never_boots=0.0)),
            tuple(faults) if one.settings.cloud is down else (),
            Caps(instances=4),
        )
        for one in usual.accounts
    )
    return msgspec.structs.replace(usual, accounts=accounts)


def done_ms(scenario: Scenario, **more: object) -> int:
    """When the last task had succeeded; all of them do, and no promise is broken."""
    outcome = run(scenario, keep=100_000, **more)  # type: ignore[arg-type]
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == sum(work.count for work in scenario.work)
    return max(int(line.split()[0]) for line in outcome.journal if " store task " in line and "succeeded" in line)


@pytest.mark.parametrize("way", WAYS_DOWN)
@pytest.mark.parametrize("down", Cloud)
def test_a_provider_that_is_wholly_down_slows_nothing_else(down: Cloud, way: str) -> None:
    """From the start and for ever: the others' work is done as soon as if there were only them."""
    others = [cloud for cloud in Cloud if cloud is not down]
    without = done_ms(work_over(*others))
    assert done_ms(work_over(*Cloud, down=down, faults=[WAYS_DOWN[way]])) <= without + LUCK_MS


@pytest.mark.parametrize("way", WAYS_DOWN)
def test_a_provider_that_is_down_is_shown_and_comes_back(way: str) -> None:
    """It is named as a problem while it is down, and rented from again when it is back: keys that had expired, too."""
    fault = replace(WAYS_DOWN[way], until_ms=_BACK_MS)
    late = Work(count=4, submit_ms=_BACK_MS + 300_000, shape=Shape(Resources(1_000, GIB), exclusive=True))
    usual = work_over(Cloud.GCE, down=Cloud.GCE, faults=[fault])
    seen: dict[int, str] = {}

    def watch(living: Incarnation) -> None:
        parts = living.parts
        take = parts.loop.one_pass

        async def one_pass() -> object:
            made = await take()
            seen[parts.context.clock.monotonic()] = parts.context.view(ProfileName("gce")).trouble
            return made

        parts.loop.one_pass = one_pass  # type: ignore[method-assign, assignment]

    def prepare(world: World) -> None:
        world.plants.append(watch)

    assert done_ms(msgspec.structs.replace(usual, work=(*usual.work, late)), prepare=prepare) > _BACK_MS
    during = [trouble for at_ms, trouble in seen.items() if 60_000 < at_ms < _BACK_MS]
    assert during
    assert all("profile gce can't" in trouble for trouble in during)
    assert list(seen.values())[-1] == ""


def test_a_pass_that_waits_for_who_is_silent_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as patient as the provider is slow. The others' work is late by it."""
    monkeypatch.setattr(asking, "PATIENCE_MS", 3_600_000)
    without = done_ms(work_over(Cloud.EC2, Cloud.ARM))
    assert done_ms(work_over(*Cloud, down=Cloud.GCE, faults=[WAYS_DOWN["silent"]])) > without + LUCK_MS
