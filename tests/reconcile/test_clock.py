"""Boots, and a clock that is set while they are under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import InstanceState as S
from cloud_dispatch.domain.pool import Pool
from tests.reconcile.fake import LOCAL, POOL, ManualClock, world

MINUTE = 60_000


class SetClock(ManualClock):
    """The time that passes is the test's; the wall clock is `ahead_ms` of where it was."""

    ahead_ms = 0

    def now(self) -> int:
        return super().now() + self.ahead_ms


@pytest.mark.parametrize("by_ms", [2 * MINUTE, 24 * 60 * MINUTE])
async def test_a_boot_has_the_time_that_was_left_when_the_clock_was_set(tmp_path: Path, by_ms: int) -> None:
    """Neither none, nor as much more as the clock was set by; nobody else is launched meanwhile."""
    clock, pool = SetClock(), Pool(POOL, (LOCAL,), boot_deadline_ms=MINUTE, minimum=1)
    async with world(tmp_path, clock=clock, pool=pool) as w:
        await w.passes(20)
        clock.ahead_ms = by_ms
        await w.passes(40)
        assert [row.state for row in w.rows] == [S.BOOTING]
        assert len(w.cloud.requests) == 1
        await w.passes(3)
        assert [row.cause for row in await w.store.past_instances()] == ["boot-deadline"]


async def test_what_boots_when_the_clock_is_set_twice_has_its_time_still(tmp_path: Path) -> None:
    clock, pool = SetClock(), Pool(POOL, (LOCAL,), boot_deadline_ms=MINUTE, minimum=1)
    async with world(tmp_path, clock=clock, pool=pool) as w:
        await w.passes(20)
        clock.ahead_ms = 10 * MINUTE
        await w.passes(10)
        clock.ahead_ms = 20 * MINUTE
        await w.passes(28)
        assert [row.state for row in w.rows] == [S.BOOTING]
        assert len(w.cloud.requests) == 1
        await w.passes(5)
        assert [row.cause for row in await w.store.past_instances()] == ["boot-deadline"]


async def test_a_machine_that_slept_lets_what_booted_meanwhile_register(tmp_path: Path) -> None:
    """Its time is over by any clock but the one that stood still; it asks again within seconds."""
    clock, pool = SetClock(), Pool(POOL, (LOCAL,), boot_deadline_ms=MINUTE, minimum=1)
    async with world(tmp_path, clock=clock, pool=pool) as w:
        await w.passes(55)
        clock.ahead_ms = 10 * MINUTE
        await w.passes(15)
        (row,) = w.rows
        await w.register(row)
        assert w.rows[0].state is S.IDLE


async def test_a_start_excuses_boots_for_as_long_wherever_the_clock_is_set_then(tmp_path: Path) -> None:
    """As at the first boot of a machine, whose clock is put right in its first seconds."""
    clock, pool = SetClock(), Pool(POOL, (LOCAL,), boot_deadline_ms=MINUTE, minimum=1)
    async with world(tmp_path, clock=clock, pool=pool) as w:
        await w.passes()
        clock.ms += 10 * MINUTE
        await w.restart()
        await w.passes(2)
        clock.ahead_ms = 60 * MINUTE
        await w.passes(15)
        (row,) = w.rows
        await w.register(row)
        assert w.rows[0].state is S.IDLE
