"""Which VMs a provider is told a hard end of: those that wear another one than the store has, and together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import Instance, InstanceEvent
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import EndRules, Pool
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.ports.store import SyncCall
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.spi import HardEnd, Listing
from cloud_dispatch.reconcile import asking, spend
from cloud_dispatch.reconcile.heeded import Heeded
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.ends import Extension, Renewals
from cloud_dispatch.spend.windows import Window
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, World, world

EVERYTHING = Key(Scope.DEPLOYMENT)
MOVABLE = replace(NAMED, hard_end=HardEnd.EXTENDABLE, max_tagged=4)
ANOTHER_MS = 1_700_003_000_000


def extended(cloud: Cloud) -> list[tuple[int, str]]:
    """How many VMs each `extend` named, and their end."""
    return [(len(vms), told[ENDS_AT]) for vms, told in cloud.tagged if ENDS_AT in told]


async def ten(w: World) -> None:
    """Ten VMs that a limit covers, and of which nothing more is to be told."""
    await w.fleet.set_limit(EVERYTHING, Window.TOTAL, Amount(10**12), "")
    await w.passes(3)
    assert len(w.rows) == 10
    del w.cloud.tagged[:]


@dataclass
class Deaf(Cloud):
    """Its next calls to move ends are lost."""

    deaf: int = 0

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        if self.deaf:
            self.deaf -= 1
            raise Transient("lost")
        return await super().extend(vms, ends_ms)


def scene(**more: object) -> Mapping[str, object]:
    return {"cloud": Deaf(ManualClock(), traits=MOVABLE, **more), "pool": Pool(POOL, (LOCAL,), minimum=10)}  # type: ignore[arg-type]


async def test_vms_are_born_with_their_end(tmp_path: Path) -> None:
    """The answer of their launch says it: nobody is told what he knows."""
    async with world(tmp_path, **scene()) as w:
        await w.fleet.set_limit(EVERYTHING, Window.TOTAL, Amount(10**12), "")
        await w.passes(3)
        assert len(w.rows) == 10
        assert extended(w.cloud) == []


class Moving(ManualClock):
    """A real one: time passes between two looks at it."""

    def now(self) -> int:
        self.ms += 1
        return self.ms


async def test_an_end_and_a_lifetime_begin_at_the_same_moment(tmp_path: Path) -> None:
    """VMs whose first end is all of their lifetime have nothing to be moved on by, however slow the machine is."""
    brief = Pool(POOL, (LOCAL,), minimum=10, end=EndRules(lifetime_ms=5_000))
    async with world(tmp_path, clock=Moving(), pool=brief, cloud=Cloud(ManualClock(), traits=MOVABLE)) as w:
        await w.fleet.set_limit(EVERYTHING, Window.TOTAL, Amount(10**12), "")
        await w.passes(3)
        assert len(w.rows) == 10
        assert {row.ends_ms - row.intended_ms for row in w.rows} == {5_000}
        assert extended(w.cloud) == []


async def test_a_restart_tells_nobody_what_he_wears(tmp_path: Path) -> None:
    """Ten VMs and no call; of one whose tag somebody has changed, one."""
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        await w.restart()
        await w.passes(3)
        assert extended(w.cloud) == []
        row = w.rows[3]
        vm = w.cloud.vms[row.vm]
        w.cloud.vms[row.vm] = replace(vm, tags={**vm.tags, ENDS_AT: str(row.ends_ms - 60_000)})
        await w.restart()
        await w.passes(3)
        assert extended(w.cloud) == [(1, str(row.ends_ms))]
        assert w.cloud.vms[row.vm].tags[ENDS_AT] == str(row.ends_ms)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_start_waits_for_the_first_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A listing of thousands takes longer than a pass waits: until it has come, or has failed, nobody is told."""
    monkeypatch.setattr(asking, "PATIENCE_MS", 10)
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        whole, told = w.cloud.list, asyncio.Event()

        async def slowly(deployment: str) -> Listing:
            await told.wait()
            if fails:
                raise Transient("lost")
            return await whole(deployment)

        monkeypatch.setattr(w.cloud, "list", slowly)
        await w.restart()
        await w.loop.one_pass()
        assert extended(w.cloud) == []
        told.set()
        await w.passes(3)
        assert sum(vms for vms, _ in extended(w.cloud)) == (10 if fails else 0)


