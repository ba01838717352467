"""Where VMs of another statestore are, nobody knows what is spent: nothing is launched under a limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.money import HOUR_MS, Amount
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.reconcile import restored
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.doubt import AGAIN_MS
from cloud_dispatch.spend.windows import Window
from tests.reconcile.fake import World, world

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
        assert await doubts(w) == ["nobody knows what VMs of the statestore lost have cost and will"]
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
    return "; ".join(block.reason for block in restored.blocked(w.context, w.clock.now()))


async def test_a_new_statestore_with_a_limit_waits_for_a_whole_listing(tmp_path: Path) -> None:
    """However long who is to list is down; without a limit for a minute."""
    async with world(tmp_path) as w:
        w.cloud.silent = True
        await w.loop.one_pass()
        await w.context.calls.settle()
        w.clock.ms += HOUR_MS
        assert waits(w) == ""
        await limited(w)
        assert "the statestore is new, and local has not shown yet all VMs" in waits(w)
        w.cloud.silent = False
        await w.passes(2)
        assert waits(w) == ""
