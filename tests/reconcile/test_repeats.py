"""What is tried again by itself: refused offerings, failed boots, and what repeats between passes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.provider.errors import CapacityUnavailable
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, POOL, world


async def test_refusals_and_failed_boots_are_forgiven_by_what_succeeds(tmp_path: Path) -> None:
    """Work with one offering waits three minutes for it each time that it has run out, not up to an hour."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), boot_deadline_ms=20_000)) as w:
        failures, key = w.context.failures, offering().key
        w.cloud.refusals[key] = CapacityUnavailable("none")
        await w.submit(1)
        await w.passes(200, step_ms=5_000)
        assert len(w.cloud.requests) == 3, "tried at 0, 3 and 9 minutes"
        del w.cloud.refusals[key]
        await w.passes(200, step_ms=5_000)
        assert len(w.cloud.requests) > 6, "boots fail now, each twice as long apart"
        await w.submit(1)
        await w.passes()
        for row in w.rows:
            await w.register(row)
        now = w.clock.now() + 3_600_000
        assert failures.boot_failed(offering(), "silent", now, 0).until_ms - now == 30_000
        assert failures.refused(offering(), CapacityUnavailable("none"), now).until_ms - now == 180_000


async def test_what_is_repeated_between_passes_can_not_end_the_loop(tmp_path: Path) -> None:
    """A deletion that can't even be started is tried again; the dispatcher goes on."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await w.passes()
        tried = 0

        def broken() -> None:
            nonlocal tried
            tried += 1
            if tried > 3:
                w.loop.stop()
            raise KeyError("a profile that left the configuration")

        w.loop._reaper.reap = broken  # type: ignore[method-assign]
        w.loop._reaper.next_due_ms = lambda: 0  # type: ignore[method-assign]
        async with asyncio.timeout(10):
            await w.loop.run()
        assert tried > 3
