"""Who is admitted as a VM of ours, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Denied
from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.domain.instance import InstanceState
from tests.reconcile.fake import NAMELESS, Cloud, ManualClock, world


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
