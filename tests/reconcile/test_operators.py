"""What operators say of the whole deployment, and what the loop makes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.stop import STOP_FACT, Stop, StopLevel, decode
from cloud_dispatch.planner.plan import Drain, Plan, Terminate
from cloud_dispatch.reconcile import explain
from cloud_dispatch.reconcile.asking import OFFERINGS_TTL_MS
from cloud_dispatch.reconcile.spend import PRICE_GOOD_MS, _words, stale_price
from cloud_dispatch.spend.budget import Budget, Stage
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.stages import Reached
from cloud_dispatch.spend.windows import Span, Window
from cloud_dispatch.telemetry.metrics import Metrics
from tests.reconcile.examples import NOW, offering
from tests.reconcile.fake import LOCAL, POOL, Cloud, ManualClock, world


async def test_a_limit_is_tightened_for_what_there_is(tmp_path: Path) -> None:
    """From then on nothing is launched that it does not pay for, and `explain` says so; a misspelt pool is refused."""
    async with world(tmp_path) as w:
        with pytest.raises(InvalidInput, match="no such pool 'pol'"):
            await w.fleet.set_limit(Key(Scope.POOL, "pol"), Window.DAY, Amount(1), "")
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, Amount(0), "holidays")
        (task,) = await w.submit(1)
        await w.passes(3)
        assert w.rows == []
        said = await w.fleet.explain_task(task)
        assert any("the budget pool" in reason for reason in said["reasons"]), said
        assert explain.unserved(w.context)["budget"] == 1
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, None, "")
        await w.passes(1)
        assert len(w.rows) == 1, "what the former limit refused is asked anew at once"


async def test_a_stop_does_not_hide_what_else_keeps_a_task_waiting(tmp_path: Path) -> None:
    """`explain` says what `plan` says: what can never run, and what has no money, does not wait for the stop's end."""
    async with world(tmp_path) as w:
        await w.fleet.set_limit(Key(Scope.PROJECT, "poor"), Window.DAY, Amount(0), "")
        await w.fleet.stop(StopLevel.LAUNCHES, "holidays")
        (usual,) = await w.submit(1)
        (poor,) = await w.submit(1, project="poor")
        (huge,) = await w.submit(1, shape=Shape(Resources(10**6, GIB)))
        await w.passes(2)
        stopped = "launching is stopped: an operator stopped launches: holidays"
        said = {task: (await w.fleet.explain_task(task))["reasons"] for task in (usual, poor, huge)}
        assert said[usual] == [stopped]
        assert said[poor][0] == said[huge][0] == stopped
        assert "the budget project poor day" in said[poor][1]
        assert "no offering can ever run it" in said[huge][1]


