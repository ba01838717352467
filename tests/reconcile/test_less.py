"""What is launched less than was planned: the stored plan says so, and why, and so does `explain` of what waits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.again import again
from cloud_dispatch.planner.plan import Begun, Launch
from cloud_dispatch.planner.replay import Record, decode_begun
from cloud_dispatch.provider.spi import HardEnd
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, NAMED, POOL, Cloud, ManualClock, World, world

HOUR_MS = 3_600_000


def dear() -> Cloud:
    """A dollar an hour, and a hand that keeps the ends."""
    kept = dataclasses.replace(NAMED, hard_end=HardEnd.FIXED)
    return Cloud(ManualClock(), offers=(offering(rate=1_000_000_000),), traits=kept)


async def planned(w: World) -> tuple[list[Launch], dict[int, Begun]]:
    """The launches of the first plan, and what is stored of those of which less was begun. It can still be replayed."""
    first = await w.store.plan(1)
    record = Record(first.id, first.at_ms, msgspec.Raw(first.snapshot), msgspec.Raw(first.plan))
    told = again(record)
    assert told.same
    assert first.at_ms == told.snapshot.now_ms
    return [one for one in told.decided.actions if isinstance(one, Launch)], dict(decode_begun(first.plan))


async def reasons(w: World, task: int) -> list[str]:
    found: dict[str, Any] = await w.fleet.explain_task(task)
    return list(found["reasons"])


async def test_a_launch_that_the_budget_refuses_is_no_launch_in_the_record(tmp_path: Path) -> None:
    async with world(tmp_path, cloud=dear(), caps=Caps(instances=10)) as w:
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(10), "")
        (task,) = await w.submit(1)
        await w.loop.one_pass()
        assert not w.cloud.requests
        (launch,), less = await planned(w)
        assert (list(less), less[0].slots, launch.slots) == ([0], 0, 1)
        assert "budget" in less[0].why
        (told,) = [one for one in await reasons(w, task) if "that the last plan launches" in one]
        assert told == (f"of 1 x {launch.offering.key} that the last plan launches for pool p none were: {less[0].why}")
        await w.passes(2)
        assert not [one for one in await reasons(w, task) if "that the last plan launches" in one]


async def test_of_a_launch_in_part_it_is_said_how_many_were_begun(tmp_path: Path) -> None:
    """Exposure of one is admitted, that of the others is not."""
    async with world(tmp_path, cloud=dear(), caps=Caps(instances=10)) as w:
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(1_500_000), "")
        await w.submit(8, expected_runtime_ms=HOUR_MS // 2)
        await w.loop.one_pass()
        launches, less = await planned(w)
        begun = sum(less[n].slots if n in less else one.slots for n, one in enumerate(launches))
        assert 0 < begun < sum(one.slots for one in launches)
        assert begun == len(w.rows)
        assert all("limit" in one.why or "budget" in one.why for one in less.values())


async def test_a_task_is_not_told_of_launches_that_could_not_run_it(tmp_path: Path) -> None:
    """A limit of another pool's is nothing to it, whatever that pool is for."""
    async with world(tmp_path, cloud=dear(), caps=Caps(instances=10)) as w:
        other = Pool(PoolName("other"), (LOCAL,), minimum=1)
        w.context.settings = dataclasses.replace(w.context.settings, pools={POOL: w.pool, other.name: other})
        await w.fleet.set_limit(Key(Scope.POOL, other.name), Window.TOTAL, Amount(10), "")
        (task,) = await w.submit(1, shape=Shape(Resources(1_000, GIB), pool=POOL))
        await w.loop.one_pass()
        launches, less = await planned(w)
        assert [launches[number].pool for number in less] == [other.name]
        assert not [one for one in await reasons(w, task) if "that the last plan launches" in one]


async def test_nothing_is_added_to_a_plan_that_is_carried_out(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        (task,) = await w.submit(1)
        await w.loop.one_pass()
        launches, less = await planned(w)
        assert (len(launches), less) == (1, {})
        assert not [one for one in await reasons(w, task) if "that the last plan launches" in one]


async def test_of_many_launches_that_are_not_made_a_few_are_told(tmp_path: Path) -> None:
    """A plan may have a thousand."""
    cloud = dear()
    cloud.traits = dataclasses.replace(cloud.traits, max_batch=1)
    async with world(tmp_path, cloud=cloud, caps=Caps(instances=10)) as w:
        await w.fleet.set_limit(Key(Scope.DEPLOYMENT), Window.TOTAL, Amount(10), "")
        (task, *_) = await w.submit(16)
        await w.loop.one_pass()
        launches, less = await planned(w)
        assert (len(launches), len(less)) == (8, 8)
        told = await reasons(w, task)
        assert len([one for one in told if "that the last plan launches" in one]) == 5
        assert "3 more launches of it were not made as planned: `plans` and `replay` tell why" in told
