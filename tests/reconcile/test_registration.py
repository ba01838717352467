"""Who is admitted as a VM of ours, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Denied
from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.ports.store import InstanceChange
from tests.reconcile.fake import NAMELESS, Cloud, ManualClock, offering, world


async def test_no_batch_admits_more_vms_than_slots(tmp_path: Path) -> None:
    """The same VM again and again, another one never; a VM of another batch neither."""
    cloud = Cloud(ManualClock(), traits=NAMELESS)
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        proof, another = w.proof(row, row.vm), VmId("another")
        await w.fleet.admit(row.batch, row.vm, "i", proof)
        await w.fleet.admit(row.batch, row.vm, "i", proof)  # its answer was lost
        with pytest.raises(Denied, match="has registered already"):
            await w.fleet.admit(row.batch, row.vm, "j", proof)
        with pytest.raises(Denied, match="are taken"):
            await w.fleet.admit(row.batch, another, "k", w.proof(row, another))
        with pytest.raises(Denied, match="of batch unknown"):
            await w.fleet.admit(BatchId("unknown"), row.vm, "k", proof)


async def test_an_agent_may_register_before_the_launch_call_returns(tmp_path: Path) -> None:
    """The slot is bound by whoever comes first, once."""
    async with world(tmp_path) as w:
        w.cloud.lose_reply = True
        await w.submit(1)
        await w.passes()
        (row,) = w.rows
        registered = await w.register(row)
        assert (registered.state, registered.vm) == (InstanceState.IDLE, w.cloud.vm_name(row.id))
        await w.passes(3)
        assert [r.state for r in w.rows] == [InstanceState.IDLE]


@pytest.mark.parametrize("answered", [True, False], ids=["the-answer", "a-listing"])
async def test_one_that_registers_while_it_is_given_a_slot_is_one_instance(tmp_path: Path, answered: bool) -> None:
    """Nothing tells which VM of a batch is which slot: the listing, or the launch call's answer, gives each VM one, and
    the second VM registers, for the first free one, before that is committed. Both live on, each as one instance."""
    cloud = Cloud(ManualClock(), traits=NAMELESS, lose_reply=not answered)
    async with world(tmp_path, cloud=cloud) as w:
        change, early = w.store.change, []

        async def slow(changes: Sequence[InstanceChange]) -> Sequence[Instance]:
            if not early and any("vm" in one.fields for one in changes):
                _, second = cloud.vms
                early.append(second)
                row = w.rows[0]
                assert (await w.fleet.admit(row.batch, second, "i", w.proof(row, second))).id == row.id
            return await change(changes)

        w.store.change = slow  # type: ignore[method-assign]
        await w.submit(2, shape=Shape(Resources(cpus_milli=offering().type.capacity.cpus_milli)))
        await w.passes(3)
        assert early
        first, second = cloud.vms
        assert [row.vm for row in w.rows] == [second, first]
        assert (await w.register(w.rows[1])).vm == first
        await w.passes(3)
        assert [row.state for row in w.rows] == [InstanceState.IDLE] * 2
        assert cloud.terminated == []
        assert await w.store.check() == []


async def test_whoever_holds_a_join_token_later_is_not_taken_for_a_vm_that_serves(tmp_path: Path) -> None:
    """Its id is no secret and its join token stands in its user data; neither do after a restart, whose memory of who
    registered is empty."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        row = await w.register(w.rows[0])
    async with world(tmp_path, cloud=w.cloud) as again:
        with pytest.raises(Denied, match="has registered already"):
            await again.fleet.admit(row.batch, row.vm, "thief", w.proof(row, row.vm))
        assert again.store.instances()[row.id].vm == row.vm
