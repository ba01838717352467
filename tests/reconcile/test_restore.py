"""A start with many instances: what the store is asked, what providers are asked, and what others do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.spi import Listing
from cloud_dispatch.reconcile.settings import Timing
from tests.reconcile.fake import LOCAL, POOL, World, world

S, E = InstanceState, InstanceEvent


async def serving(w: World, count: int) -> None:
    """So many instances that serve."""
    await w.passes()
    assert len(w.rows) == count
    for row in w.rows:
        await w.register(row)


async def test_a_start_takes_many_instances_for_unknown_with_few_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit each would take longer than all else of a start."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=250, boot_allowance=10**12), caps=Caps()) as w:
        await serving(w, 250)
        change, asked = w.store.change, list[int]()

        async def changing(changes: Sequence[InstanceChange]) -> Sequence[Instance]:
            asked.append(len(changes))
            return await change(changes)

        monkeypatch.setattr(w.store, "change", changing)
        told: list[str] = []
        w.context.directive_listeners.append(told.append)
        await w.loop.restore()
        assert asked == [100, 100, 50]
        assert {row.state for row in w.rows} == {S.UNKNOWN}
        assert sorted(told) == sorted(row.id for row in w.rows)
        await w.passes(2)
        for row in w.rows[:3]:
            assert "instance.unknown" in [event.action for event in await w.store.events(instance=row.id)]


async def test_an_instance_that_changes_while_the_dispatcher_starts_keeps_no_other_from_being_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as it was changed to, the others are unknown until heard."""
    async with world(tmp_path, pool=Pool(POOL, (LOCAL,), minimum=20, boot_allowance=10**12), caps=Caps()) as w:
        await serving(w, 20)
        change, own = w.store.change, w.rows[7].id

        async def changing(changes: Sequence[InstanceChange]) -> Sequence[Instance]:
            if len(changes) > 1:
                await change([InstanceChange(own, E.TERMINATE)])
            return await change(changes)

        monkeypatch.setattr(w.store, "change", changing)
        await w.loop.restore()
        states = {row.id: row.state for row in w.rows}
        assert states.pop(own) is S.TERMINATING
        assert set(states.values()) == {S.UNKNOWN}


async def test_offerings_are_asked_for_while_the_listing_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for the other: a listing that fails is told while the question for offerings is still on, which
    ends when its time is over."""
    async with world(tmp_path, timing=Timing(list_interval_ms=0, call_timeout_ms=1_500)) as w:
        both, cancelled = asyncio.Event(), list[str]()
        offerings, listing = w.cloud.offerings, w.cloud.list

        async def offering() -> Sequence[Offering]:
            both.set()
            return await offerings()

        async def listed(deployment: str) -> Listing:
            await asyncio.wait_for(both.wait(), 5)
            return await listing(deployment)

        async def endless() -> Sequence[Offering]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append("offerings")
                raise
            raise AssertionError

        monkeypatch.setattr(w.cloud, "offerings", offering)
        monkeypatch.setattr(w.cloud, "list", listed)
        await w.passes()
        assert w.context.profiles[LOCAL].listed_ms is not None
        w.context.profiles.clear()

        async def refused(deployment: str) -> Listing:
            await asyncio.sleep(0)
            raise Transient("planted")

        monkeypatch.setattr(w.cloud, "offerings", endless)
        monkeypatch.setattr(w.cloud, "list", refused)
        await w.loop.one_pass()
        assert "planted" in w.context.profiles[LOCAL].problem
        assert cancelled == []
        await w.context.calls.settle()
        assert cancelled == ["offerings"]
