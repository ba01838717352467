"""What is past retention is looked for beside the commits, and deleted by one: what may come between the two."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, TypeVar

import pytest

from cloud_dispatch.adapters.executors import Inline, Thread
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import Retention, Target, TaskFilter
from cloud_dispatch.statestore import SqlStore, care, open_store, reading, records
from cloud_dispatch.statestore.care import Prune, past_retention
from cloud_dispatch.testing.store_builders import START_MS, ManualClock, spec
from tests.statestore.conftest import CountingEntropy, stores

ALL = Retention(0, 0, 0, 0)
T = TypeVar("T")


class Slow(Inline):
    """As a thread that is not done with one kind of question before it is let go on."""

    def __init__(self, question: Callable[..., object]) -> None:
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self._question = question

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        found = await super().run(work, *args)
        if args and args[0] is self._question:
            self.asked.set()
            await self.goes_on.wait()
        return found


class Noting(Thread):
    """A thread of which one can see what it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[object] = []

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        self.asked.extend(args[:1])
        return await super().run(work, *args)


async def _lived_in(url: str, clock: ManualClock, reads: Inline | Thread) -> SqlStore:
    """A store with two tasks that ended, one that waits, and two events; all are old."""
    store = await open_store(url, clock=clock, entropy=CountingEntropy(), executor=Inline(), reads=reads)
    one, two, _ = await store.submit([spec(project="p") for _ in range(3)])
    await store.cancel(TaskFilter(ids=(one, two)))
    await store.record([Event(START_MS, "first"), Event(START_MS, "last")])
    clock.now_ms += 1_000
    return store


async def test_nobody_waits_while_what_is_old_is_looked_for(migrated_sqlite_url: str) -> None:
    """There may be millions of rows: a tenth of a second each ten minutes, for every claim of that moment. What comes
    meanwhile is younger, and stays."""
    clock, slow = ManualClock(), Slow(past_retention)
    store = await _lived_in(migrated_sqlite_url, clock, slow)
    pruning = asyncio.create_task(store.prune(clock.now_ms, ALL))
    async with asyncio.timeout(10):
        await slow.asked.wait()
        (new,) = await store.submit([spec()])
        await store.cancel(TaskFilter(ids=(new,)))
        await store.record([Event(clock.now_ms, "new")])
        assert not pruning.done()
        slow.goes_on.set()
        pruned = await pruning
    assert (pruned["tasks"], pruned["events"]) == (2, 2)
    assert [task.id for task in await store.tasks(TaskFilter())] == [3, new]
    assert [event.action for event in await store.events()] == ["new"]
    assert await store.check() == []
    await store.close()


async def test_who_asks_something_else_has_his_turn_meanwhile(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread answers all questions, also that without which no instance is gone: it looks at few rows at once, and
    finds what is old wherever that is, as many as were asked for."""
    monkeypatch.setattr(care, "WINDOW", 3)
    clock, thread = ManualClock(), Noting("reads")
    store = await _lived_in(migrated_sqlite_url, clock, thread)
    late = await store.submit([spec() for _ in range(7)])
    await store.cancel(TaskFilter(ids=tuple(late[2:])))
    await store.record([Event(START_MS, str(number)) for number in range(6)])
    thread.asked.clear()
    pruned, _ = await asyncio.gather(store.prune(clock.now_ms + 1, ALL, batch=6), store.events())
    assert (pruned["tasks"], pruned["events"], pruned["plans"], pruned["instances"]) == (6, 6, 0, 0)
    assert thread.asked[:3] == [past_retention, reading.list_events, past_retention]
    assert [task.id for task in await store.tasks(TaskFilter())] == [3, 4, 5, 10]
    pruned = await store.prune(clock.now_ms + 1, ALL, batch=6)
    assert (pruned["tasks"], pruned["events"]) == (1, 1)
    assert [event.action for event in await store.events()] == ["5"]
    await store.close()
    await thread.close()


async def test_counting_what_is_kept_costs_nothing_for_what_is_not(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of tasks have ended and are pruned after one that waits still; windows of the others are not asked for.
    All that are kept count, wherever a window ends."""
    clock = ManualClock()
    await (await _lived_in(migrated_sqlite_url, clock, Inline())).close()
    with closing(sqlite3.connect(migrated_sqlite_url.removeprefix("sqlite:///"))) as tables:
        tables.execute("UPDATE counters SET value = 3000 WHERE name = 'task'")
        tables.commit()
    store = await open_store(migrated_sqlite_url, clock=clock, entropy=CountingEntropy(), executor=Inline())
    await store.submit([spec(project="p") for _ in range(7)])
    await store.prune(clock.now_ms + 1_000, ALL)
    monkeypatch.setattr("cloud_dispatch.statestore.reading.COUNT_WINDOW", 3)
    asked: list[object] = []
    read = store._read

    def counted(query: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        asked.append(query)
        return read(query, *args)

    monkeypatch.setattr(store, "_read", counted)
    assert (await store.count(TaskFilter(project="p")))[TaskState.QUEUED] == 8
    assert len(asked) <= 10
    await store.close()


async def test_what_another_deleted_meanwhile_is_not_counted_off_twice(migrated_sqlite_url: str) -> None:
    """A call that was given up may still be on its way when the next one looks: in a group with it, or in another."""
    clock = ManualClock()
    store = await _lived_in(migrated_sqlite_url, clock, Inline())
    found = await care.look(store._read, clock.now_ms, ALL, 1)
    await asyncio.gather(*(store.prune(clock.now_ms, ALL, batch=most) for most in (1, 10)))
    await store._commit.run(Prune(found))
    assert [task.id for task in await store.tasks(TaskFilter())] == [3]
    assert sum(store.task_counts().values()) == 1
    assert await store.check() == []
    await store.close()


@pytest.mark.parametrize("first", [True, False])
async def test_a_target_that_is_set_when_it_has_long_expired_is_gone_for_all(
    migrated_sqlite_url: str, first: bool
) -> None:
    """In one commit with those that go, before them or after: the memory and the tables lose the same."""
    clock, pool = ManualClock(), PoolName("p")
    async with stores(migrated_sqlite_url) as open_one:
        store: Any = await open_one(clock)
        await store.set_target(Target(pool, "old", 1, 1))
        calls = [store.set_target(Target(pool, source, 2, 2)) for source in ("old", "new")]
        calls.append(store._commit.run(records.DropExpired(START_MS)))
        await asyncio.gather(*(calls if first else calls[::-1]))
        assert [one.source for one in store.targets()] == ([] if first else ["new", "old"])
        assert await store.check() == []
        await store._commit.run(records.DropExpired(START_MS))
        assert store.targets() == await store.check() == []