async def test_a_tag_that_was_changed_is_set_right_without_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        row = w.rows[0]
        vm = w.cloud.vms[row.vm]
        w.cloud.vms[row.vm] = replace(vm, tags={**vm.tags, ENDS_AT: "0"})
        await w.passes(3)
        assert extended(w.cloud) == [(1, str(row.ends_ms))]


async def test_an_end_of_many_is_moved_by_few_calls(tmp_path: Path) -> None:
    """Four VMs a call, by what the provider takes; calls that are lost are made again, and no others."""
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        w.cloud.deaf = 2
        for row in w.rows:
            await w.context.apply(row.id, None, ends_ms=ANOTHER_MS)
        await w.passes()
        assert len(extended(w.cloud)) == 1
        await w.passes(3)
        assert sorted(extended(w.cloud)) == [(2, str(ANOTHER_MS)), (4, str(ANOTHER_MS)), (4, str(ANOTHER_MS))]
        assert {vm.tags[ENDS_AT] for vm in w.cloud.vms.values()} == {str(ANOTHER_MS)}


async def test_an_extension_that_was_lost_with_the_dispatcher_is_made_by_the_next(tmp_path: Path) -> None:
    """The store has the later end, the VM does not wear it yet."""
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        row = w.rows[0]
        await w.context.apply(row.id, None, ends_ms=ANOTHER_MS)
        await w.restart()
        await w.passes()
        assert extended(w.cloud) == [(1, str(ANOTHER_MS))]


@pytest.mark.parametrize(("started", "known"), [(900, 5), (1_200, 5), (1_300, 3)])
async def test_a_listing_that_may_be_late_is_not_believed(tmp_path: Path, started: int, known: int) -> None:
    """What was told at 1,000 may be missing from lists that begin up to 300 ms later."""
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        (vm, *_) = w.cloud.vms.values()
        heeded = Heeded()
        heeded.told([vm.id], 5, 1_000)
        heeded.seen([replace(vm, tags={**vm.tags, ENDS_AT: "3"})], started, 300)
        assert heeded.of(vm.id) == known
        heeded.keep_only(())
        assert heeded.of(vm.id) is None


async def test_ends_are_not_remembered_for_ever(tmp_path: Path) -> None:
    """Of VMs that are gone; now and then, since looking for them costs a look at all."""
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        for number in range(30):
            w.context.heeded.told([VmId(f"gone-{number}")], 5, 0)
        await w.passes(2)
        assert [w.context.heeded.of(VmId(f"gone-{number}")) for number in range(30)] == [None] * 30
        assert all(w.context.heeded.of(row.vm) is not None for row in w.rows)


