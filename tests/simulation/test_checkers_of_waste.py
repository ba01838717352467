"""Checkers can fail, continued: work that is taken from a machine for no reason, and the reasons that there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.agent.enforce import Enforcer
from cloud_dispatch.domain.ids import BatchId, FencingToken, ProfileName, TaskId, VmId
from cloud_dispatch.domain.money import HOUR_MS, Amount
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import EndRules, HealthCheck
from cloud_dispatch.reconcile.spend import Spending
from cloud_dispatch.simulation.checkers.base import Process
from cloud_dispatch.simulation.checkers.waste import Waste
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.facts import Commit, EndedAttempt
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.ends import FirstEnds
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.wire.messages import Policy
from tests.simulation.scenes import scene
from tests.simulation.test_checkers import found
from tests.simulation.test_checkers_alone import Truth

LONG = Work(count=2, conduct=Conduct(run_ms=600_000), max_attempts=10)
#: When all has been well for so long that nothing can be left of what was wrong before; see `Waste`.
WELL_MS = 2 * 20_000 + 120_000 + 60_000


def test_it_finds_a_hard_end_that_nothing_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: VMs are launched for five minutes, and nobody moves that on."""

    def soon(self: Spending, pool: Any, offering: Any, now: int, heads: Any = None, slots: int = 1) -> FirstEnds:
        return FirstEnds(now + 300_000, now + 300_000, now + 300_000)

    async def never(self: Spending) -> None:
        pass

    assert run(scene(work=(LONG,)), keep=50).ok
    monkeypatch.setattr(Spending, "ends_of", soon)
    monkeypatch.setattr(Spending, "_set_free", never)
    found(run(scene(work=(LONG,), horizon_ms=900_000), keep=50), "waste", "and nothing was wrong")


