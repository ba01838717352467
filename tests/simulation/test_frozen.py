"""VMs that stand still and go on: what their clocks make of it, what runs on them, and that a bug is seen there."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cloud_dispatch.agent.enforce import Enforcer
from cloud_dispatch.domain.pool import EndRules
from cloud_dispatch.simulation import loop as virtual
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.generate import FROZEN
from cloud_dispatch.simulation.loop import Frost, Group, VirtualLoop
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.wire.messages import Policy
from tests.simulation.scenes import broken, scene
from tests.simulation.test_checkers import found

ONE = Work(count=1, conduct=Conduct(run_ms=100_000))
#: When the one task of the scene runs for sure, and is far from its end.
AT_MS = 80_000


def frozen(lasts_ms: int, unaware: bool, **fields: object) -> Scenario:
    """One VM, with one task of 100 s, that stands still for so long."""
    fault = Fault(FaultKind.FREEZE, from_ms=AT_MS, until_ms=AT_MS + lasts_ms, times=1, amount=int(unaware))
    usual = scene()
    account = CloudAccount(usual.accounts[0].profile, defaults(Cloud.GCE), (fault,))
    return scene(**{"accounts": (account,), "work": (ONE,), **fields})


def moments(outcome: Outcome, text: str) -> list[int]:
    """When the event log says so."""
    return [int(line.split()[0]) for line in outcome.journal if text in line]


@pytest.mark.parametrize("first", range(0, 24, 8))
@pytest.mark.parametrize("theme", FROZEN)
def test_every_promise_holds(theme: str, first: int) -> None:
    """Machines stand still for less and for longer than a lease, and other things go wrong as well."""
    assert not (failed := broken(theme, 8, first)), failed


# -- the loop


def stand_still(later: bool) -> list[tuple[str, int]]:
    """Two groups wait in a task, a timer and a step each; one stands still from 10 to 40 ms."""
    happened: list[tuple[str, int]] = []

    async def main(loop: VirtualLoop) -> None:
        def note(what: str) -> None:
            happened.append((what, loop.now_ms))

        async def sleeper(who: str) -> None:
            await asyncio.sleep(0.020)
            note(f"{who} slept")
            await asyncio.sleep(0.005)
            note(f"{who} slept again")

        groups = {who: Group(who) for who in ("it", "other")}
        off = []
        for who, group in groups.items():
            loop.begin(sleeper(who), group)
            loop.post(30, group.context, note, f"{who} posted")
            loop.at_ms(60, note, f"{who} timed", context=group.context)
            off.append(loop.at_ms(25, note, "never", context=group.context))
        await asyncio.sleep(0.010)
        frost = Frost(loop, [groups["it"]])
        await asyncio.sleep(0.018)
        off[0].cancel()  # it was due, and is kept
        off[1].cancel()
        await asyncio.sleep(0.012)
        assert frost.thaw(later=later) == 30
        assert frost.thaw(later=later) == 0, "it goes on once"
        await asyncio.sleep(0.2)

    virtual.run(main)
    return [one for one in happened if one[0] != "never" or one[1] != 25]


def test_who_stands_still_does_at_its_end_what_fell_due() -> None:
    """In the order in which it was due; who does not stand still notices nothing."""
    assert stand_still(later=False) == [
        ("other slept", 20), ("other slept again", 25), ("other posted", 30),
        ("it posted", 40), ("it slept", 40), ("it slept again", 45), ("it timed", 60), ("other timed", 60),
    ]  # fmt: skip


def test_whose_clock_stands_still_as_well_has_lost_no_time() -> None:
    """Everything is so much later, also what was not due yet."""
    assert stand_still(later=True) == [
        ("other slept", 20), ("other slept again", 25), ("other posted", 30),
        ("it slept", 50), ("it slept again", 55), ("other timed", 60), ("it posted", 60), ("it timed", 90),
    ]  # fmt: skip


def test_a_run_that_ends_meanwhile_leaves_nothing_behind() -> None:
    """Its tasks are cancelled as all others."""
    left: list[str] = []

    async def sleeper() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            left.append("tidied up")

    async def main(loop: VirtualLoop) -> None:
        group = Group("it")
        loop.begin(sleeper(), group)
        await asyncio.sleep(0.001)
        Frost(loop, [group])

    virtual.run(main)
    assert left == ["tidied up"]


# -- VMs


@pytest.mark.parametrize("unaware", [False, True])
def test_a_short_one_costs_its_length_at_most(unaware: bool) -> None:
    """What runs goes on and ends: by a clock that went on meanwhile as if nothing had been, else so much later."""
    outcome = run(frozen(5_000, unaware))
    assert outcome.ok, outcome.findings
    (began,), (ended,) = moments(outcome, "runs task 1 under"), moments(outcome, "runs no more")
    assert began < AT_MS < began + 100_000
    assert moments(outcome, "goes on after 5000 ms") == [AT_MS + 5_000]
    assert ended - began == pytest.approx(105_000 if unaware else 100_000, abs=100)


def test_one_that_outlasts_the_lease_loses_its_task_and_ends_it_as_it_goes_on() -> None:
    """The task is another instance's by then; the first thing that the agent does is to kill what it still has."""
    outcome = run(frozen(50_000, unaware=False))
    assert outcome.ok, outcome.findings
    assert len(moments(outcome, "runs task 1 under")) == 2
    goes_on = AT_MS + 50_000
    ended = moments(outcome, "runs no more")
    assert goes_on <= ended[0] <= goes_on + 5_000
    assert len(moments(outcome, "task 1 succeeded")) == 1


