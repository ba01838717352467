"""What a hand has left past its hard end is ended, and counted for as long as it is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.provider.spi import HardEnd, VmState
from cloud_dispatch.reconcile.spend import lag_ms
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, World, world


async def outlived(w: World) -> list[str]:
    return [str(event.instance) for event in await w.store.events() if event.action == "instance.outlived"]


async def test_it_is_ended_and_what_it_costs_is_counted_on(tmp_path: Path) -> None:
    """The hand looks late, and the provider ignores whoever wants it ended: its commitment goes on with it."""
    cloud = Cloud(ManualClock(), traits=replace(NAMED, hard_end=HardEnd.FIXED))
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=1)) as w:
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(10**12), "")
        await w.passes(3)
        (row,) = w.rows
        lag = lag_ms(w.context.settings, LOCAL)
        assert row.ends_ms
        assert row.last_ms is not None
        assert lag is not None
        cloud.stubborn = 1_000
        w.context.settings = replace(w.context.settings, pools={POOL: replace(w.pool, minimum=0)})
        w.clock.ms = row.last_ms - 1
        await w.passes(1, step_ms=1)
        assert await outlived(w) == []
        last_ms = []
        for _ in range(3):
            w.clock.ms = row.last_ms + 1_000
            await w.passes(2)
            (row,) = w.rows
            assert row.state is InstanceState.TERMINATING
            assert row.last_ms is not None
            assert w.clock.now() <= row.last_ms <= w.clock.now() + lag
            last_ms.append(row.last_ms)
        assert len(set(last_ms)) == 3
        assert set(await outlived(w)) == {row.id}
        assert row.vm in cloud.terminated
        assert cloud.vms[row.vm].state is VmState.RUNNING


@pytest.mark.parametrize("hidden", [True, False])
async def test_what_is_not_seen_any_more_is_not_counted_on(tmp_path: Path, hidden: bool) -> None:
    cloud = Cloud(ManualClock(), traits=replace(NAMED, hard_end=HardEnd.FIXED))
    async with world(tmp_path, cloud=cloud, pool=Pool(POOL, (LOCAL,), minimum=1)) as w:
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(10**12), "")
        await w.passes(3)
        (row,) = w.rows
        assert row.last_ms is not None
        cloud.stubborn = 1_000
        if hidden:
            cloud.hidden.add(row.vm)
        w.clock.ms = row.last_ms + 1
        await w.passes(1)
        assert (await outlived(w) == []) is hidden