async def test_a_minimum_that_is_not_met_is_told_with_the_reason(tmp_path: Path) -> None:
    """In the plan that operators see and in what is counted, for as long as it is so."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        context, missing = w.context, partial(explain.missing, w.context)
        metrics = Metrics(w.store, w.clock, partial(explain.unserved, context), missing, lambda: context.stop)
        assert missing() == {POOL: 0}
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, Amount(0), "")
        await w.passes(3)
        (short,) = (await w.fleet.preview())["short"]
        assert (short["pool"], short["missing"]) == (POOL, 3)
        assert short["reason"].startswith("its minimum wants 3 instances; ")
        assert "budget" in short["reason"]
        assert missing() == {POOL: 3}
        assert b'cloud_dispatch_instances_missing{pool="%s"} 3.0' % POOL.encode() in metrics.render()
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, None, "")
        w.clock.ms += 60_000
        await w.passes(2)
        assert len(w.rows) == 3
        assert (await w.fleet.preview())["short"] == []
        assert missing() == {POOL: 0}


async def test_a_task_that_waits_since_a_restore_is_told_what_helps(tmp_path: Path) -> None:
    """Its budget counts as spent, which no bill explains."""
    async with world(tmp_path) as w:
        await w.store.set_fact("spend-unsure-since", str(w.clock.ms))
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, Amount(10**9), "")
        (task,) = await w.submit(1)
        await w.passes(2)
        assert "`budget reconcile`" in (await w.fleet.explain_task(task))["reasons"][-1]
        await w.store.reconcile()
        w.clock.ms += 60_000
        await w.passes(2)
        assert "reconcile" not in str((await w.fleet.explain_task(task))["reasons"])


async def test_nothing_is_launched_under_a_limit_at_a_price_that_is_old(tmp_path: Path) -> None:
    """Without a limit it is; and with one again as soon as the price is known anew."""
    async with world(tmp_path) as w:
        w.cloud.offers = (replace(offering(), priced_ms=w.clock.ms - PRICE_GOOD_MS - 1),)
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, Amount(10**9), "")
        (task,) = await w.submit(1)
        await w.passes(3)
        assert w.rows == []
        assert "is 7d old" in str((await w.fleet.explain_task(task))["reasons"])
        w.cloud.offers = (replace(offering(), priced_ms=w.clock.ms),)
        w.clock.ms += OFFERINGS_TTL_MS + 1
        await w.passes(2)
        assert len(w.rows) == 1


@pytest.mark.parametrize("priced_ms", [0, NOW - PRICE_GOOD_MS - 1])
def test_a_price_is_good_for_a_week(priced_ms: int) -> None:
    assert stale_price(replace(offering(), priced_ms=priced_ms), NOW)
    assert not stale_price(replace(offering(), priced_ms=NOW - PRICE_GOOD_MS), NOW)


async def test_what_is_affordable_is_found_among_many_that_are_not(tmp_path: Path) -> None:
    """The cheapest a slot is the largest machine, and only the smallest fits the limit: a refusal closes all that is as
    dear, so that no time is lost trying one after the other."""
    sizes = [1, *range(2, 40)]
    offers = tuple(
        offering(
            f"t{size}", rate=10**9 if size == 1 else size * 10**8 * 9, capacity=Resources(size * 1000, size * GIB),
            priced_ms=NOW,
        )
        for size in sizes
    )  # fmt: skip
    async with world(tmp_path, cloud=Cloud(ManualClock(), offers=offers)) as w:
        w.cloud.clock = w.clock
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.TOTAL, Amount(450_000), "")
        await w.submit(50, expected_runtime_ms=600_000)
        await w.passes(3)
        assert [row.type for row in w.rows] == ["t1"]


@pytest.mark.parametrize("last", [StopLevel.TERMINATE, StopLevel.NOTHING])
async def test_of_two_stops_at_once_the_last_word_is_kept(tmp_path: Path, last: StopLevel) -> None:
    """In memory as in the store, whatever the order of their commits."""
    first = StopLevel.NOTHING if last is StopLevel.TERMINATE else StopLevel.TERMINATE
    async with world(tmp_path) as w:
        await w.fleet.stop(StopLevel.LAUNCHES, "")
        await asyncio.gather(w.fleet.stop(first, "first"), w.fleet.stop(last, "last"))
        assert w.fleet.stopped().level is last
        assert decode(w.store.fact(STOP_FACT)).level is last


@pytest.mark.parametrize("commit", ["intend", "change"])
async def test_no_launch_goes_out_after_a_stop(tmp_path: Path, commit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one whose intent was being committed: no call is made, and its slots are given back."""
    async with world(tmp_path) as w:
        await w.submit(1)
        done = getattr(w.store, commit)

        async def stopped_meanwhile(*args: Any) -> Any:
            answer = await done(*args)
            w.context.stops["operator"] = Stop(StopLevel.LAUNCHES, "now")
            return answer

        monkeypatch.setattr(w.store, commit, stopped_meanwhile)
        await w.passes(3)
        assert w.cloud.requests == []
        assert w.rows == []


@pytest.mark.parametrize(
    ("stage", "ends"),
    [(Stage.NO_LAUNCH, "past its `stop_launches`"), (Stage.DRAIN, "past its `drain`"), (Stage.LIMIT, "spent")],
)
def test_a_threshold_is_named_where_the_limit_is_far(stage: Stage, ends: str) -> None:
    """Whoever reads that 2 of 100 dollars are spent must know why nothing starts."""
    budget = Budget(Key(Scope.USER, "eve"), Window.DAY, Amount(100), no_launch_percent=2, drain_percent=3)
    assert _words(Reached(budget, Span(0, 1), Amount(2), stage)).endswith(ends)


def test_what_only_counts_as_spent_is_not_called_spent() -> None:
    """After a restore: whoever reads it must know what to do."""
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(100))
    reached = Reached(budget, Span(0, 1), Amount(102), Stage.LIMIT)
    assert _words(reached, unsure=True).endswith("until `budget reconcile`")
    assert "102" not in _words(reached, unsure=True)


async def test_who_spends_is_known_by_name(tmp_path: Path) -> None:
    """A name that nothing has would show nothing spent; projects and users may come later."""
    async with world(tmp_path) as w:
        for known in (EVERYTHING, Key(Scope.POOL, POOL), Key(Scope.PROFILE, LOCAL), Key(Scope.PROJECT, "any")):
            w.fleet.check_spender(known)
        for scope in (Scope.POOL, Scope.PROFILE, Scope.DRIVER):
            with pytest.raises(InvalidInput, match=f"no such {scope} 'typo'"):
                w.fleet.check_spender(Key(scope, "typo"))


@pytest.mark.parametrize("action", ["drain", "terminate"])
@pytest.mark.parametrize("level", [StopLevel.NOTHING, StopLevel.TERMINATE])
async def test_a_hold_that_came_after_the_plan_is_heeded(tmp_path: Path, action: str, level: StopLevel) -> None:
    """Found by the simulator: it was stored while the plan's changes waited for a slow statestore. Only the end of
    everything ends what is held too."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        w.context.stops["operator"] = Stop(level, "why")
        decided = (Drain if action == "drain" else Terminate)(row.id, "idle", "it idles")
        await w.fleet.hold(row.id, "mine")
        await w.loop._release(Plan((decided,)))
        ended = action == "terminate" and level is StopLevel.TERMINATE
        assert w.rows[0].state is (InstanceState.TERMINATING if ended else InstanceState.IDLE)
