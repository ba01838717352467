"""Housekeeping: in one round everything that is too old goes, wherever it lies among what is not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.api.files import attempt_folder
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.outputs import OutputStore
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.task import Cause, Outcome
from cloud_dispatch.ports.store import ClaimResult, Retention, SyncCall
from cloud_dispatch.reconcile.keeping import PIECE, Keeper
from tests.reconcile.fake import ManualClock, world

K = FencingToken(2)
DAY_MS = 86_400_000


async def test_a_round_looks_at_every_log(tmp_path: Path) -> None:
    """Those of a busy deployment are many, and the old ones lie among the young: one of a thousand is found too."""
    async with world(tmp_path) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        total = 3 * PIECE
        for task in range(total):
            logs.append(TaskId(task), K, 0, b"x")
            age_ms = 5_000 if task % 1000 == 999 else 0
            at = (w.clock.now() - age_ms) / 1000
            os.utime(tmp_path / "logs" / str(task // 1000) / f"{task}.2.log", (at, at))
        keeper = Keeper(w.store, w.clock, Retention(None, None, None, None), logs, 4_000, outputs)
        await keeper.prune()
        assert len(list((tmp_path / "logs").rglob("*.log"))) == total - 3
        keeper.follow(Retention(None, None, None, None), 0)
        w.clock.ms += 1_000
        keeper.stop()
        async with asyncio.timeout(10):
            await keeper.prune()
        assert len(list((tmp_path / "logs").rglob("*.log"))) == total - 3, "whoever stops waits for no round"


async def test_the_log_of_a_held_claim_stays(tmp_path: Path) -> None:
    """However long ago it was written: what its task says next belongs behind it."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        (claim,) = (await w.store.sync(SyncCall(row.id, 1, want=1))).claims
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        before = FencingToken(claim.token - 1)
        for token in (before, claim.token):
            logs.append(claim.task, token, 0, b"x")
        for path in (tmp_path / "logs").rglob("*.log"):
            os.utime(path, (1, 1))
        await Keeper(w.store, w.clock, Retention(None, None, None, None), logs, 0, outputs).prune()
        assert (logs.size(claim.task, claim.token), logs.size(claim.task, before)) == (1, 0)


async def test_what_an_attempt_left_is_kept_from_its_end_on(tmp_path: Path) -> None:
    """A task that printed and stored its last long before it ended: neither goes at the first look after that, also
    where another dispatcher has looked meanwhile; both go once they are as old as they may be."""
    async with world(tmp_path) as w:
        await w.booted()
        (row,) = w.rows
        (claim,) = (await w.store.sync(SyncCall(row.id, 1, want=1))).claims
        task, token = claim.task, claim.token
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        logs.append(task, token, 0, b"x")
        await outputs.store(task, token, "early", _once(b"x"), lambda: None)
        folder = attempt_folder(tmp_path / "outputs", task, token)

        def left() -> tuple[int, bool]:
            return logs.size(task, token), folder.exists()

        def ages() -> None:
            for path in (*(tmp_path / "logs").rglob("*.log"), folder):
                os.utime(path, (1, 1))

        keeper = Keeper(w.store, w.clock, Retention(0, None, None, None), logs, 1, outputs)
        ages()
        await keeper.prune()
        ages()  # as if the claim had been held for so long again
        await w.store.sync(SyncCall(row.id, 2, results=(ClaimResult(task, token, 5, Outcome(Cause.SUCCESS)),)))
        assert w.store.token_of(task) != token
        await keeper.prune()
        assert left() == (1, True)
        again = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        await Keeper(w.store, w.clock, Retention(0, None, None, None), again[0], 1, again[1]).prune()
        assert left() == (1, True)
        ages()
        await keeper.prune()
        assert left() == (0, False)


async def test_a_file_of_somebodys_own_among_the_logs_is_left_alone(tmp_path: Path) -> None:
    """Such as a copy that an operator has put aside. Each ended the dispatcher, and again at every start."""
    async with world(tmp_path) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        logs.append(TaskId(1), K, 0, b"x")
        own = [tmp_path / "logs" / "0" / name for name in ("kept.log", "1.2.copy.log", "1.²²4.log", "01.log")]
        for path in own:
            path.write_bytes(b"x")
        for path in (tmp_path / "logs").rglob("*.log"):
            os.utime(path, (1, 1))
        await Keeper(w.store, w.clock, Retention(None, None, None, None), logs, 0, outputs).prune()
        assert sorted((tmp_path / "logs").rglob("*.log")) == sorted(own)


