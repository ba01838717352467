"""Instances with a long past leave without holding up the others, and what comes at the last moment is booked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

from cloud_dispatch.adapters.executors import Inline, Thread
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.spend.costs import CostKey, CostQuery
from cloud_dispatch.statestore import SqlStore, costs, open_store
from cloud_dispatch.statestore.departures import Departures
from cloud_dispatch.statestore.instances import Change
from cloud_dispatch.testing.store_builders import START_MS, Agent, ManualClock, adopted, result, spec
from tests.statestore.conftest import CountingEntropy

T = TypeVar("T")
MINUTE = 60_000


class Beside(Inline):
    """Reads beside the commits; `then` happens between the next read and what follows it."""

    def __init__(self) -> None:
        self.then: Callable[[], Awaitable[object]] | None = None
        self.ran: list[str] = []

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        self.ran.append(getattr(args[0], "__qualname__", "") if args else "")
        done = await super().run(work, *args)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return done


@pytest.fixture
def beside() -> Beside:
    return Beside()


@pytest.fixture
async def store(migrated_sqlite_url: str, clock: ManualClock, beside: Beside) -> AsyncIterator[SqlStore]:
    opened = await open_store(
        migrated_sqlite_url, clock=clock, entropy=CountingEntropy(), executor=Inline(), reads=beside
    )
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def working(store: SqlStore, clock: ManualClock) -> tuple[Agent, Callable[[], Awaitable[object]]]:
    """An agent that has done one task, and a call that brings the result of another one."""
    agent = await adopted(store, launched_ms=START_MS, registered_ms=START_MS)
    await store.submit([spec(project=project) for project in ("early", "late")])
    early, late = await agent.claim(2)
    clock.now_ms += MINUTE
    agent.runs(late, MINUTE)
    await agent.sync(result(early, ran_ms=MINUTE))

    async def brings() -> None:
        clock.now_ms += MINUTE
        await agent.sync(result(late, ran_ms=2 * MINUTE))

    return agent, brings


async def payers(store: SqlStore) -> dict[object, int]:
    found = await store.costs(CostQuery((CostKey.PROJECT,)))
    return {row.keys[0]: row.cost.work for row in found.rows}


async def test_attempts_are_read_beside_the_commits(store: SqlStore, clock: ManualClock, beside: Beside) -> None:
    agent, brings = await working(store, clock)
    await brings()
    beside.ran.clear()
    await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
    assert beside.ran == ["Departures.look"]
    assert min((await payers(store)).values()) > 0


async def test_a_result_between_the_reading_and_the_booking_is_booked(
    store: SqlStore, clock: ManualClock, beside: Beside
) -> None:
    agent, beside.then = await working(store, clock)
    await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
    found = await payers(store)
    assert set(found) == {"early", "late"}
    assert found["late"] == pytest.approx(2 * found["early"], abs=2)
    (entry,) = await store.ledger()
    assert entry.amount == sum(row.cost.whole for row in (await store.costs(CostQuery())).rows)
    assert Rate(entry.amount) == Rate(3_200)  # two minutes at 9.6 cents an hour


async def test_without_looking_again_it_would_be_lost(
    store: SqlStore, clock: ManualClock, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mistake: what was read ahead is believed."""
    monkeypatch.setattr(Departures, "read", lambda self, connection: None)
    agent, beside.then = await working(store, clock)
    await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
    assert set(await payers(store)) == {"early"}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_what_leaves_while_costs_are_read_is_in_them(
    database: str, request: pytest.FixtureRequest, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not booked yet when what is booked is added up, and booked when what lives is: a question is of one moment."""
    url, reads = request.getfixturevalue(f"migrated_{database}_url"), Thread("reads")
    store = await open_store(url, clock=clock, entropy=CountingEntropy(), executor=Inline(), reads=reads)
    agent, brings = await working(store, clock)
    await brings()
    whole, living = await payers(store), costs._living
    added_up, gone = threading.Event(), threading.Event()

    def halts(*args: Any) -> Any:
        added_up.set()
        assert gone.wait(20)
        return living(*args)

    monkeypatch.setattr(costs, "_living", halts)
    asked = asyncio.create_task(payers(store))
    while not added_up.is_set():
        await asyncio.sleep(0.01)
    await store._commit.run(Change([InstanceChange(agent.id, InstanceEvent.GONE)], store._memory, clock))
    gone.set()
    assert await asked == whole
    assert (await payers(store)).keys() == whole.keys()
    await store.close()
    await reads.close()
