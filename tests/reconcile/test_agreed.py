"""A dispatcher that starts with a shorter lease: what agents were told before goes on for as long as it was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.ports.store import SyncCall
from cloud_dispatch.reconcile import agreed
from cloud_dispatch.reconcile.agreed import Agreed
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.statestore.lineage import RESTORED_FACT
from tests.reconcile.fake import ManualClock, World, world

NOW = 1_700_000_000_000
LONG = Timing(list_interval_ms=0, heartbeat_ms=180_000, poll_ms=180_000, lease_ms=900_000)
SHORT = Timing(list_interval_ms=0)


def test_the_same_terms_and_longer_ones_need_no_time() -> None:
    assert Agreed(80_000).started(80_000, NOW) == Agreed(80_000)
    assert Agreed(80_000).started(90_000, NOW) == Agreed(90_000)
    assert Agreed(80_000).rest_ms(NOW) == 0


def test_shorter_terms_wait_for_the_longer_ones() -> None:
    terms = Agreed(900_000).started(80_000, NOW)
    assert terms == Agreed(80_000, 900_000, NOW + 900_000)
    assert terms.rest_ms(NOW) == 820_000


def test_starts_in_a_row_forget_nothing_and_prolong_nothing() -> None:
    """Agents that no start in between could tell are still waited for, from the first start on."""
    terms = Agreed(900_000).started(80_000, NOW)
    for later_ms in (0, 1_000, 500_000, 819_999):
        terms = terms.started(80_000, NOW + later_ms)
        assert terms == Agreed(80_000, 900_000, NOW + 900_000)
    assert terms.started(80_000, NOW + 820_000) == Agreed(80_000)
    between = terms.started(300_000, NOW + 1_000)
    assert between == Agreed(300_000, 900_000, NOW + 900_000)
    # Agents of the middle one may have been told its terms as late as now.
    assert between.started(80_000, NOW + 700_000) == Agreed(80_000, 300_000, NOW + 1_000_000)


def test_a_stop_that_left_longer_terms_is_waited_for_from_the_next_start_on() -> None:
    stopped = Agreed(80_000).left(140_000)
    assert stopped.started(80_000, NOW) == Agreed(80_000, 140_000, NOW + 140_000)
    assert Agreed(900_000).left(140_000) == Agreed(900_000)
    earlier = Agreed(80_000, 900_000, NOW + 900_000).left(140_000)
    assert earlier.started(80_000, NOW + 1_000) == Agreed(80_000, 900_000, NOW + 900_000)


def test_a_store_made_from_a_copy_is_waited_for_once_as_if_its_last_dispatcher_had_stopped() -> None:
    first = Agreed(80_000).copied(NOW, 80_000).started(80_000, NOW)
    assert (first.silence_ms, first.longer_ms, first.until_ms) == (80_000, 160_000, NOW + 160_000)
    assert agreed.read(agreed.written(first)) == first
    assert first.copied(NOW, 80_000).started(80_000, NOW + 100_000) == Agreed(80_000, restored_ms=NOW)
    again = first.copied(NOW + 50_000, 80_000).started(80_000, NOW + 60_000)
    assert again.until_ms == NOW + 60_000 + 160_000
    assert Agreed(80_000).copied(0, 80_000) == Agreed(80_000)


def test_a_clock_that_was_wrong_makes_nobody_wait_for_years() -> None:
    ahead = Agreed(900_000).started(80_000, NOW + 10**12)
    assert ahead.started(80_000, NOW).rest_ms(NOW) == 820_000


def test_a_clock_that_is_set_forward_leaves_longer_terms_as_much_time() -> None:
    terms = Agreed(900_000).started(80_000, NOW)
    later = terms.moved(10**9, NOW + 10**9 + 300_000)
    assert later.started(80_000, NOW + 10**9 + 300_000).rest_ms(NOW + 10**9 + 300_000) == 520_000
    assert terms.moved(10**9, NOW + 10**9 + 900_000) == terms
    assert Agreed(80_000).moved(10**9, NOW + 10**9) == Agreed(80_000)


@pytest.mark.parametrize("fact", [None, "", "{", '"x"', "{}", '{"silence_ms": "x"}'])
def test_a_fact_that_says_nothing_is_none(fact: str | None) -> None:
    assert agreed.read(fact) is None


def test_what_is_written_is_read() -> None:
    for terms in (Agreed(1), Agreed(1, 2, 3)):
        assert agreed.read(agreed.written(terms)) == terms


async def working(w: World) -> TaskId:
    """A task that an instance runs; the dispatcher had its restore."""
    await w.loop.agree()
    await w.loop.restore()
    await w.booted()
    (row,) = w.rows
    (claim,) = (await w.store.sync(SyncCall(row.id, 1, want=1))).claims
    return claim.task


class SetClock(ManualClock):
    """One whose wall clock can be set."""

    set_ms = 0

    def now(self) -> int:
        return self.ms + self.set_ms


async def refuse(*_: object) -> None:
    raise StoreUnavailable("no answer")


async def state_of(w: World, task: TaskId) -> TaskState:
    return (await w.store.task(task)).state


async def test_a_task_is_not_put_back_while_its_agent_may_run_it(tmp_path: Path) -> None:
    """Cut off from the dispatcher, its agent goes by the lease of before (promise P1). Then it is put back."""
    async with world(tmp_path, timing=LONG) as w:
        task = await working(w)
        w.timing = SHORT
        await w.restart()
        began = w.clock.ms
        while w.clock.ms < began + LONG.silence_ms:
            await w.passes(1, 60_000)
            assert await state_of(w, task) is TaskState.CLAIMED
        await w.passes(2, 60_000)
        assert await state_of(w, task) is TaskState.QUEUED


async def test_a_copy_from_before_leases_became_longer_does_not_shorten_them(tmp_path: Path) -> None:
    """As the copy that an upgrade made. What the last dispatcher told its agents as it stopped is not in it."""
    async with world(tmp_path, timing=LONG) as w:
        task = await working(w)
        await w.store.set_facts({agreed.FACT: agreed.written(Agreed(SHORT.silence_ms)), RESTORED_FACT: str(w.clock.ms)})
        await w.restart()
        told = w.clock.ms + 2 * LONG.lease_ms
        while w.clock.ms < told:
            await w.passes(1, 60_000)
            assert await state_of(w, task) is TaskState.CLAIMED
        await w.passes(8, 60_000)
        assert await state_of(w, task) is TaskState.QUEUED


async def test_a_statestore_that_is_away_when_the_clock_is_set_forward_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a suspend, when the first that is written meets a session that is gone."""
    clock = SetClock()
    async with world(tmp_path, timing=LONG, clock=clock) as w:
        await working(w)
        w.timing = SHORT
        await w.restart()
        await w.passes()
        terms = agreed.read(w.store.fact(agreed.FACT))
        assert terms is not None
        assert terms.until_ms > 0
        clock.set_ms = 3_600_000
        with monkeypatch.context() as away:
            away.setattr(w.store, "set_fact", refuse)
            with pytest.raises(StoreUnavailable):
                await w.passes()
        await w.passes(2)
        kept = agreed.read(w.store.fact(agreed.FACT))
        assert kept == terms.moved(3_600_000, clock.now()) != terms


