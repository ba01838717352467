"""What is remembered from pass to pass is what looking at everything would find."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.instance import INSTANCE_TABLE, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Pool, TypeFilter
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.replay import decode_snapshot, encode_snapshot
from cloud_dispatch.planner.snapshot import Supply
from cloud_dispatch.ports.fleet import Heard
from cloud_dispatch.ports.store import SyncCall
from cloud_dispatch.reconcile import picture
from cloud_dispatch.reconcile.contacts import NEW, Contacts
from cloud_dispatch.reconcile.picture import OUTLOOK_STEPS
from cloud_dispatch.reconcile.stale import Stale
from cloud_dispatch.testing.store_builders import Agent, result
from tests.reconcile.examples import instance, offering
from tests.reconcile.fake import LOCAL, POOL, World, world

MINUTE_MS = 60_000

S = InstanceState
NOBODY: Sequence[DemandSource] = ()


def seen(w: World) -> tuple[Supply, ...]:
    return picture.take(w.context, NOBODY).supply


def seen_anew(w: World) -> tuple[Supply, ...]:
    for row in w.rows:
        w.context.contact(row.id).supply = None
    return seen(w)


async def claim(w: World, name: InstanceId) -> None:
    await w.store.sync(SyncCall(name, 1, want=1))


async def hold(w: World, name: InstanceId) -> None:
    await w.fleet.hold(name, "test")


async def ask_end(w: World, name: InstanceId) -> None:
    w.fleet.heard(Heard(name, "i", "idle", ask_end=True))


async def doubt(w: World, name: InstanceId) -> None:
    w.context.in_doubt.add(name)


async def leave_pool(w: World, name: InstanceId) -> None:
    pool = replace(w.context.settings.pools[POOL], types=TypeFilter(deny=("t",)))
    w.context.settings = replace(w.context.settings, pools={POOL: pool})


async def leave_offer(w: World, name: InstanceId) -> None:
    for view in w.context.profiles.values():
        view.offerings = (offering("other"),)


@pytest.mark.parametrize("change", [claim, hold, ask_end, doubt, leave_pool, leave_offer])
async def test_whatever_changes_of_an_instance_is_in_its_next_picture(
    tmp_path: Path, change: Callable[[World, InstanceId], Awaitable[None]]
) -> None:
    """The same instance is the same picture; anything that a picture shows makes a new one."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        await w.register(row)
        before = seen(w)
        assert seen(w)[0] is before[0]
        await change(w, row.id)
        after = seen(w)
        assert after != before
        assert after == seen_anew(w)


async def test_what_runs_is_seen_nearer_its_end_though_nothing_changes(tmp_path: Path) -> None:
    """First it stays for longer than is planned for, then it is known when it is done; in between it is the same
    picture, at which nobody looks again."""
    async with world(tmp_path) as w:
        await w.submit(1, expected_runtime_ms=20 * MINUTE_MS)
        await w.passes()
        agent = Agent(w.store, await w.register(w.rows[0]))
        (held,) = await agent.claim()
        agent.runs(held)
        await agent.sync()
        (one,) = seen(w)
        assert (one.stays, one.free_ms) == (one.load, 0)
        began, told = w.clock.ms, []
        assert w.context.contact(one.instance).due_ms == began + 10 * MINUTE_MS
        for _ in range(20):
            w.clock.ms += MINUTE_MS
            (one,) = seen(w)
            assert (one,) == seen_anew(w)
            told.append(-1 if one.stays.tasks else one.free_ms)
        assert told[:9] == [-1] * 9
        assert set(told[9:19]) == {told[9]}
        assert 0 <= began + 20 * MINUTE_MS - told[9] < 10 * MINUTE_MS // OUTLOOK_STEPS
        assert told[19] == -1  # it takes longer than it said: as long again, for all that is known


async def test_what_starts_long_after_it_was_claimed_is_seen_to_take_longer(tmp_path: Path) -> None:
    """Its inputs took a while: what it holds is the same, and it is done that much later."""
    async with world(tmp_path) as w:
        await w.submit(1, expected_runtime_ms=5 * MINUTE_MS)
        await w.passes()
        agent = Agent(w.store, await w.register(w.rows[0]))
        (held,) = await agent.claim()
        (before,) = seen(w)
        w.clock.ms += 4 * MINUTE_MS
        agent.runs(held)
        await agent.sync()
        w.clock.ms += 10 * MINUTE_MS // OUTLOOK_STEPS
        (after,) = seen(w)
        assert (after,) == seen_anew(w)
        assert after.free_ms > before.free_ms + 2 * MINUTE_MS


