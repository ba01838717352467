"""Who has too little of its life left for what it would take next is drained, and who else is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import EndRules, Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.stop import StopLevel
from cloud_dispatch.ports.store import HeldClaim, SyncCall
from cloud_dispatch.reconcile.retire import is_too_late
from tests.reconcile.fake import LOCAL, POOL, World, world

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
ALL = "all that waits for it"


@pytest.mark.parametrize(
    ("left_ms", "next_ms", "boot_ms", "life_ms", "late"),
    [
        (100, 100, 10, 1_000, False),
        (100, 101, 10, 1_000, True),
        (0, 990, 10, 1_000, True),
        (0, 991, 10, 1_000, False),  # nor could another one
        (-50, 1, 10, 1_000, True),
        (990, 990, 10, 1_000, False),
        (990, 991, 10, 1_000, False),  # it has just booted: its successor would be where it is
    ],
)
def test_too_late_is_what_another_could_do(left_ms: int, next_ms: int, boot_ms: int, life_ms: int, late: bool) -> None:
    assert is_too_late(50_000, next_ms, 50_000 + left_ms, boot_ms, life_ms) is late


async def aged(w: World, hours: float, runs_ms: int) -> None:
    """An instance so old, which has worked for an hour on what is expected to take `runs_ms`."""
    await w.booted(0)
    await w.submit(1, expected_runtime_ms=runs_ms)
    w.clock.ms += round((hours - 1) * HOUR_MS)
    w.context.contacts.excuse(w.clock.monotonic() + 3 * HOUR_MS)  # nobody has spoken all that time
    (row,) = w.rows
    (claim,) = (await w.store.sync(SyncCall(row.id, 1, want=1))).claims
    await w.store.sync(SyncCall(row.id, 2, held=(HeldClaim(claim.task, claim.token, 0),)))
    w.clock.ms += HOUR_MS


def old(**fields: Any) -> dict[str, Any]:
    return {"pool": Pool(POOL, (LOCAL,), minimum=1, end=EndRules(lifetime_ms=24 * HOUR_MS)), **fields}


@pytest.mark.parametrize(
    ("hours", "next_ms", "runs_ms", "drained"),
    [
        (19, 6 * HOUR_MS, HOUR_MS + MINUTE_MS, True),
        (17, 6 * HOUR_MS, HOUR_MS + MINUTE_MS, False),  # it can be finished
        (19, 4 * HOUR_MS, HOUR_MS + MINUTE_MS, False),
        (19, 6 * HOUR_MS, 3 * HOUR_MS, False),  # it will not be taken before long
        (19, 6 * HOUR_MS, 0, False),  # nobody knows when it will be
        (19, 0, HOUR_MS + MINUTE_MS, False),  # nor how long that takes
        (19, 30 * HOUR_MS, HOUR_MS + MINUTE_MS, False),  # longer than any life
    ],
)
async def test_it_is_drained_in_time(tmp_path: Path, hours: int, next_ms: int, runs_ms: int, drained: bool) -> None:
    """Of a life of 24 hours."""
    async with world(tmp_path, **old()) as w:
        await aged(w, hours, runs_ms)
        await w.submit(1, expected_runtime_ms=next_ms)
        await w.passes(2)
        (row, *_) = w.rows
        assert (row.state is InstanceState.DRAINING, row.cause) == (drained, "lifetime" if drained else "")
        if drained:
            assert row.reason == f"{ALL} is expected to run for 6h or more, and 4h of its life are left when it is free"


@pytest.mark.parametrize("way", ["held", "stopped", "nothing waits", "something else waits"])
async def test_who_is_not(tmp_path: Path, way: str) -> None:
    async with world(tmp_path, **old()) as w:
        await aged(w, 19, HOUR_MS + MINUTE_MS)
        if way == "held":
            await w.fleet.hold(w.rows[0].id, "")
        if way == "stopped":
            await w.fleet.stop(StopLevel.LAUNCHES, "")
        if way != "nothing waits":
            await w.submit(1, expected_runtime_ms=6 * HOUR_MS)
        if way == "something else waits":
            await w.submit(1, expected_runtime_ms=HOUR_MS, shape=Shape(Resources(500, 1)))
        await w.passes(2)
        assert w.rows[0].state is InstanceState.BUSY


async def test_a_lifetime_that_was_lowered_is_the_agents_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, **old()) as w:
        await aged(w, 11, HOUR_MS + MINUTE_MS)
        brief = replace(w.pool, end=EndRules(lifetime_ms=12 * HOUR_MS))
        w.context.follow(replace(w.context.settings, pools={POOL: brief}))
        assert w.context.settings.pools[POOL].end.lifetime_ms == 12 * HOUR_MS
        await w.submit(1, expected_runtime_ms=6 * HOUR_MS)
        await w.passes(2)
        assert w.rows[0].state is InstanceState.DRAINING
