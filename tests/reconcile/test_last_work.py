"""What is left of an instance's life becomes what plans count with: who declines, for how long, and what follows."""

from __future__ import annotations

from pathlib import Path

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.planner.replay import decode_snapshot, encode_snapshot
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.reconcile import picture
from cloud_dispatch.spend.payers import ClaimTerms
from tests.reconcile.fake import LOCAL, POOL, World, world

HOUR_MS = 3_600_000
LIFE = EndRules(idle_ms=20 * HOUR_MS, lifetime_ms=10 * HOUR_MS)
KEPT = Pool(POOL, (LOCAL,), minimum=1, end=LIFE, target_drain_ms=60_000)


async def aged(w: World, hours: float) -> None:
    """An instance so old, with nothing to do."""
    await w.store.set_limits((), {}, ClaimTerms(lifetimes={POOL: 10 * HOUR_MS}, leave_ms=0, movable=frozenset({LOCAL})))
    await w.booted(0)
    w.clock.ms += round(hours * HOUR_MS)
    w.context.contacts.excuse(w.clock.monotonic() + 9 * HOUR_MS)  # nobody has spoken all that time


def look(w: World) -> Snapshot:
    return picture.take(w.context, w.loop._sources)


async def test_a_picture_says_who_declines_what(tmp_path: Path) -> None:
    """By the number of what waits, as long as that is so; and it can be stored."""
    async with world(tmp_path, pool=KEPT) as w:
        await aged(w, 6)
        await w.submit(1, expected_runtime_ms=HOUR_MS)
        (young,) = look(w).supply
        assert young.declines == ()
        w.clock.ms += 3 * HOUR_MS + HOUR_MS // 2
        scene = look(w)
        (old,) = scene.supply
        assert old.declines == (0,)
        assert look(w).supply[0] is old, "as long as nothing changes it is the same object"
        assert old.kind != young.kind
        assert decode_snapshot(encode_snapshot(scene)) == scene
        await w.submit(1)  # of which nobody knows anything
        assert look(w).supply[0].declines == ()


async def test_another_one_is_launched_for_what_it_declines(tmp_path: Path) -> None:
    """The task is not begun on the old one, which stays for what it can do."""
    async with world(tmp_path, pool=KEPT) as w:
        await aged(w, 9.5)
        await w.submit(1, expected_runtime_ms=HOUR_MS)
        await w.passes()
        assert sorted(row.state for row in w.rows) == [InstanceState.BOOTING, InstanceState.IDLE]


async def test_it_goes_where_there_is_no_room_for_another(tmp_path: Path) -> None:
    """Drained at once, and why is said."""
    async with world(tmp_path, pool=KEPT, caps=Caps(instances=1)) as w:
        await aged(w, 9.5)
        await w.submit(1, expected_runtime_ms=HOUR_MS)
        await w.passes()
        (row,) = w.rows
        assert (row.state, row.cause) == (InstanceState.DRAINING, "lifetime")
        assert row.reason.endswith("which take longer than is left of its life")