async def test_nothing_waits_for_what_nobody_knows_the_end_of(tmp_path: Path) -> None:
    """A short task behind one of unknown length has a VM launched; behind one that says that it is short, none. Once
    others of its shape have shown how long they run, it is known of those that say nothing too."""
    long, short = Shape(Resources(2_000, GIB)), Shape(Resources(2_000, 2 * GIB))
    async with world(tmp_path) as w:
        await w.submit(1, shape=long)
        await w.passes()
        agent = Agent(w.store, await w.register(w.rows[0]))
        (held,) = await agent.claim()
        (task,) = await w.submit(1, shape=short, expected_runtime_ms=10_000)
        await w.passes()
        assert len(w.rows) == 2
        assert (await w.fleet.explain_task(task))["reasons"] == ["1 start on instances that this plan launches"]
        await agent.sync(result(held, ran_ms=5_000))
        (held,) = await agent.claim()
        await agent.sync(result(held, ran_ms=5_000))
        await w.submit(1, shape=long)
        await agent.claim()
        one = next(s for s in seen(w) if s.instance == agent.id)
        assert one.load.tasks == 1
        assert not one.stays.tasks


async def test_what_leaves_half_of_an_instance_unused_is_told_from_when_on(tmp_path: Path) -> None:
    """With what runs there; from when it serves on, and anew when more was used meanwhile."""
    half, more = Shape(Resources(1_000, GIB)), Shape(Resources(1_500, GIB))
    async with world(tmp_path) as w:
        await w.submit(1, shape=more)
        await w.passes()
        assert seen(w)[0].slack_since_ms is None, "it boots"
        agent = Agent(w.store, await w.register(w.rows[0]))
        begun = w.clock.now()
        assert (seen(w)[0].slack_since_ms, seen(w)[0].shapes) == (begun, ())
        (held,) = await agent.claim()
        assert (seen(w)[0].slack_since_ms, seen(w)[0].shapes) == (None, ())
        w.clock.ms += MINUTE_MS
        await agent.sync(result(held, ran_ms=5_000))
        assert seen(w)[0].slack_since_ms == w.clock.now() > begun
        since = w.clock.now()
        w.clock.ms += MINUTE_MS
        await w.submit(1, shape=half)
        await agent.claim()
        assert (seen(w)[0].slack_since_ms, seen(w)[0].shapes) == (since, (half,))