def test_it_finds_an_agent_that_gives_up_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it takes its lease for shorter than it is, once it has lasted for five minutes."""
    renew = Enforcer.renew

    def hasty(self: Enforcer, lease_end_ms: int, policy: Policy) -> None:
        renew(self, lease_end_ms - (19_000 if lease_end_ms > 400_000 else 0), policy)

    monkeypatch.setattr(Enforcer, "renew", hasty)
    outcome = run(scene(work=(LONG,), horizon_ms=900_000), keep=50)
    found(outcome, "waste", "by instance-lost, and nothing was wrong")


# -- alone


def seen(scenario: Scenario, *, at_ms: int = 2 * WELL_MS, cause: str = "instance-lost", **vm: Any) -> list[str]:
    """What is found where one attempt ends so, long after all was well since the start."""
    truth = Truth(scenario)
    truth.now_ms, truth.healthy_since_ms = at_ms, vm.pop("healthy_since_ms", 0)  # type: ignore[attr-defined]
    checker = Waste(truth)  # type: ignore[arg-type]
    machine = TrueVm(
        VmId("vm-1"), "gce", ProfileName("gce"), BatchId("b"), "t", 2, "z", Market.SPOT,
        EPOCH_MS + vm.pop("created_ms", 0), pool="pool", **vm,
    )  # fmt: skip
    checker.registered(machine, "b-0")
    ended = EndedAttempt(TaskId(1), FencingToken(1), 1, "b-0", cause)
    checker.committed(Commit((), (), (), (ended,), (), frozenset()))
    return truth.found


def test_what_was_lost_where_nothing_was_wrong_is_found() -> None:
    assert seen(scene()) == ["task 1 was taken from b-0 by instance-lost, and nothing was wrong"]
    assert len(seen(scene(), cause="preempted")) == 1
    assert seen(scene(), cause="exit-code") == []


def trouble(from_ms: int, until_ms: int, kind: CloudFaultKind = CloudFaultKind.CUT_OFF) -> Scenario:
    usual = scene()
    fault = CloudFault(kind, from_ms=from_ms, until_ms=until_ms)
    return scene(accounts=(CloudAccount(usual.accounts[0].profile, usual.accounts[0].settings, (fault,)),))


@pytest.mark.parametrize(
    ("scenario", "more"),
    [
        (scene(), {"taken": True}),
        (scene(), {"wall_off_ms": 60_000}),
        (scene(), {"healthy_since_ms": None}),
        (scene(), {"healthy_since_ms": WELL_MS + 1}),
        (scene(faults=(Fault(FaultKind.KILL, WELL_MS + 1),)), {}),
        (scene(faults=(Fault(FaultKind.LOSS, 5, WELL_MS + 1, 20),)), {}),
        (trouble(5, WELL_MS + 1), {}),
        (trouble(5, 0), {}),
        (scene(budgets=(Budget(EVERYTHING, Window.TOTAL, Amount(1)),)), {}),
        (scene(budgets=(Budget(Key(Scope.DRIVER, "gce"), Window.TOTAL, Amount(1)),)), {}),
        (scene(budgets=(Budget(Key(Scope.USER, "ada"), Window.TOTAL, Amount(1)),)), {}),
        (scene(work=(Work(conduct=Conduct(unkillable=True)),)), {}),
        (scene(), {"created_ms": -24 * HOUR_MS}),
    ],
)
def test_a_reason_is_a_reason(scenario: Scenario, more: dict[str, Any]) -> None:
    """The machine, trouble now or not long ago, a limit, what takes everything along, an old age."""
    assert seen(scenario, **more) == []


@pytest.mark.parametrize(
    "scenario",
    [
        scene(faults=(Fault(FaultKind.KILL, WELL_MS - 1),)),
        scene(faults=(Fault(FaultKind.LOSS, 5, WELL_MS - 1, 20),)),
        trouble(5, WELL_MS - 1),
        trouble(0, 0, CloudFaultKind.NEIGHBOUR),
        scene(budgets=(Budget(Key(Scope.DRIVER, "arm"), Window.TOTAL, Amount(1)),)),
    ],
)
def test_what_is_over_or_concerns_others_is_none(scenario: Scenario) -> None:
    assert len(seen(scenario)) == 1


def test_health_that_fails_takes_all_along() -> None:
    pools = tuple(replace(one, health_checks=(HealthCheck(("false",)),)) for one in scene(Cloud.GCE).pools)
    assert seen(scene(pools=pools)) == []
    brief = tuple(replace(one, end=EndRules(lifetime_ms=2 * WELL_MS)) for one in scene(Cloud.GCE).pools)
    assert seen(scene(pools=brief)) == []


def lives(minutes: int, *work: Work, **more: Any) -> Scenario:
    usual = scene(work=work, **more)
    (pool,) = usual.pools
    return scene(work=work, pools=(replace(pool, end=EndRules(lifetime_ms=minutes * 60_000)),), **more)


def begun(scenario: Scenario, *, run_ms: int, age_ms: int, boots_ms: int = 60_000, **vm: Any) -> list[str]:
    """What is found where a command is begun on a VM of that age, long after all was well since the start."""
    truth = Truth(scenario)
    truth.now_ms, truth.healthy_since_ms = WELL_MS * 3, vm.pop("healthy_since_ms", 0)  # type: ignore[attr-defined]
    checker = Waste(truth)  # type: ignore[arg-type]
    created_ms = EPOCH_MS + truth.now_ms - age_ms  # type: ignore[attr-defined]
    machine = TrueVm(
        VmId("vm-1"), "gce", ProfileName("gce"), BatchId("b"), "t", 2, "z", Market.SPOT, created_ms, pool="pool", **vm
    )
    now_ms, truth.now_ms = truth.now_ms, truth.now_ms - age_ms + boots_ms  # type: ignore[attr-defined]
    checker.registered(machine, "b-0")
    truth.now_ms = now_ms  # type: ignore[attr-defined]
    checker.process_started(Process(machine, 1, 1, now_ms, run_ms=run_ms))
    return truth.found


TOLD = Work(conduct=Conduct(600_000), expected_ms=600_000)
UNTOLD = Work(conduct=Conduct(600_000))


def test_what_is_begun_too_late_is_found() -> None:
    """Of a life of half an hour ten minutes are needed: so much is left after twenty, but for what clocks may say."""
    assert begun(lives(30, TOLD), run_ms=600_000, age_ms=1_300_000) == [
        "task 1 is begun on vm-1, takes 600000 ms, and has 500000 ms of its life"
    ]
    assert begun(lives(30, TOLD), run_ms=600_000, age_ms=1_259_000) == []


@pytest.mark.parametrize(
    ("scenario", "more"),
    [
        (lives(30, UNTOLD), {}),
        (lives(30, TOLD, UNTOLD), {}),  # somebody says nothing of work that takes as long
        (lives(30, TOLD), {"boots_ms": 900_000}),  # no other one would have the time either
        (lives(30, TOLD), {"wall_off_ms": 60_000}),
        (lives(30, TOLD), {"healthy_since_ms": None}),
        (lives(30, TOLD, budgets=(Budget(EVERYTHING, Window.TOTAL, Amount(1)),)), {}),
    ],
)
def test_what_is_begun_for_a_reason_is_not(scenario: Scenario, more: dict[str, Any]) -> None:
    """Nobody knew, it would be too late for any, trouble, a limit."""
    assert begun(scenario, run_ms=600_000, age_ms=1_700_000, **more) == []
