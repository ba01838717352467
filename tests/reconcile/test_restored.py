"""After a restore nothing is launched before listings have shown what the copy has forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.provider.spi import Listing
from cloud_dispatch.statestore.lineage import RESTORED_FACT
from cloud_dispatch.statestore.purse import UNSURE_FACT
from tests.reconcile.fake import Cloud, ManualClock, World, world

HORIZON_MS = 30_000


@dataclass
class Halting(Cloud):
    """Its listings are incomplete while it halts."""

    halts: bool = False

    async def list(self, deployment: str) -> Listing:
        return replace(await super().list(deployment), complete=not self.halts)


def slow() -> Cloud:
    """One that shows a new VM after half a minute at the latest."""
    return Cloud(ManualClock(), traits=replace(Cloud.traits, consistency_ms=HORIZON_MS))


async def restored(w: World) -> None:
    await w.store.set_fact(RESTORED_FACT, str(w.clock.now()))


async def test_what_was_launched_after_the_copy_counts_before_anything_is_launched(tmp_path: Path) -> None:
    """Found by the simulator: the cloud did not show the VMs yet, and as many were launched again, past the cap."""
    async with world(tmp_path, cloud=slow(), caps=Caps(instances=1)) as w:
        await w.submit(1)
        await w.passes()
        (forgotten,) = w.cloud.vms.values()
        row = w.rows[0]
    async with world(tmp_path / "again", cloud=w.cloud, caps=Caps(instances=1)) as again:
        assert again.store.id == w.store.id
        again.cloud.hidden = {forgotten.id}
        again.cloud.requests.clear()
        await again.submit(1)
        await restored(again)
        await again.passes(20)
        assert again.cloud.requests == []
        assert again.context.last is not None
        (waiting,) = again.context.last[1].waiting
        assert "the statestore was restored" in waiting.reason
        again.cloud.hidden.clear()
        await again.passes(15)
        assert [known.id for known in again.rows] == [row.id]
        assert again.rows[0].state is not InstanceState.LAUNCHING
        assert again.cloud.requests == []


async def test_a_ledger_that_is_reconciled_shows_no_vm(tmp_path: Path) -> None:
    """What was spent is one thing, what was launched another: the wait is the same."""
    async with world(tmp_path, cloud=slow()) as w:
        await w.store.set_fact(UNSURE_FACT, str(w.clock.now()))
        await restored(w)
        await w.submit(1)
        await w.passes(2)
        await w.store.reconcile()
        assert w.store.unsure_since() is None
        await w.passes(HORIZON_MS // 1_000 - 4)
        assert w.cloud.requests == []
        await w.passes(6)
        assert len(w.cloud.requests) == 1


async def test_a_clock_that_was_ahead_at_the_restore_holds_nothing_up(tmp_path: Path) -> None:
    """Put right before the dispatcher started, by hours: it waits as it does after any restore."""
    async with world(tmp_path, cloud=slow()) as w:
        await w.store.set_fact(RESTORED_FACT, str(w.clock.now() + 3 * 3_600_000))
        await w.submit(1)
        await w.passes(HORIZON_MS // 1_000 - 2)
        assert w.cloud.requests == []
        await w.passes(6)
        assert len(w.cloud.requests) == 1


async def test_who_starts_later_does_not_wait_again(tmp_path: Path) -> None:
    """All that there was at the restore has been shown once: a profile that lists but in part launches as any does."""
    async with world(tmp_path, cloud=Halting(ManualClock(), traits=replace(Cloud.traits, consistency_ms=30_000))) as w:
        await restored(w)
        await w.passes(HORIZON_MS // 1_000 + 4)
        w.cloud.halts = True  # type: ignore[attr-defined]
        await w.restart()
        await w.submit(1)
        await w.passes(2)
        assert len(w.cloud.requests) == 1


async def test_launches_go_on_after_a_listing_that_began_past_the_horizon(tmp_path: Path) -> None:
    """Where nothing was forgotten the restore costs no more than that wait."""
    async with world(tmp_path, cloud=slow()) as w:
        await w.submit(1)
        await restored(w)
        await w.passes(HORIZON_MS // 1_000)
        assert w.cloud.requests == []
        await w.passes(4)
        assert len(w.cloud.requests) == 1


async def test_a_provider_that_shows_all_at_once_is_not_waited_for(tmp_path: Path) -> None:
    """As the local one."""
    async with world(tmp_path) as w:
        await w.submit(1)
        await restored(w)
        await w.passes()
        assert len(w.cloud.requests) == 1
