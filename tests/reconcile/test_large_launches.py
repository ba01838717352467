"""Launches of many VMs: in which order they are committed and called for, and what is left of one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState, LaunchIntent
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.stop import StopLevel
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.provider.errors import CapacityUnavailable
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult
from cloud_dispatch.reconcile.calls import MAX_AT_ONCE
from tests.reconcile.fake import LOCAL, POOL, world

S = InstanceState


async def test_the_first_calls_of_a_large_launch_are_made_before_all_intents_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 VMs in launches of ten, in parts as large as all before them; each call after its own intent is durable."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=400, boot_allowance=10**12), caps=Caps()) as w:
        asked: list[int] = []
        intend, launch = w.store.intend, w.cloud.launch

        async def intending(intent: LaunchIntent, slots: Sequence[Instance]) -> None:
            asked.append(len(w.cloud.requests))
            await intend(intent, slots)

        async def launching(request: LaunchRequest) -> LaunchResult:
            states = {w.store.instances()[name].state for name in request.instances}
            assert states == {S.LAUNCHING}
            return await launch(request)

        monkeypatch.setattr(w.store, "intend", intending)
        monkeypatch.setattr(w.cloud, "launch", launching)
        await w.passes()
        assert len(w.cloud.vms) == 400
        assert [asked.count(made) for made in dict.fromkeys(asked)] == [10, 10, 20]


@pytest.mark.parametrize("landed", [False, True])
async def test_a_launch_whose_announcement_fails_is_given_back_and_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """Of two launches whose calls are about to be made the store takes one, or has taken both and answers for one with
    an error: no slot is left that nobody calls for."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=20, boot_allowance=10**12), caps=Caps()) as w:
        change, failed = w.store.change, list[InstanceId]()

        async def changing(changes: Sequence[InstanceChange]) -> Sequence[Instance]:
            if not failed and changes[0].event is InstanceEvent.LAUNCH:
                failed.extend(one.instance for one in changes)
                if landed:
                    await change(changes)
                raise StoreUnavailable("planted")
            return await change(changes)

        monkeypatch.setattr(w.store, "change", changing)
        with pytest.raises(StoreUnavailable):
            await w.loop.one_pass()
        await w.passes(30 if landed else 3)  # that there is no VM has to be proved
        assert len(failed) == 10
        assert len(w.cloud.vms) == len([row for row in w.rows if row.vm]) == len(w.rows) == 20
        assert not {row.id for row in w.rows} & set(failed)


async def test_a_stop_holds_for_launches_that_wait_for_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many calls are made at once, the others wait: none of those is made after the stop, and their slots are
    free."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=1_500, boot_allowance=10**12), caps=Caps()) as w:
        launch, going, asked = w.cloud.launch, asyncio.Event(), list[LaunchRequest]()

        async def launching(request: LaunchRequest) -> LaunchResult:
            asked.append(request)
            await going.wait()
            return await launch(request)

        monkeypatch.setattr(w.cloud, "launch", launching)
        await w.loop.one_pass()
        while len(asked) < MAX_AT_ONCE:
            await asyncio.sleep(0)
        assert len(w.rows) > 10 * MAX_AT_ONCE
        await w.fleet.stop(StopLevel.LAUNCHES, "enough")
        going.set()
        await w.passes(3)
        assert len(asked) == MAX_AT_ONCE
        assert len(w.rows) == len(w.cloud.vms) == 10 * MAX_AT_ONCE


async def test_slots_that_a_stop_has_kept_from_their_call_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between the commit of the intents and the calls: nothing failed."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=10)) as w:
        intend = w.store.intend

        async def intending(intent: LaunchIntent, slots: Sequence[Instance]) -> None:
            await intend(intent, slots)
            await w.fleet.stop(StopLevel.LAUNCHES, "enough for today")

        monkeypatch.setattr(w.store, "intend", intending)
        await w.loop.one_pass()
        (slot, *_) = [row.id for row in w.rows]
        await w.passes(3)
        assert (w.cloud.requests, w.rows) == ([], [])
        (event,) = [one for one in await w.store.events(instance=slot) if one.action == "instance.gone"]
        assert "enough for today" in event.detail


async def test_a_large_launch_is_an_event_for_each_vm_and_one_line_in_the_log(tmp_path: Path) -> None:
    """A line takes longer than all else that is done for one VM."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=10)) as w:
        with capture_logs() as lines:
            await w.passes()
        await w.passes()  # stores the events of the one before
        for action in ("instance.launching", "instance.booting"):
            (line,) = [line for line in lines if line["event"] == action]
            assert line["instances"].split() == [row.id for row in w.rows]
            for row in w.rows:
                assert action in [event.action for event in await w.store.events(instance=row.id)]


async def test_a_refused_launch_gives_its_slots_back_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change for all of them: slot by slot, each with a commit, a thousand would take seconds."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=10, boot_allowance=10**12), caps=Caps()) as w:
        refused: list[list[InstanceId]] = []
        change = w.store.change

        async def changing(changes: Sequence[InstanceChange]) -> Sequence[Instance]:
            if changes[0].event is InstanceEvent.REFUSED:
                refused.append([one.instance for one in changes])
            return await change(changes)

        async def full(request: LaunchRequest) -> LaunchResult:
            raise CapacityUnavailable("none left")

        monkeypatch.setattr(w.store, "change", changing)
        monkeypatch.setattr(w.cloud, "launch", full)
        await w.loop.one_pass()
        while len(refused) < 1:
            await asyncio.sleep(0)
        await w.passes(1)
        assert len(refused[0]) == 10
        assert not w.rows
        for slot in refused[0]:
            (event,) = [one for one in await w.store.events(instance=slot) if one.action == "instance.gone"]
            assert "none left" in event.detail
