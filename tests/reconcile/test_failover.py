"""Launches that are refused, whole or in part: what is tried next, and that nothing is launched for twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.provider.errors import CapacityUnavailable
from cloud_dispatch.reconcile.spend import Spending
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, POOL, Cloud, ManualClock, world

S = InstanceState


async def test_a_refusal_fails_over_in_the_same_pass_and_is_remembered(tmp_path: Path) -> None:
    """The cheapest has no capacity: the next one is taken at once, and the first is left alone for a while."""
    cloud = Cloud(ManualClock(), offers=(offering("cheap", rate=1000), offering("dear", rate=1200)))
    cloud.refusals["local/cheap/z/on-demand"] = CapacityUnavailable("none")
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes()
        assert [r.offering.type.name for r in cloud.requests] == ["cheap", "dear"]
        assert len({r.batch for r in cloud.requests}) == 2
        assert [row.type for row in w.rows] == ["dear"]
        assert [b.type for b in w.context.failures.blocked(w.clock.now())] == ["cheap"]


async def test_a_pass_in_the_midst_of_a_failover_does_not_launch_for_the_same_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the slots that are given back and those of the next offering there is a commit and an account of money:
    who looked then would see a task that nothing is on its way for."""
    cloud = Cloud(ManualClock(), offers=(offering("cheap", rate=1000), offering("dear", rate=1200)))
    cloud.refusals["local/cheap/z/on-demand"] = CapacityUnavailable("none")
    left, passes = Spending.left, list[asyncio.Task[object]]()

    async def slow(self: Spending) -> object:
        if cloud.requests and not passes:
            passes.append(asyncio.create_task(w.loop.one_pass()))
            for _ in range(200):
                await asyncio.sleep(0)
        return await left(self)

    monkeypatch.setattr(Spending, "left", slow)
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        await w.passes()
        await asyncio.gather(*passes)
        await w.passes()
        assert len(passes) == 1
        assert [r.offering.type.name for r in cloud.requests] == ["cheap", "dear"]
        assert [row.type for row in w.rows] == ["dear"]


async def test_a_partial_fill_gives_the_other_slots_back(tmp_path: Path) -> None:
    """Three asked for, one made: one row lives, nothing is counted twice."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=3)) as w:
        w.cloud.grant_at_most = 1
        await w.passes()
        assert len(w.cloud.vms) == len([row for row in w.rows if row.vm]) == len(w.rows) == 1
