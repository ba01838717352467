"""VMs whose instance is gone while others of its launch still look for theirs: no slot takes them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Denied
from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult
from tests.reconcile.fake import LOCAL, NAMELESS, POOL, Cloud, ManualClock, World, world

E = InstanceEvent


@dataclass
class Late(Cloud):
    """Its VMs are there long before the launch is answered."""

    answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        made = await super().launch(request)
        await self.answer.wait()
        return made


@asynccontextmanager
async def one_has_come_and_gone(folder: Path) -> AsyncIterator[tuple[World, Late, BatchId, VmId, VmId]]:
    """Two VMs of a launch that is not answered: the instance of the first is gone, the second has no slot yet."""
    cloud = Late(ManualClock(), traits=NAMELESS)
    pool = Pool(POOL, (LOCAL,), minimum=2)
    async with world(folder, cloud=cloud, pool=pool, caps=Caps(instances=2)) as w:
        await w.loop.one_pass()
        while len(cloud.vms) < 2:
            await asyncio.sleep(0)
        first, second = cloud.vms
        row = await w.fleet.admit(w.rows[0].batch, first, "i", w.proof(w.rows[0], first))
        for event in (E.TERMINATE, E.GONE):
            await w.context.apply(row.id, event, cause="operator")
        yield w, cloud, row.batch, first, second
        cloud.answer.set()
        await w.context.calls.settle()


def bound(w: World, batch: BatchId, second: VmId) -> None:
    """The slot that is left has the second VM, which nobody has ended."""
    (row,) = [row for row in w.rows if row.batch == batch]
    assert (row.vm, row.state) == (second, InstanceState.BOOTING)
    assert second not in w.cloud.terminated


async def test_the_answer_gives_the_slots_to_the_others(tmp_path: Path) -> None:
    """Found by the simulator: the first took the second's slot, the second was ended as nobody's and counted for no
    cap meanwhile."""
    async with one_has_come_and_gone(tmp_path) as (w, cloud, batch, _, second):
        cloud.answer.set()
        await w.context.calls.settle()
        bound(w, batch, second)


async def test_a_listing_that_is_late_does_so_too(tmp_path: Path) -> None:
    """It shows the first as if it ran: that is ended once more, as every VM whose instance is gone."""
    async with one_has_come_and_gone(tmp_path) as (w, cloud, batch, first, second):
        w.context.in_doubt.update(row.id for row in w.rows)
        for _ in range(3):
            await w.loop.one_pass()
            await asyncio.sleep(0.01)
        bound(w, batch, second)
        assert set(cloud.terminated) == {first}


async def test_its_agent_registers_in_vain(tmp_path: Path) -> None:
    """It started anew, while its VM was being ended."""
    async with one_has_come_and_gone(tmp_path) as (w, cloud, batch, first, second):
        with pytest.raises(Denied, match=f"the instance of VM {first} is gone"):
            await w.fleet.admit(batch, first, "another", cloud.proof(first))
        (left,) = w.rows
        assert (await w.fleet.admit(batch, second, "i", w.proof(left, second))).vm == second