def stopped_between_claim_and_answer(unaware: bool) -> Scenario:
    """The VM stands still while the answer that gives it a claim is on its way."""
    (claimed, *_) = moments(run(frozen(0, unaware)), "task 1 claimed by")
    fault = Fault(FaultKind.FREEZE, from_ms=claimed + 1, until_ms=claimed + 70_000, times=1, amount=int(unaware))
    usual = frozen(0, unaware)
    return frozen(0, unaware, accounts=(CloudAccount(usual.accounts[0].profile, usual.accounts[0].settings, (fault,)),))


def test_a_claim_that_is_heard_of_after_its_lease_is_not_started() -> None:
    """It goes back, as one that was never started; the task runs elsewhere, once."""
    outcome = run(stopped_between_claim_and_answer(unaware=False))
    assert outcome.ok, outcome.findings
    assert len(moments(outcome, "goes on after")) == 1
    assert len(moments(outcome, "runs task 1 under")) == 1


def test_one_that_is_started_all_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the agent takes what it hears of for what it may do now."""
    renew = Enforcer.renew

    def careless(self: Enforcer, lease_end_ms: int, policy: Policy) -> None:
        renew(self, lease_end_ms + 60_000, policy)

    monkeypatch.setattr(Enforcer, "renew", careless)
    outcome = run(stopped_between_claim_and_answer(unaware=False), keep=50)
    found(outcome, "P1 tasks", "after that lease's end")


def test_a_vm_that_stood_still_once_is_judged_as_any_other_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an agent that ignores its lease. What it was given after its VM had gone on is no other case."""
    renew = Enforcer.renew

    def endless(self: Enforcer, lease_end_ms: int, policy: Policy) -> None:
        renew(self, lease_end_ms + 10**9, policy)

    monkeypatch.setattr(Enforcer, "renew", endless)
    stopped = Fault(FaultKind.FREEZE, from_ms=70_000, until_ms=72_000, times=9, amount=1)
    cut = Fault(FaultKind.CUT_OFF, from_ms=150_000, until_ms=900_000, times=1)
    (pool,) = scene().pools
    account = CloudAccount(pool.profiles[0], defaults(Cloud.GCE), (stopped, cut))
    pools = (replace(pool, end=EndRules(idle_ms=600_000)),)  # another one is there to take over at once
    work = (Work(count=3, conduct=Conduct(run_ms=60_000)), Work(120_000, 2, conduct=Conduct(run_ms=600_000)))
    outcomes = [run(scene(accounts=(account,), pools=pools, work=work, seed=seed)) for seed in range(1, 5)]
    assert all(moments(outcome, "goes on after 2000 ms") for outcome in outcomes)
    texts = [one.text for outcome in outcomes for one in outcome.findings if one.checker == "P1 tasks"]
    assert any("still runs under" in text for text in texts), texts
