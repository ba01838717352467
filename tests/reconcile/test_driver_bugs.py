"""A driver that raises what it should not: its profile has a problem, and all else goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.spi import Listing
from cloud_dispatch.reconcile import asking
from cloud_dispatch.reconcile.calls import Calls
from tests.reconcile.fake import LOCAL, world


@pytest.mark.parametrize("call", ["list", "offerings"])
async def test_a_bug_of_a_driver_is_a_silence_and_ends_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever a driver raises that it should not: its profile has a problem, and all else goes on."""
    async with world(tmp_path) as w:

        async def stumble(*_: object) -> None:
            raise RuntimeError("the driver has a bug: KeyError: 'State'")

        with monkeypatch.context() as planted:
            planted.setattr(w.cloud, call, stumble)
            await w.submit(1)
            await w.passes(2)
            assert "the driver has a bug" in w.context.profiles[LOCAL].trouble
            assert w.rows == []
        await w.passes(3)
        assert w.context.profiles[LOCAL].trouble == ""
        assert len(w.rows) == 1


@pytest.mark.parametrize("call", ["list", "offerings"])
async def test_what_one_question_does_not_tell_another_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A profile whose prices can't be had is listed, and what has ended there is seen; one that can't be listed is
    still known by what it offers."""
    async with world(tmp_path) as w:

        async def stumble(*_: object) -> None:
            raise Transient("not now")

        await w.submit(1)
        await w.passes(2)
        (row,) = w.rows
        monkeypatch.setattr(w.cloud, call, stumble)
        view = w.context.profiles[LOCAL]
        view.offerings, view.offered_ms = (), None
        del w.cloud.vms[row.vm]
        w.clock.ms += 120_000
        await w.passes(6)
        assert bool(view.problem) == (call == "list")
        assert bool(view.offerings) == (call == "list")
        assert (row.id in {one.id for one in w.rows}) == (call == "list")


async def test_who_does_not_answer_keeps_no_pass_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass waits a moment for what it has asked, and the next one, while that is open, not at all; what comes later
    wakes it."""
    monkeypatch.setattr(asking, "PATIENCE_MS", 50)
    async with world(tmp_path) as w:
        listing, going = w.cloud.list, asyncio.Event()

        async def later(deployment: str) -> Listing:
            await going.wait()
            return await listing(deployment)

        monkeypatch.setattr(w.cloud, "list", later)
        await w.submit(1)
        await w.loop.one_pass()
        monkeypatch.setattr(asking, "PATIENCE_MS", 3_600_000)
        async with asyncio.timeout(30):
            await w.loop.one_pass()
        assert w.rows == []
        w.context.woken.clear()
        going.set()
        async with asyncio.timeout(30):
            await w.context.woken.wait()
        await w.passes(2)
        assert len(w.rows) == 1


async def test_calls_that_hang_at_one_provider_leave_turns_for_the_others() -> None:
    """Each provider has its own."""
    calls, going, done = Calls(2), asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        await going.wait()

    async def answer() -> None:
        done.set()

    for number in range(5):
        calls.start(f"launch:{number}", hang(), "down")
    calls.start("launch:5", answer(), "up")
    async with asyncio.timeout(30):
        await done.wait()
    going.set()
    await calls.settle()
