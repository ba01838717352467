"""What is past retention is looked for beside the commits, and deleted by one: what may come between the two."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import Retention, TaskFilter
from cloud_dispatch.statestore import SqlStore, open_store
from cloud_dispatch.statestore.care import Prune, past_retention
from cloud_dispatch.statestore.engine import LONG_S
from cloud_dispatch.testing.store_builders import START_MS, ManualClock, spec
from tests.statestore.conftest import CountingEntropy

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


async def _lived_in(url: str, clock: ManualClock, reads: Inline) -> SqlStore:
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
    assert (pruned["tasks"], pruned["events"]) == (2, 1)
    assert [task.id for task in await store.tasks(TaskFilter())] == [3, new]
    assert [event.action for event in await store.events()] == ["new", "last"]
    assert await store.check() == []
    await store.close()


async def test_a_database_may_look_for_what_is_old_for_long(migrated_postgres_url: str) -> None:
    """It says nothing while it goes through a hundred million rows: longer than any other question may take."""
    clock, borne = ManualClock(), {}
    store = await _lived_in(migrated_postgres_url, clock, Inline())

    @sa.event.listens_for(store._engine, "before_cursor_execute")
    def note(connection: sa.Connection, _cursor: object, text: str, *_: object) -> None:
        driver: Any = connection.connection.driver_connection
        if " FROM " in (said := " ".join(text.split())):
            borne[said.split(" FROM ")[1].split()[0]] = driver.patience_s

    await store._read(past_retention, clock.now_ms, ALL, 10)
    assert borne == dict.fromkeys(("tasks", "events", "plans", "instances"), LONG_S)
    await store.close()


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
    found = await store._read(past_retention, clock.now_ms, ALL, 1)
    await asyncio.gather(*(store.prune(clock.now_ms, ALL, batch=most) for most in (1, 10)))
    await store._commit.run(Prune(found))
    assert [task.id for task in await store.tasks(TaskFilter())] == [3]
    assert sum(store.task_counts().values()) == 1
    assert await store.check() == []
    await store.close()
