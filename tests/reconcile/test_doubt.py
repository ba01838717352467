"""Where VMs of another statestore are, nobody knows what is spent: nothing is launched under a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from cloud_dispatch.assembly import InForce, Rules, _problems
from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, ProfileName, VmId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.provider.spi import Listing, Provider
from cloud_dispatch.reconcile import asking, foreign, restored, spend
from cloud_dispatch.reconcile.spend import UNSURE
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.doubt import AGAIN_MS
from cloud_dispatch.spend.ends import Extension, Renewals
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore.lineage import RESTORED_FACT
from cloud_dispatch.statestore.purse import UNSURE_FACT
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, World, world

OTHER = ProfileName("other")
ALONE = Shape(Resources(1_000, GIB), exclusive=True)
HOURLY = Budget(EVERYTHING, Window.HOUR, Amount(10**9))


async def limited(w: World) -> None:
    await w.store.set_limits([HOURLY], {})


async def beside(w: World, store: str = "lost") -> VmId:
    """A VM as an instance of the world's own, but that the statestore `store` made it."""
    await w.booted()
    (row,) = w.rows
    facts = tags.decode(w.cloud.vms[row.vm].tags)
    assert facts is not None
    name = VmId(f"of-{store}")
    w.cloud.vms[name] = replace(w.cloud.vms[row.vm], id=name, tags=replace(facts, store=store).encode())
    return name


async def reasons(w: World, task: int) -> str:
    return str((await w.fleet.explain_task(task))["reasons"])


async def doubts(w: World) -> list[str]:
    return [event.detail for event in await w.store.events() if event.action == "budget.doubt"]


