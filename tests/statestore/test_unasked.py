"""Shapes that are forgotten: what is remembered of them goes, and what fails is as if it had not been tried."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.ports.store import InstanceChange, Retention, TaskFilter
from cloud_dispatch.spend.costs import CostKey, CostQuery
from cloud_dispatch.statestore import costs
from cloud_dispatch.statestore.engine import to_read
from cloud_dispatch.statestore.schema import tasks
from cloud_dispatch.statestore.seats import Seat
from cloud_dispatch.statestore.unasked import Forget
from cloud_dispatch.testing.store_builders import Agent, ManualClock, instance, result, spec
from cloud_dispatch.testing.store_contract_payers import POOR, limited, machine, of
from tests.statestore.conftest import stores
from tests.statestore.test_payers import Failing

KEEP = Retention(tasks_ms=1_000)


async def test_nothing_is_left_in_memory_of_a_shape_that_is_forgotten(migrated_sqlite_url: str) -> None:
    """Neither how long its tasks ran, nor on which machine they fit, nor the line of a payer with a limit and what was
    refused of it; and the number of that line is not given again."""
    clock = ManualClock()
    async with stores(migrated_sqlite_url) as open_one:
        store: Any = await open_one(clock)
        await limited(store, of(POOR, 5))
        stays, memory = await machine(store, "stays", hours=400 * 24), store._memory

        def sizes() -> list[int]:
            kept = (memory.shapes, memory.shape_numbers, memory._lines, memory._ran, memory._told)
            here = memory.seats[stays.id]
            return [len(one) for one in (*kept, here.misfits, here.giving, here.refused, memory.payers._refused)]

        async def work(memory_gib: int) -> list[int]:
            """Of a shape that `stays` can't run, and of one that it may not, for want of money."""
            wanted = ((9_000, "poor", 1), (9_000, "", 1), (500, "poor", 10 * HOUR_MS))
            await store.submit(
                [
                    spec(memory=memory_gib * GIB, cpus_milli=cpus, project=project, expected_runtime_ms=ms)
                    for cpus, project, ms in wanted
                ]
            )
            other = await machine(store, f"other-{memory_gib}", cpus=32, hours=1)
            assert (await stays.sync(want=4, ahead=1)).claims == ()
            claims = await other.claim(2)
            assert len(claims) == 2
            clock.now_ms += 1_000
            await other.sync(*map(result, claims))
            await store.cancel(TaskFilter(project="poor"))
            await store.change([InstanceChange(other.id, InstanceEvent.GONE)])
            return sizes()

        before = sizes()
        filled = await work(3)
        assert all(after > before for after, before in zip(filled[:6], before[:6], strict=True))
        assert filled[7:] == [1, 1]
        lines = set(memory._lines.values())
        clock.now_ms += 2_000
        assert [(await store.prune(clock.now_ms, KEEP))["shapes"] for _ in range(2)] == [0, 2]
        assert sizes() == before
        assert await store.check() == []
        assert await work(5) == filled
        assert lines.isdisjoint(memory._lines.values())
        assert await store.check() == []


@pytest.mark.parametrize(("most", "longest"), [(16, 8), (1, 2)])
async def test_shapes_are_forgotten_in_pieces(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, most: int, longest: int
) -> None:
    """Two machines, twelve shapes, and of half of them a line of a payer with a limit: only so many numbers are looked
    for at all machines in one go, and those of one shape where that is more. None is left over."""
    clock, forget = ManualClock(), Seat.forget
    pieces: list[int] = []

    def counted(seat: Seat, lines: AbstractSet[int]) -> None:
        pieces.append(len(lines))
        forget(seat, lines)

    monkeypatch.setattr("cloud_dispatch.statestore.memory.FORGOTTEN_AT_ONCE", most)
    monkeypatch.setattr(Seat, "forget", counted)
    async with stores(migrated_sqlite_url) as open_one:
        store: Any = await open_one(clock)
        await limited(store, of(POOR, 5))
        for name in ("one", "another"):
            await machine(store, name)
        wanted = [(size, project) for size in range(1, 13) for project in ("", "poor") if size % 2 or not project]
        ids = await store.submit([spec(memory=size * GIB, project=project) for size, project in wanted])
        await store.cancel(TaskFilter(ids=tuple(ids)))
        clock.now_ms += 2_000
        assert [(await store.prune(clock.now_ms, KEEP))["shapes"] for _ in range(2)] == [0, 12]
        assert (store._memory.shapes, store._memory._lines) == ({}, {})
        assert sum(pieces) == 2 * len(wanted)
        assert max(pieces) <= longest
        assert await store.check() == []