@pytest.mark.parametrize("asks", [{"preemptible": False}, {"labels": (("market", "on-demand"),)}])
@pytest.mark.parametrize("spot", [True, False])
async def test_what_has_nothing_but_what_spot_vms_do_is_told_from_when_on(
    tmp_path: Path, spot: bool, asks: dict[str, Any]
) -> None:
    """With what runs there, where its pool rents spot VMs as well; anew when it had something else meanwhile."""
    markets = (Market.ON_DEMAND, Market.SPOT) if spot else (Market.ON_DEMAND,)
    loose, firm = Shape(Resources(1_500, GIB)), Shape(Resources(1_500, GIB), **asks)
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), markets=markets, target_drain_ms=MINUTE_MS)) as w:
        await w.submit(1, shape=firm)
        await w.passes()
        assert seen(w)[0].spot_since_ms is None, "it boots"
        agent = Agent(w.store, await w.register(w.rows[0]))
        begun = w.clock.now()
        assert seen(w)[0].spot_since_ms == (begun if spot else None)
        (held,) = await agent.claim()
        assert (seen(w)[0].spot_since_ms, seen(w)[0].shapes) == (None, ())
        w.clock.ms += MINUTE_MS
        await agent.sync(result(held, ran_ms=5_000))
        since = w.clock.now() if spot else None
        assert seen(w)[0].spot_since_ms == since
        w.clock.ms += MINUTE_MS
        await w.submit(1, shape=loose, expected_runtime_ms=3 * MINUTE_MS)
        await agent.claim()
        assert (seen(w)[0].spot_since_ms, seen(w)[0].shapes) == (since, (loose,) if spot else ())
        step = max(MINUTE_MS, w.context.settings.pools[POOL].boot_deadline_ms) // OUTLOOK_STEPS
        assert seen(w)[0].work_ms == (-(-3 * MINUTE_MS // step) * step if spot else 0)


async def test_a_look_at_many_looks_at_those_whose_work_is_nearer_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of many comes at once where they were looked at together."""
    monkeypatch.setattr(picture, "LOOKED_AT_ONCE", 1)
    async with world(tmp_path) as w:
        await w.submit(4, expected_runtime_ms=9 * MINUTE_MS)
        await w.passes()
        for row in w.rows:
            await w.register(row)
            await claim(w, row.id)
        before = seen(w)
        w.clock.ms += 20 * MINUTE_MS
        await picture.look(w.context)
        looked = [w.context.contact(row.id).supply for row in w.rows]
        assert all(one is not known for one, known in zip(looked, before, strict=True))
        assert all(one is found for one, found in zip(seen(w), looked, strict=True))


async def test_the_supply_is_sorted_as_the_snapshot_would(tmp_path: Path) -> None:
    """The kinds that the picture finds on its way are those of the snapshot by itself, whatever was remembered."""
    async with world(tmp_path) as w:
        await w.submit(3)
        await w.passes()
        for change in (claim, hold, ask_end, doubt):
            for row in w.rows:
                await w.register(row)
            await change(w, w.rows[-1].id)
            taken = picture.take(w.context, NOBODY)
            assert taken.supply
            assert taken.alike == replace(taken).alike
            assert encode_snapshot(taken) == encode_snapshot(decode_snapshot(encode_snapshot(taken)))


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_new_or_silent_is_found_as_by_looking_at_all(seed: int) -> None:
    """However time goes and whoever comes, speaks, settles and leaves."""
    chance, contacts, now = Random(seed), Contacts(), 0
    living: dict[InstanceId, None] = {}
    for step in range(400):
        now += chance.choice((0, 1_000, 10_000, 30_001))
        if chance.random() < 0.3:
            living[InstanceId(f"batch-{step}")] = None
        elif living and chance.random() < 0.2:
            del living[chance.choice(list(living))]
        known = contacts.greet(living.keys(), now)
        contacts.keep_only(living.keys())
        for name in chance.sample(list(living), len(living) // 3):
            known[name].heard_ms = now
            known[name].enter(chance.choice((S.BOOTING, S.IDLE)) if not known[name].settled else S.BUSY, now)
        since = now - chance.choice((60_000, 270_000))
        silent = {n for n, known in known.items() if known.heard_ms < since or not known.settled}
        assert contacts.new_or_silent(since, 30_000) == silent


def test_nothing_comes_back_to_the_states_before_service() -> None:
    """Whoever was seen beyond them is not looked at again."""
    assert not any(INSTANCE_TABLE.exits(state) & NEW for state in set(S) - NEW)
    assert not any(S.INTENDED in INSTANCE_TABLE.exits(state) for state in S)


def test_stale_is_answered_again_when_offers_or_pools_change() -> None:
    """Other prices of the same types are no other answer."""
    stale, row, profile = Stale(), instance(S.IDLE), ProfileName("local")
    stale.configured({})
    assert "left the configuration" in stale.of(row)
    edition = stale.edition
    stale.offered(profile, (offering("one", rate=1),))
    changed = stale.edition
    assert changed > edition
    stale.offered(profile, (offering("one", rate=2),))
    assert stale.edition == changed


async def test_a_look_at_many_gives_way_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sleeps meanwhile is woken between pieces; what changes then is in the picture that is taken after it."""
    monkeypatch.setattr(picture, "LOOKED_AT_ONCE", 1)
    async with world(tmp_path) as w:
        await w.submit(9)
        await w.passes()
        rows = [await w.register(row) for row in w.rows]
        assert len(rows) > 3
        woken: list[int] = []

        async def meanwhile() -> None:
            for row in rows[:3]:
                await asyncio.sleep(0)
                woken.append(sum(w.context.contact(one.id).row is one for one in w.rows))
                await claim(w, row.id)

        await asyncio.gather(picture.look(w.context), meanwhile())
        assert len(set(woken)) > 1  # in the middle of it
        looked = [w.context.contact(row.id).supply for row in w.rows]
        taken = seen(w)
        assert taken == seen_anew(w)
        assert any(one is found for one, found in zip(taken, looked, strict=True))