async def test_files_go_also_where_rows_can_not(tmp_path: Path) -> None:
    """A disk that is full for the statestore takes no deletion of rows: files past retention are what frees it."""
    async with world(tmp_path) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        logs.append(TaskId(1), K, 0, b"x")
        await outputs.store(TaskId(1), K, "out", _once(b"x"), lambda: None)
        folder = attempt_folder(tmp_path / "outputs", TaskId(1), K)
        for path in (*(tmp_path / "logs").rglob("*.log"), folder):
            os.utime(path, (1, 1))
        await w.store.close()
        with capture_logs() as told:
            await Keeper(w.store, w.clock, Retention(0, None, None, None), logs, 0, outputs).prune()
        assert [record["event"] for record in told if record["log_level"] == "warning"] == ["keeping.failed"]
        assert (logs.size(TaskId(1), K), folder.exists()) == (0, False)


class MovedClock(ManualClock):
    """One that is set otherwise, by so many milliseconds."""

    moved_ms = 0

    def now(self) -> int:
        return self.ms + self.moved_ms


async def test_nothing_goes_by_a_clock_that_was_moved_until_it_has_stayed(tmp_path: Path) -> None:
    """All that there is would be past retention by one that is a year ahead, and gone when it is put right. A day later
    it is what time it is."""
    async with world(tmp_path, clock=(clock := MovedClock())) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        keeper = Keeper(w.store, clock, Retention(None, DAY_MS, None, None), logs, 4 * DAY_MS, outputs)

        async def left() -> list[bool]:
            with capture_logs() as told:
                await keeper.prune()
            events = {event.action for event in await w.store.events()}
            return [logs.size(TaskId(1), K) > 0, "first" in events, any(one["event"] == "clock.moved" for one in told)]

        await w.store.record([Event(clock.now(), "first"), Event(clock.now(), "last")])
        logs.append(TaskId(1), K, 0, b"x")
        (log,) = (tmp_path / "logs").rglob("*.log")
        os.utime(log, (clock.now() / 1000,) * 2)
        clock.moved_ms = 365 * DAY_MS
        assert await left() == [True, True, True]
        clock.ms += DAY_MS // 2
        assert await left() == [True, True, False]
        clock.moved_ms = 0
        assert await left() == [True, True, True]
        clock.ms += DAY_MS
        assert await left() == [True, False, False], "it was put right, and by it the events are old"
        clock.moved_ms = 5 * DAY_MS
        assert await left() == [True, False, True]
        clock.ms += DAY_MS
        assert await left() == [False, False, False]


async def test_what_is_past_retention_goes_also_where_the_machine_sleeps_every_night(tmp_path: Path) -> None:
    """Its clock has moved each morning, and never been for a day of its waking hours where it was."""
    async with world(tmp_path, clock=(clock := MovedClock())) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        keeper = Keeper(w.store, clock, Retention(None, DAY_MS, None, None), logs, None, outputs)
        await w.store.record([Event(clock.now(), "first"), Event(clock.now(), "last")])
        for _ in range(3):
            clock.moved_ms += DAY_MS // 3
            for _ in range(4):
                await keeper.prune()
                clock.ms += DAY_MS // 6
        assert "first" not in {event.action for event in await w.store.events()}


async def test_a_clock_that_is_moved_far_once_more_has_to_stay_from_then_on(tmp_path: Path) -> None:
    """For most of a day it was two days ahead, which says nothing of the hundred that it is ahead then."""
    async with world(tmp_path, clock=(clock := MovedClock())) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        keeper = Keeper(w.store, clock, Retention(None, 9 * DAY_MS, None, None), logs, None, outputs)
        await w.store.record([Event(clock.now(), "first"), Event(clock.now(), "last")])

        async def is_kept(moved_ms: int, waits_ms: int) -> bool:
            clock.moved_ms = moved_ms
            await keeper.prune()
            clock.ms += waits_ms
            await keeper.prune()
            return "first" in {event.action for event in await w.store.events()}

        assert await is_kept(2 * DAY_MS, DAY_MS * 9 // 10)
        assert await is_kept(100 * DAY_MS, DAY_MS // 2), "a day after the first of the two"
        assert not await is_kept(100 * DAY_MS, DAY_MS // 2)


async def _once(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


async def test_of_what_has_no_more_to_go_nothing_is_looked_for_again(tmp_path: Path) -> None:
    """To go through millions of young rows for each thousand that are old took seconds each time."""
    async with world(tmp_path) as w:
        logs, outputs = LogStore(tmp_path / "logs", 1000), OutputStore(tmp_path / "outputs", 1000, Inline())
        await w.store.record([Event(w.clock.now() - DAY_MS, "old")] * (2 * PIECE + 1))
        asked: list[tuple[str, ...]] = []
        prune = w.store.prune

        async def noting(*args: Any, of: Collection[str] = (), **more: Any) -> Mapping[str, int]:
            asked.append(tuple(of))
            return await prune(*args, of=of, **more)

        w.store.prune = noting  # type: ignore[method-assign]
        await Keeper(w.store, w.clock, Retention(1, 1, 1, 1), logs, 0, outputs).prune()
        assert len(await w.store.events(limit=10)) == 1
        assert asked == [(), ("events",), ("events",)]