async def test_nothing_is_launched_under_a_limit_while_nobody_counts_a_vm(tmp_path: Path) -> None:
    """And not in the window in which it was seen last, nor in the one in which it may still be billed; then again."""
    async with world(tmp_path) as w:
        other = await beside(w)
        await limited(w)
        (*_, task) = await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        for _ in range(3 * HOUR_MS // AGAIN_MS):
            await w.passes(2)
            assert len(w.cloud.requests) == 1
            assert "`budget reconcile`" in await reasons(w, task)
            w.clock.ms += AGAIN_MS - 1_000
        assert await doubts(w) == ["nobody knows what VMs of the statestore lost cost"]
        del w.cloud.vms[other]
        await w.passes(2)
        assert len(w.cloud.requests) == 1
        w.clock.ms += 2 * HOUR_MS + AGAIN_MS
        await w.passes(2)
        assert len(w.cloud.requests) > 1


async def test_without_a_limit_it_counts_against_caps_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await beside(w)
        await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await w.passes(2)
        launched = len(w.cloud.requests)
        assert launched > 1
        await limited(w)  # what was spent so far is not known, though nobody asked then
        await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await w.passes(2)
        assert len(w.cloud.requests) == launched


async def test_an_operator_reckons_with_it(tmp_path: Path) -> None:
    """With the VMs of that statestore, as long as they are there, also after a restart; not with another's."""
    async with world(tmp_path) as w:
        await beside(w)
        await limited(w)
        await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await w.passes(2)
        assert len(w.cloud.requests) == 1
        await w.fleet.reconcile()
        w.clock.ms += 60_000
        await w.passes(2)
        assert w.store.unsure_since() is None
        assert len(w.cloud.requests) > 1
        said = [event.detail for event in await w.store.events() if event.action == "operator.reconcile"]
        assert said == ["the ledger is the truth, and what VMs of the statestore lost cost is reckoned with"]
        await w.restart()
        await limited(w)
        w.clock.ms += AGAIN_MS
        await w.passes(2)
        assert w.store.unsure_since() is None
        vm = w.cloud.vms[VmId("of-lost")]
        facts = tags.decode(vm.tags)
        assert facts is not None
        w.cloud.vms[VmId("third")] = replace(vm, id=VmId("third"), tags=replace(facts, store="third").encode())
        await w.passes(2)
        assert w.store.unsure_since() is not None


def waits(w: World) -> str:
    return "; ".join(sorted({block.reason for block in restored.blocked(w.context, w.clock.now())}))


def beside_it(w: World) -> Cloud:
    """A second profile of the pool, at another cloud."""
    other = Cloud(w.clock)
    other.offers = (replace(other.offers[0], profile=OTHER, priced_ms=w.clock.ms + 240 * HOUR_MS),)
    follow(w, {LOCAL: w.cloud, OTHER: other})
    return other


def follow(w: World, providers: Mapping[ProfileName, Provider]) -> None:
    pool = replace(w.pool, profiles=tuple(providers))
    settings = w.context.settings
    w.context.follow(replace(settings, providers=dict(providers), pools={pool.name: pool}, caps=w.caps))


@pytest.mark.parametrize("how", ["restart", "reload", "leaves"])
@pytest.mark.parametrize("budgeted", [False, True])
async def test_they_count_while_nobody_can_list_them(tmp_path: Path, how: str, budgeted: bool) -> None:
    """Against caps, and as what nobody knows the price of: the store remembers them until a listing shows that they are
    gone, whatever becomes of the dispatcher, the driver and the profile."""
    async with world(tmp_path, caps=Caps(instances=3)) as w:
        others = {await beside(w), await beside(w, "third")} if not budgeted else {await beside(w)}
        other = beside_it(w)
        if budgeted:
            await limited(w)
        await w.passes(2)
        w.cloud.silent = True
        if how == "restart":
            await w.restart()
            follow(w, {LOCAL: w.cloud, OTHER: other})
            if budgeted:
                await limited(w)
        elif how == "reload":
            again = Cloud(w.clock, vms=w.cloud.vms, silent=True)
            follow(w, {LOCAL: again, OTHER: other})
        else:
            follow(w, {OTHER: other})
        await w.submit(6, shape=ALONE, expected_runtime_ms=60_000)
        for _ in range(12):
            await w.passes(2)
            w.clock.ms += AGAIN_MS
        assert other.requests == []
        assert set(w.context.foreign) == others


async def test_whoever_asks_how_it_goes_is_told(tmp_path: Path) -> None:
    """Of VMs that nobody has taken over, and of limits that count as spent where there are some."""
    async with world(tmp_path) as w:
        await beside(w)
        await beside(w, "third")
        await w.passes(2)
        in_force = InForce(cast(Rules, None))
        told = [
            f"VMs of the statestore {store} are there (1): `adopt --store {store}` takes them over, `reap` ends all"
            for store in ("lost", "third")
        ]
        assert _problems(w.context, in_force) == told
        await limited(w)
        assert _problems(w.context, in_force) == [*told, f"limits hold launches back: {UNSURE}"]
        await w.fleet.reconcile()
        assert _problems(w.context, in_force) == told


async def test_who_is_gone_is_forgotten(tmp_path: Path) -> None:
    """By a whole listing that began when the provider's listings could not be behind any more; where its profile has
    left, a day after its end."""
    cloud = Cloud(ManualClock(), traits=replace(NAMED, consistency_ms=30_000))
    async with world(tmp_path, cloud=cloud) as w:
        vm = await beside(w)
        other = beside_it(w)
        await w.passes(2)
        kept = w.cloud.vms.pop(vm)
        await w.restart()
        follow(w, {LOCAL: w.cloud, OTHER: other})
        await w.passes(5)
        assert set(w.context.foreign) == {vm}
        w.clock.ms += 30_000
        await w.passes(2)
        assert w.context.foreign == foreign.remembered(w.store) == {}
        w.cloud.vms[vm] = kept
        await w.passes(2)
        assert set(foreign.remembered(w.store)) == {vm}
        follow(w, {OTHER: other})
        facts = tags.decode(kept.tags)
        assert facts is not None
        w.clock.ms = facts.ends_ms + 23 * HOUR_MS
        await w.passes(2)
        assert set(w.context.foreign) == {vm}
        w.clock.ms += 2 * HOUR_MS
        await w.passes(2)
        assert w.context.foreign == foreign.remembered(w.store) == {}


async def test_to_take_over_what_was_never_seen_is_to_doubt(tmp_path: Path) -> None:
    """Who knows the lost store's id may say it before the first listing, and reckon with what it spent, also by VMs
    that are found later."""
    async with world(tmp_path) as w:
        vm = await beside(w)
        facts = tags.decode(w.cloud.vms[vm].tags)
        assert facts is not None
        lost = replace(w.cloud.vms[vm], tags=replace(facts, batch=BatchId("lostbatch000"), slot=0).encode())
    (tmp_path / "again").mkdir()
    async with world(tmp_path / "again", cloud=Cloud(w.clock, vms={vm: lost})) as w:
        await w.store.set_limits([Budget(EVERYTHING, Window.TOTAL, Amount(10**9))], {})
        await w.fleet.adopt("lost")
        await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await w.passes(3)
        assert (w.cloud.requests, [row.vm for row in w.rows]) == ([], [vm])
        assert w.store.unsure_since() is not None
        await w.fleet.reconcile()
        second = replace(lost, id=VmId("second"), tags=replace(facts, batch=BatchId("lostbatch001"), slot=0).encode())
        w.cloud.vms[second.id] = second
        await w.passes(2)
        assert {row.vm for row in w.rows} >= {vm, second.id}
        assert w.store.unsure_since() is None


async def test_an_operators_word_is_not_undone_by_a_pass_under_way(tmp_path: Path) -> None:
    """Which had found a doubt due before."""
    async with world(tmp_path) as w:
        await beside(w)
        await limited(w)
        await w.passes(2)
        w.clock.ms += AGAIN_MS
        async with w.store._setting:  # type: ignore[attr-defined]
            said = asyncio.create_task(w.fleet.reconcile())
            await asyncio.sleep(0)
            found = asyncio.create_task(foreign.question(w.context))
            await asyncio.sleep(0)
        await asyncio.gather(said, found)
        assert w.store.unsure_since() is None


async def test_it_is_told_when_it_begins_and_when_others_come(tmp_path: Path) -> None:
    """Not each time that it is noted, nor after a restart; anew after it was over."""
    async with world(tmp_path) as w:
        vm = await beside(w)
        await w.passes(2)
        w.clock.ms += AGAIN_MS
        await w.restart()
        await w.passes(2)
        assert len(await doubts(w)) == 1
        kept = w.cloud.vms[vm]
        facts = tags.decode(kept.tags)
        assert facts is not None
        w.cloud.vms[VmId("third")] = replace(kept, id=VmId("third"), tags=replace(facts, store="third").encode())
        await w.passes(2)
        assert (await doubts(w))[0] == "nobody knows what VMs of the statestore lost, VMs of the statestore third cost"
        del w.cloud.vms[vm], w.cloud.vms[VmId("third")]
        await w.passes(2)
        w.clock.ms += 2 * HOUR_MS
        w.cloud.vms[vm] = kept
        await w.passes(2)
        assert (await doubts(w))[0] == "nobody knows what VMs of the statestore lost cost"
        assert len(await doubts(w)) == 3


async def test_what_is_taken_over_without_a_price_is_not_free(tmp_path: Path) -> None:
    """Its tags tell none, and its type is not offered any more."""
    async with world(tmp_path) as w:
        vm = await beside(w)
        facts = tags.decode(w.cloud.vms[vm].tags)
        assert facts is not None
        lost = replace(facts, rate=-1, batch=BatchId("lostbatch000"), slot=0).encode()
        w.cloud.vms[vm] = replace(w.cloud.vms[vm], type="former", tags=lost)
        await w.fleet.adopt("lost")
        await w.fleet.reconcile()
        await w.passes(2)
        (row,) = [row for row in w.rows if row.vm == vm]
        assert (row.rate, row.max_rate) == (None, None)
        assert await doubts(w) == [f"nobody knows what the adopted instance {row.id} cost"]
        await w.fleet.reconcile()
        w.clock.ms += AGAIN_MS
        await w.passes(2)
        assert w.store.unsure_since() is None


@pytest.mark.parametrize("market", Market)
async def test_what_is_taken_over_costs_no_more_than_its_price_at_launch_for_all_that_is_known(
    tmp_path: Path, market: Market
) -> None:
    """Which is no bound, of a spot machine least of all: the type is not offered any more, and nobody tells another."""
    async with world(tmp_path) as w:
        vm = await beside(w)
        facts = tags.decode(w.cloud.vms[vm].tags)
        assert facts is not None
        lost = replace(facts, rate=7, batch=BatchId("lostbatch000"), slot=0).encode()
        w.cloud.vms[vm] = replace(w.cloud.vms[vm], type="former", tags=lost, spot=market is Market.SPOT)
        await w.fleet.adopt("lost")
        await w.fleet.reconcile()
        await w.passes(2)
        (row,) = [row for row in w.rows if row.vm == vm]
        assert (row.rate, row.max_rate, row.market) == (7, None, market)
        assert await doubts(w) == [f"nobody knows what the adopted instance {row.id} cost"]
        assert w.store.unsure_since() is not None
        await w.fleet.reconcile()
        w.clock.ms += AGAIN_MS
        await w.passes(2)
        assert w.store.unsure_since() is None


async def test_what_is_taken_over_counts_at_the_dearest_price_that_its_type_has(tmp_path: Path) -> None:
    """Where its own market and zone are not offered any more."""
    async with world(tmp_path) as w:
        vm = await beside(w)
        facts = tags.decode(w.cloud.vms[vm].tags)
        assert facts is not None
        lost = replace(facts, rate=7, batch=BatchId("lostbatch000"), slot=0).encode()
        w.cloud.vms[vm] = replace(w.cloud.vms[vm], tags=lost, spot=True)
        (one,) = w.cloud.offers
        w.cloud.offers = tuple(
            replace(one, zone=zone, rate=Rate(rate), priced_ms=w.clock.ms)
            for zone, rate in (("a", 5), ("b", 9), ("c", 8))
        )
        w.context.view(LOCAL).offered_ms = None
        await w.passes(2)
        await w.fleet.adopt("lost")
        await w.fleet.reconcile()
        await w.passes(2)
        (row,) = [row for row in w.rows if row.vm == vm]
        assert (row.rate, row.max_rate) == (7, 9)
        assert dict(row.machine.labels)["market"] == Market.SPOT
        assert w.store.unsure_since() is None


@pytest.mark.parametrize("doubted", [False, True])
async def test_a_doubt_of_another_window_changes_nothing(tmp_path: Path, doubted: bool) -> None:
    """What is spent is told as that, and a budget's own stages do what they are there for."""
    async with world(tmp_path) as w:
        if doubted:
            await w.store.doubt()
        w.clock.ms += 72 * HOUR_MS
        w.cloud.offers = tuple(replace(one, priced_ms=w.clock.ms, rate=Rate(10**9)) for one in w.cloud.offers)
        await w.booted()
        w.clock.ms += 60_000
        await w.store.set_limits([Budget(EVERYTHING, Window.HOUR, Amount(20_000), drain_percent=50)], {})
        await w.passes()
        (row,) = w.rows
        assert row.state is InstanceState.DRAINING
        assert "are spent, past its `drain`" in row.reason


async def test_a_new_statestore_with_a_limit_waits_for_a_whole_listing(tmp_path: Path) -> None:
    """However long who is to list is down, where the limit covers it and what would be launched; until somebody says
    that nothing is there. Without a limit for a minute."""
    async with world(tmp_path) as w:
        other = beside_it(w)
        w.cloud.silent = True
        for _ in range(3):
            await w.passes(2)
            w.clock.ms += HOUR_MS
        assert waits(w) == ""
        await w.store.set_limits([Budget(Key(Scope.PROFILE, LOCAL), Window.HOUR, Amount(10**9))], {})
        blocked = {block.profile for block in restored.blocked(w.context, w.clock.now())}
        assert blocked == {LOCAL}
        await limited(w)
        assert "may have made at local would count against the caps and limits" in waits(w)
        await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await w.passes(2)
        assert other.requests == []
        await w.fleet.reconcile()
        assert waits(w) == ""
        w.clock.ms += 60_000
        await w.passes(2)
        assert len(other.requests) > 0


async def until_the_restore_has_no_more_to_say(w: World, other: Cloud) -> None:
    """From a restore on, the first profile can't be listed: long enough for every window that was open then to end."""
    w.cloud.silent = True
    await w.store.set_facts({RESTORED_FACT: str(w.clock.now()), UNSURE_FACT: str(w.clock.now())})
    await limited(w)  # a start reads both
    for _ in range(3 * HOUR_MS // AGAIN_MS):
        await w.passes(2)
        w.clock.ms += AGAIN_MS
    assert other.requests == []


async def test_what_a_restored_store_has_never_seen_is_not_taken_for_unspent(tmp_path: Path) -> None:
    """What was launched there since the copy bills on, under the limit of both: until a listing has shown it."""
    async with world(tmp_path) as w:
        other = beside_it(w)
        (task,) = await w.submit(1, shape=ALONE, expected_runtime_ms=60_000)
        await until_the_restore_has_no_more_to_say(w, other)
        assert "`budget reconcile`" in await reasons(w, task)
        assert await doubts(w) == ["nobody knows what VMs that were launched at local since the statestore's copy cost"]
        w.cloud.silent = False
        await w.passes(2)
        assert other.requests == []  # what is billed to the end of its minimum counts too
        w.clock.ms += 2 * HOUR_MS
        await w.passes(2)
        assert len(w.cloud.requests) + len(other.requests) == 1


async def test_an_operator_reckons_with_what_a_restored_store_has_never_seen(tmp_path: Path) -> None:
    """From then on whoever can't be listed holds nobody up, over restarts too; until the next restore."""
    async with world(tmp_path) as w:
        other = beside_it(w)
        await w.submit(1, shape=ALONE, expected_runtime_ms=60_000)
        await until_the_restore_has_no_more_to_say(w, other)
        await w.fleet.reconcile()
        w.clock.ms += 60_000
        await w.passes(2)
        assert len(other.requests) == 1
        await w.restart()
        follow(w, {LOCAL: w.cloud, OTHER: other})
        await w.passes(2)
        assert w.store.unsure_since() is None
        other.requests.clear()
        await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await until_the_restore_has_no_more_to_say(w, other)


@pytest.mark.parametrize("fails", [False, True])
async def test_who_has_not_answered_yet_since_a_restore_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A profile that comes long after a restore, and takes longer than a pass waits: under a limit of both nothing is
    launched or moved on until it has answered, and only where it can't is the limit taken for spent."""
    monkeypatch.setattr(asking, "PATIENCE_MS", 10)
    brief = Pool(POOL, (LOCAL,), target_drain_ms=60_000, end=EndRules(lifetime_ms=1_200_000))  # in the hour in doubt
    async with world(tmp_path, pool=brief) as w:
        await w.store.set_facts({RESTORED_FACT: str(w.clock.now()), UNSURE_FACT: str(w.clock.now())})
        await w.passes(2)
        w.clock.ms += 3 * HOUR_MS
        await limited(w)
        await w.booted()
        (row,) = w.rows
        other, answers = beside_it(w), asyncio.Event()
        listing, other.silent = other.list, fails

        async def late(deployment: str) -> Listing:
            await answers.wait()
            return await listing(deployment)

        monkeypatch.setattr(other, "list", late)
        later = Extension(row.id, row.ends_ms + HOUR_MS, w.store.committed()[row.id])
        monkeypatch.setattr(spend, "renew", lambda *_: Renewals((later,), {}))
        (_, task) = await w.submit(2, shape=ALONE, expected_runtime_ms=60_000)
        await w.loop.one_pass()
        assert "other has not shown yet what was launched there" in await reasons(w, task)
        assert (w.store.doubted_ms(), w.store.instances()[row.id].ends_ms) == (None, row.ends_ms)
        assert len(w.cloud.requests) + len(other.requests) == 1
        answers.set()
        await w.passes(3)
        moved = w.store.instances()[row.id].ends_ms == later.ends_ms
        launched = len(w.cloud.requests) + len(other.requests) > 1
        assert (w.store.doubted_ms() is None, moved, launched) == (not fails,) * 3


@pytest.mark.parametrize(
    "limit",
    [
        Budget(Key(Scope.PROFILE, OTHER), Window.HOUR, Amount(10**9)),
        Budget(Key(Scope.USER, "u"), Window.HOUR, Amount(10**9)),
    ],
)
async def test_only_what_a_limit_covers_is_in_question(tmp_path: Path, limit: Budget) -> None:
    """The limit of another profile alone is spent by nobody there; that of a user is, wherever the tasks run."""
    async with world(tmp_path) as w:
        beside_it(w)
        w.cloud.silent = True
        await w.store.set_fact(RESTORED_FACT, str(w.clock.now()))
        await w.store.set_limits([limit], {})
        w.clock.ms += 2 * HOUR_MS
        await w.passes(2)
        assert (w.store.doubted_ms() is None) == (limit.key.scope is Scope.PROFILE)