async def test_a_commit_that_fails_forgets_nothing(migrated_sqlite_url: str) -> None:
    executor, clock = Failing(), ManualClock()
    async with stores(migrated_sqlite_url, lambda: executor) as open_one:
        store: Any = await open_one(clock)
        await limited(store, of(POOR, 5))
        (task,) = await store.submit([spec(project="poor")])
        await store.cancel(TaskFilter(ids=(task,)))
        clock.now_ms += 2_000
        await store.prune(clock.now_ms, KEEP)
        shapes, lines = dict(store._memory.shapes), dict(store._memory._lines)
        executor.fails = True
        with pytest.raises(StoreUnavailable, match="full"):
            await store.prune(clock.now_ms, KEEP)
        executor.fails = False
        assert (store._memory.shapes, store._memory._lines) == (shapes, lines)
        assert store._memory.shape_numbers[spec().shape] in shapes
        assert await store.check() == []
        assert (await store.prune(clock.now_ms, KEEP))["shapes"] == 1
        assert await store.check() == []


@pytest.mark.parametrize("first", [True, False])
async def test_a_shape_may_be_asked_for_in_the_commit_that_forgets_it(migrated_sqlite_url: str, first: bool) -> None:
    """Before it is forgotten, or after; and who found it twice forgets it once."""
    clock = ManualClock()
    async with stores(migrated_sqlite_url) as open_one:
        store: Any = await open_one(clock)
        for task in await store.submit([spec()]):
            await store.cancel(TaskFilter(ids=(task,)))
        clock.now_ms += 2_000
        await store.prune(clock.now_ms, KEEP)
        number = store._memory.shape_numbers[spec().shape]
        calls = [store.submit([spec(idempotency_key="k")]), store._commit.run(Forget([number]))]
        commits = store._memory.commits
        answers = await asyncio.gather(*(calls if first else calls[::-1]))
        forgotten = answers[1 if first else 0]
        again = await store._commit.run(Forget([number]))
        assert (store._memory.commits - commits, forgotten, again) == (1, 0 if first else 1, 0)
        assert [one.shape for one in store.waiting()] == [spec().shape]
        assert await store.check() == []


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_who_reads_costs_meanwhile_finds_the_shape(database: str, request: pytest.FixtureRequest) -> None:
    """A question sees tasks as they were when it began, with shapes that the memory has forgotten since."""
    clock, query = ManualClock(), CostQuery((CostKey.TASK,))
    async with stores(request.getfixturevalue(f"migrated_{database}_url")) as open_one:
        store: Any = await open_one(clock)
        await store.submit([spec()])
        now = clock.now_ms
        own = replace(instance("gone"), launched_ms=now, registered_ms=now, ends_ms=now + 2 * HOUR_MS)
        await store.adopt(own)
        gone = Agent(store, own)
        (claimed,) = await gone.claim()
        clock.now_ms += HOUR_MS
        await gone.sync(result(claimed, ran_ms=HOUR_MS))
        await store.change([InstanceChange(gone.id, InstanceEvent.GONE)])
        before, of_task = await store.costs_by_task(query), await store.cost_of_task(claimed.task)
        assert [row.keys for row in before.rows] == [(claimed.task,)]
        clock.now_ms += 2_000
        with to_read(store._engine) as reading, reading.begin():
            assert reading.scalar(sa.select(sa.func.count()).select_from(tasks)) == 1
            present = store._present()
            assert [(await store.prune(clock.now_ms, KEEP))["shapes"] for _ in range(2)] == [0, 1]
            assert costs.ByTask().page(reading, query, present, None, 10) == before
            assert costs.of_task(reading, claimed.task, present) == of_task
