"""Who has too little of its life left for what it would take next is drained, and who else is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import EndRules, Pool
from cloud_dispatch.reconcile.retire import is_too_late
from tests.reconcile.fake import LOCAL, POOL, World, world

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


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


async def aged(w: World, hours: int) -> None:
    """An instance that serves, so old."""
    await w.passes(3)
    for row in w.rows:
        await w.register(row)
    w.clock.ms += hours * HOUR_MS
    w.context.contacts.excuse(w.clock.monotonic() + HOUR_MS)  # nobody has spoken all that time


def old(**end: Any) -> dict[str, Any]:
    return {"pool": Pool(POOL, (LOCAL,), minimum=1, end=EndRules(lifetime_ms=24 * HOUR_MS, **end))}


@pytest.mark.parametrize(
    ("hours", "expected_ms", "drained"),
    [
        (17, 6 * HOUR_MS, False),
        (19, 6 * HOUR_MS, True),
        (19, 4 * HOUR_MS, False),
        (19, 0, False),
        (19, 30 * HOUR_MS, False),
    ],
)
async def test_it_is_drained_in_time(tmp_path: Path, hours: int, expected_ms: int, drained: bool) -> None:
    """Of a life of 24 hours; but not for what nobody knows, or takes longer than any life."""
    async with world(tmp_path, **old()) as w:
        await aged(w, hours)
        await w.submit(1, expected_runtime_ms=expected_ms)
        await w.passes(2)
        (row, *_) = w.rows
        assert (row.state is InstanceState.DRAINING, row.cause) == (drained, "lifetime" if drained else "")
        if drained:
            assert row.reason == "what it would take next is expected to run for 6h, and it ends in 4h"


async def test_who_is_held_is_not(tmp_path: Path) -> None:
    async with world(tmp_path, **old()) as w:
        await aged(w, 19)
        await w.fleet.hold(w.rows[0].id, "")
        await w.submit(1, expected_runtime_ms=6 * HOUR_MS)
        await w.passes(2)
        assert w.rows[0].state is not InstanceState.DRAINING