async def test_a_start_in_between_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, timing=LONG) as w:
        task = await working(w)
        w.timing = SHORT
        began = w.clock.ms
        for _ in range(3):
            await w.restart()
            await w.passes(4, 60_000)
        while w.clock.ms < began + LONG.silence_ms:
            await w.passes(1, 60_000)
            assert await state_of(w, task) is TaskState.CLAIMED
        await w.passes(3, 60_000)
        assert await state_of(w, task) is TaskState.QUEUED


async def test_who_is_heard_is_given_up_by_the_terms_of_now_once_the_others_are_over(tmp_path: Path) -> None:
    """An answer may not have reached it: so nobody is given up before; but then silence is what it is now."""
    async with world(tmp_path, timing=LONG) as w:
        await working(w)
        w.timing = SHORT
        await w.restart()
        began = w.clock.ms
        while w.clock.ms < began + LONG.silence_ms + 60_000:
            (row,) = w.rows
            assert row.state not in (InstanceState.FAILED, InstanceState.OUT_OF_CONTACT)
            news = w.fleet.heard(Heard(row.id, "i", "busy"))
            if news is not None:
                await news
            await w.passes(1, 20_000)
        await w.passes(1, SHORT.silence_ms)
        await w.passes(1)
        assert {one.state for one in w.rows if one.id == row.id} <= {InstanceState.FAILED, InstanceState.TERMINATING}


async def test_who_has_used_an_answer_goes_by_the_terms_of_now(tmp_path: Path) -> None:
    """It has their lease: one that hangs then is not waited for as one that nobody could tell."""
    async with world(tmp_path, timing=LONG) as w:
        await working(w)
        w.timing = SHORT
        await w.restart()
        (row,) = w.rows
        for answered in (False, True, False):
            news = w.fleet.heard(Heard(row.id, "i", "busy", answered=answered))
            if news is not None:
                await news
            await w.passes(1)
        await w.passes(2, SHORT.silence_ms)
        assert {one.state for one in w.rows if one.id == row.id} <= {InstanceState.FAILED, InstanceState.TERMINATING}


async def test_the_same_lease_is_written_once(tmp_path: Path) -> None:
    async with world(tmp_path, timing=LONG) as w:
        await w.loop.agree()
        assert agreed.read(w.store.fact(agreed.FACT)) == Agreed(LONG.silence_ms)
        written = w.store.fact(agreed.FACT)
        await w.restart()
        assert w.store.fact(agreed.FACT) == written
