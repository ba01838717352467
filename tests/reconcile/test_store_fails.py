"""The statestore fails between two steps: nothing is forgotten, and nothing that was not stored is believed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.provider.errors import CapacityUnavailable
from tests.reconcile.examples import offering
from tests.reconcile.fake import NAMELESS, Cloud, ManualClock, World, world

S = InstanceState


@contextmanager
def changes_fail(w: World, *, after: int = 0) -> Iterator[None]:
    """Every change of instances fails, but for the first `after`."""
    store: Any = w.store
    change, left = store.change, [after]

    async def failing(changes: Any) -> Any:
        if left[0] <= 0:
            raise StoreUnavailable("disk I/O error")
        left[0] -= 1
        return await change(changes)

    store.change = failing
    try:
        yield
    finally:
        del store.change


def one_offer(**traits: Any) -> Cloud:
    return Cloud(ManualClock(), offers=(offering("only", rate=1000),), traits=replace(NAMELESS, **traits))


async def test_an_intent_after_which_the_store_failed_is_withdrawn(tmp_path: Path) -> None:
    """No call was made for it: its slots come back, and the work is launched for once more."""
    async with world(tmp_path, cloud=one_offer()) as w:
        await w.submit(1)
        with changes_fail(w), pytest.raises(StoreUnavailable):
            await w.passes()
        assert [row.state for row in w.rows] == [S.INTENDED]
        assert not w.cloud.requests
        await w.passes(2)
        assert [row.state for row in w.rows] == [S.BOOTING]
        assert len(w.cloud.requests) == 1


async def test_a_refusal_that_can_not_be_stored_does_not_keep_its_slot(tmp_path: Path) -> None:
    """The slot is in doubt, and comes back once its absence is proved."""
    cloud = one_offer()
    cloud.refusals["local/only/z/on-demand"] = CapacityUnavailable("none")
    async with world(tmp_path, cloud=cloud) as w:
        await w.submit(1)
        with changes_fail(w, after=1):
            await w.passes()
        assert [row.state for row in w.rows] == [S.LAUNCHING]
        await w.passes(5)
        assert not w.rows


async def test_a_vm_that_can_not_be_stored_is_missed_when_it_goes(tmp_path: Path) -> None:
    """Its slot was never bound, and it dies before a listing shows it: the slot comes back all the same."""
    async with world(tmp_path, cloud=one_offer(named_slots=True, vm_name="vm-{instance}")) as w:
        await w.submit(1)
        with changes_fail(w, after=1):
            await w.passes()
        w.cloud.vms.clear()
        w.cloud.refusals["local/only/z/on-demand"] = CapacityUnavailable("none")
        await w.passes(5)
        assert not w.rows


async def test_a_proof_of_absence_outlives_a_store_that_fails(tmp_path: Path) -> None:
    """It was complete when the store refused it: the next listing brings it again."""
    async with world(tmp_path, cloud=one_offer()) as w:
        w.cloud.lose_request = True
        await w.submit(1)
        await w.passes(2)
        w.cloud.refusals["local/only/z/on-demand"] = CapacityUnavailable("none")
        with changes_fail(w):
            await w.passes(4)
        assert [row.state for row in w.rows] == [S.LAUNCHING]
        await w.passes(3)
        assert not w.rows


async def test_a_stop_does_not_fail_for_want_of_room_for_its_last_events(tmp_path: Path) -> None:
    """The disk is full: the dispatcher still ends as it was asked to, and says what it could not keep."""
    async with world(tmp_path) as w:
        w.context.note("instance.console", detail="the last words")

        async def full(events: Any) -> None:
            raise StoreUnavailable("the disk is full")

        store: Any = w.store
        store.record = full
        with capture_logs() as logs:
            await w.loop.close()
        del store.record
        assert [(said["event"], said["events"]) for said in logs if said["log_level"] == "warning"] == [
            ("events.not_kept", 1)
        ]


async def test_a_store_that_is_away_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes fail by the same many times a minute: it is logged once, and again once something else was the matter.
    The end of it is logged too."""
    async with world(tmp_path) as w:
        ends = iter(["away", "away", "full", "", "full"])

        async def one_pass() -> None:
            w.context.wake()
            end = next(ends, None)
            if end is None:
                w.loop.stop()
            elif end:
                raise StoreUnavailable(end)

        monkeypatch.setattr(w.loop, "one_pass", one_pass)
        with capture_logs() as logs:
            await w.loop.run()
        told = [(one["event"], one.get("error")) for one in logs if one["event"].startswith("pass.")]
        failed, again = "pass.failed", ("pass.works_again", None)
        assert told == [(failed, "away"), (failed, "full"), again, (failed, "full"), again]