async def test_a_vm_that_is_gone_by_then_keeps_the_end_that_it_was_booked_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have turns while ends are thought about; the ledger has its row."""
    async with world(tmp_path, **scene()) as w:
        await ten(w)
        row = w.rows[0]
        ended: list[Instance] = []

        async def meanwhile() -> None:
            if not ended:
                ended.append(row)
                await w.context.apply(row.id, InstanceEvent.FAIL)
                await w.context.apply(row.id, InstanceEvent.GONE, ended_ms=w.clock.ms)

        monkeypatch.setattr(spend, "give_way", meanwhile)
        moved = Extension(row.id, ANOTHER_MS, w.store.committed()[row.id])
        found = Renewals((moved,), {})
        monkeypatch.setattr(spend, "renew", lambda *_: found)
        await w.loop.one_pass()
        assert (await w.store.instance(row.id)).ends_ms == row.ends_ms


# -- what no limit covers

HOUR_MS = 3_600_000
#: Longer than the time that a VM without known work gets at first where a limit covers it.
LONG = EndRules(lifetime_ms=10 * HOUR_MS)


async def test_what_no_limit_covers_has_all_of_its_time_though_there_are_limits(tmp_path: Path) -> None:
    """A limit on another pool is no reason to end a VM early: nobody would move its end on."""
    pool = Pool(POOL, (LOCAL,), minimum=10, end=LONG)
    async with world(tmp_path, **{**scene(), "pool": pool}) as w:
        await w.store.set_limit(Key(Scope.POOL, "another"), Window.TOTAL, Amount(10**12))
        await w.passes(3)
        assert [row.ends_ms - row.intended_ms for row in w.rows] == [10 * HOUR_MS] * 10
        assert extended(w.cloud) == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_who_was_covered_when_launched_lives_on_when_the_limit_goes(tmp_path: Path, restarts: bool) -> None:
    """The store has all of the pool's lifetime, the VMs wear it, and a call that was lost is made again, by the next
    dispatcher too."""
    pool = Pool(POOL, (LOCAL,), minimum=10, end=LONG)
    async with world(tmp_path, **{**scene(), "pool": pool}) as w:
        await ten(w)
        assert max(row.ends_ms - row.intended_ms for row in w.rows) < HOUR_MS
        await w.fleet.set_limit(EVERYTHING, Window.TOTAL, None, "")
        w.cloud.deaf = 9 if restarts else 1
        await w.passes(2)
        if restarts:
            w.cloud.deaf = 0
            assert extended(w.cloud) == []
            await w.restart()
        await w.passes(4)
        assert [row.ends_ms - row.intended_ms for row in w.rows] == [10 * HOUR_MS] * 10
        assert {vm.tags[ENDS_AT] for vm in w.cloud.vms.values()} == {str(row.ends_ms) for row in w.rows}
        assert sum(vms for vms, _ in extended(w.cloud)) == 10
        await w.passes(3)
        assert sum(vms for vms, _ in extended(w.cloud)) == 10, "who wears it is not told again"


async def test_an_end_that_is_not_covered_is_not_moved_where_it_can_not_be(tmp_path: Path) -> None:
    """Nor that of one which leaves."""
    pool = Pool(POOL, (LOCAL,), minimum=10, end=LONG)
    async with world(tmp_path, **{**scene(), "pool": pool}) as w:
        await ten(w)
        leaving, *others = w.rows
        ends_ms = leaving.ends_ms
        w.cloud.traits = replace(MOVABLE, hard_end=HardEnd.FIXED)
        await w.fleet.set_limit(EVERYTHING, Window.TOTAL, None, "")
        await w.passes(2)
        assert {row.ends_ms for row in w.rows} == {ends_ms}
        w.cloud.traits = MOVABLE
        await w.context.apply(leaving.id, InstanceEvent.TERMINATE)
        await w.loop.one_pass()
        now = {row.id: row.ends_ms for row in w.rows}
        assert (await w.store.instance(leaving.id)).ends_ms == ends_ms
        assert {now[row.id] - row.intended_ms for row in others} == {10 * HOUR_MS}


async def test_what_runs_in_a_pool_that_leaves_with_its_limit_is_finished(tmp_path: Path) -> None:
    """What works there gets the lifetime that pools have where nobody says another, and nothing else."""
    pool = Pool(POOL, (LOCAL,), minimum=10, end=LONG)
    async with world(tmp_path, **{**scene(), "pool": pool}) as w:
        await ten(w)
        for row in w.rows:
            await w.register(row)
        await w.submit(1)
        busy = w.rows[0].id
        assert (await w.store.sync(SyncCall(busy, 1, want=1))).claims
        before = {row.id: row.ends_ms for row in w.rows}
        await w.fleet.set_limit(EVERYTHING, Window.TOTAL, None, "")
        w.context.follow(replace(w.context.settings, pools={}))
        await w.passes(2)
        moved = {row.id: row.ends_ms - row.intended_ms for row in w.rows if row.ends_ms != before[row.id]}
        assert moved == {busy: 24 * HOUR_MS}
