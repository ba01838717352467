"""The statestore is lost altogether: what it made runs on, counts, and is taken over once somebody says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct

from cloud_dispatch import succession
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.reconcile import foreign, restored
from cloud_dispatch.simulation.clouds.settings import Cloud, Spread
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.generate import STORELESS, of_theme
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.statestore import SqlStore, loading
from tests.simulation.scenes import broken, scene
from tests.simulation.test_checkers import found

SEEDS = 15
LONG = Work(count=6, conduct=Conduct(run_ms=120_000), max_attempts=5)
LOST = Fault(FaultKind.LOSE, 100_000, amount=30_000)


@pytest.mark.parametrize("theme", STORELESS)
def test_every_promise_holds_when_the_store_is_lost(theme: str) -> None:
    assert broken(theme, SEEDS) == ""


def test_what_a_lost_store_made_is_taken_over() -> None:
    """Its VMs are told of and let be, then adopted; agents end what the lost one gave them, and do the work that is
    submitted anew, under other tokens. Nothing is left in the end."""
    outcome = run(scene(work=(LONG,), faults=(LOST,)), keep=5_000)
    assert outcome.ok, outcome.findings
    assert outcome.tasks[TaskState.SUCCEEDED] == LONG.count
    lines = list(outcome.journal)
    first, again = (n for n, line in enumerate(lines) if "dispatcher starts" in line)
    assert any("instance.foreign" in line for line in lines[again:])
    taken = [line.split()[3] for line in lines[again:] if "store instance" in line and "unknown" in line]
    assert taken
    assert {line.split()[3] for line in lines[first:again] if "store instance" in line} >= set(taken)
    given = [{line.rsplit(maxsplit=1)[1] for line in part if " claimed by " in line} for part in
             (lines[:again], lines[again:])]  # fmt: skip
    assert all(given)
    assert given[0].isdisjoint(given[1])


def two_sites() -> Scenario:
    """A slow cloud whose machines a lost store has made, and a quick one with work for more than the cap leaves; the
    dispatcher dies once more before anybody has taken them over, when it has a machine of its own."""

    def work(site: str, submit_ms: int, count: int, run_ms: int, *, exclusive: bool = False) -> Work:
        shape = Shape(Resources(1_000, GIB), labels=(("site", site),), exclusive=exclusive)
        return Work(submit_ms, count, shape, Conduct(run_ms), max_attempts=5)

    items = (
        work("slow", 0, 4, 900_000),
        work("quick", 105_000, 1, 900_000),
        work("quick", 150_000, 12, 300_000, exclusive=True),
    )
    faults = (Fault(FaultKind.LOSE, 100_000, amount=600_000), Fault(FaultKind.CRASH, 250_000, amount=1))
    usual = scene(Cloud.GCE, Cloud.EC2, work=items, faults=faults, caps=Caps(instances=6))
    (pool,), (slow, quick) = usual.pools, usual.accounts
    pools = tuple(
        replace(pool, name=PoolName(site), labels=(("site", site),), profiles=(account.profile,))
        for site, account in (("slow", slow), ("quick", quick))
    )
    late = replace(slow.settings, latency=Spread(3_000, 0.1, 6_000))
    return replace_struct(usual, pools=pools, accounts=(replace_struct(slow, settings=late), quick))


def test_a_dispatcher_that_starts_again_counts_them_too() -> None:
    """Which it may only do once the slow cloud has answered."""
    outcome = run(two_sites(), keep=50)
    assert outcome.ok, outcome.findings


def test_who_does_not_wait_for_the_slow_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it launches as soon as the quick one has answered, and knows nothing of what was seen before it died."""
    monkeypatch.setattr(restored, "_unlisted", lambda context, now: iter(()))
    monkeypatch.setattr(foreign, "remembered", lambda store: {})
    found(run(two_sites(), keep=50, sought="P4 caps"), "P4 caps", "the cap of everything is 6")


def test_tokens_of_a_lost_store_that_are_given_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a new store begins with the first token, as the lost one did."""
    monkeypatch.setattr(loading, "tokens_by", lambda now_ms: 0)
    found(run(scene(work=(LONG,), faults=(LOST,)), keep=50), "P1 tasks", "is not newer than")


def test_vms_of_a_lost_store_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as if they were nobody's, though they are this deployment's and bill. With the cap full of them, as many
    are launched again."""
    lost = Fault(FaultKind.LOSE, 100_000, amount=300_000)
    scenario = scene(work=(LONG,), faults=(lost,), caps=Caps(instances=2))
    outcome = run(scenario, keep=5_000)
    assert outcome.ok, outcome.findings
    monkeypatch.setattr(Ledger, "_count_foreign", lambda self, others: None)
    again = Work(submit_ms=110_000, count=6, conduct=Conduct(run_ms=120_000), max_attempts=5)
    full = scene(work=(LONG, again), faults=(lost,), caps=Caps(instances=2))
    found(run(full, keep=50, sought="P4 caps"), "P4 caps", "the cap of everything is 2")


async def nothing(*_: object) -> None:
    """In the place of what a dispatcher should do."""


def test_money_that_a_lost_store_has_spent_is_not_spent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the state folder is lost as well, the VMs tell. Planted: nothing tells."""
    monkeypatch.setattr(succession, "succeed", nothing)
    outcome = run(of_theme("lost-store-and-money", 49_000_019), keep=50)
    assert outcome.ok, outcome.findings
    monkeypatch.setattr(SqlStore, "doubt", nothing)
    found(run(of_theme("lost-store-and-money", 49_000_019), keep=50, sought="P3 spend"), "P3 spend", "the budget month")


def test_seeds_find_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the same, in some of the scenarios that are run anyway."""
    monkeypatch.setattr(Ledger, "_count_foreign", lambda self, others: None)
    outcomes = (run(of_theme("lost-store-and-fleets", seed), keep=50) for seed in range(SEEDS))
    assert any(one.checker == "P4 caps" for outcome in outcomes for one in outcome.findings)
