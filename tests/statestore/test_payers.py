"""Sums of payers in memory: what a failed commit takes back, and that a check finds what does not add up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.statestore import SqlStore, writer
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.payers import Payers
from cloud_dispatch.testing.store_builders import ManualClock, result, spec
from cloud_dispatch.testing.store_contract_payers import POOR, limited, machine, of, quarter, sound, stands
from tests.statestore.conftest import stores
from tests.statestore.test_group_commit import LostAnswer, gone

BUDGET = of(POOR, 10)


class Failing(Inline):
    """Commits fail while told so, as on a full disk."""

    fails = False

    async def run(self, function: Any, *args: Any) -> Any:
        if self.fails and args and isinstance(args[0], Batch):
            raise OSError("the disk is full")
        return await super().run(function, *args)


async def test_a_commit_that_fails_takes_claims_and_charges_back(sqlite_url: str) -> None:
    """What is committed and spent is as before, and what comes next is admitted as if nothing had been."""
    executor, clock = Failing(), ManualClock()
    async with stores(sqlite_url, lambda: executor) as open_one:
        store = await open_one(clock)
        await limited(store, BUDGET)
        await store.submit([quarter() for _ in range(4)])
        agent = await machine(store)
        (first,) = await agent.claim(1)
        before = stands(store, BUDGET)
        clock.now_ms += HOUR_MS // 4
        executor.fails = True
        with pytest.raises(StoreUnavailable, match="full"):
            await agent.sync(result(first), want=3)
        executor.fails = False
        assert stands(store, BUDGET) == before
        await sound(store)
        assert len((await agent.sync(result(first), want=3)).claims) == 3
        assert stands(store, BUDGET)[0] == 62_500
        await sound(store)


async def test_a_check_finds_what_does_not_add_up(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())
        await limited(store, BUDGET)
        await store.submit([quarter()])
        agent = await machine(store)
        (claim,) = await agent.claim(1)
        taken = Payers.take

        def forgets(self: Payers, task: int) -> Any:
            paid = taken(self, task)
            self._standing.add(paid.commitment)
            return paid

        monkeypatch.setattr(Payers, "take", forgets)
        await agent.sync(result(claim))
        assert "what claims may cost their payers does not add up" in await store.check()


async def test_lines_are_the_same_for_equal_payers(sqlite_url: str) -> None:
    """However often they are asked for; a shape of their own each."""
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())
        await limited(store, BUDGET)
        await store.submit([quarter(), quarter(), quarter(user="ann"), quarter("rich"), quarter(cpus_milli=500)])
        assert sorted((str(one.payer), one.count) for one in store.waiting()) == [
            ("", 1), ("project poor", 1), ("project poor", 2), ("project poor, user ann", 1),
        ]  # fmt: skip
        assert isinstance(store, SqlStore)
        memory = store._memory
        assert memory.line_of(1, Payer("poor")) == memory.line_of(1, Payer("poor")) < 0
        assert memory.line_of(1, Payer("rich")) == 1


async def test_a_submission_that_fails_leaves_no_line_behind(sqlite_url: str) -> None:
    """Neither is the number of the next shape reckoned from it, nor do tasks of another shape come to wait in it."""
    executor = Failing()
    async with stores(sqlite_url, lambda: executor) as open_one:
        store = await open_one(ManualClock())
        await limited(store, BUDGET)
        for cpus_milli in (125, 250, 500):
            executor.fails = True
            with pytest.raises(StoreUnavailable, match="full"):
                await store.submit([quarter(cpus_milli=100_000), quarter(cpus_milli=cpus_milli)])
            executor.fails = False
            await store.submit([quarter(cpus_milli=cpus_milli)])
            await sound(store)
        assert [one.shape.resources.cpus_milli for one in store.waiting()] == [125, 250, 500]
        assert len(await (await machine(store)).claim(3)) == 3
        await sound(store)


async def test_what_machines_were_asked_of_a_refused_shape_is_no_answer_for_the_next(sqlite_url: str) -> None:
    """Who claims in the group of a submission that fails has looked whether the machine can run it."""
    executor = Failing()
    async with stores(sqlite_url, lambda: executor) as open_one:
        store = await open_one(ManualClock())
        agent = await machine(store)
        executor.fails = True
        refused = spec(labels=(("disk", "fast"),))
        answers = await asyncio.gather(store.submit([refused]), agent.sync(want=1), return_exceptions=True)
        assert isinstance(answers[0], StoreUnavailable)
        executor.fails = False
        await store.submit([spec()])
        assert len(await agent.claim(1)) == 1
        await sound(store)


@pytest.mark.parametrize("where", ["machine", "line"])
async def test_a_check_finds_what_is_remembered_of_another_shape(sqlite_url: str, where: str) -> None:
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())
        await limited(store, BUDGET)
        await store.submit([quarter(), spec()])
        agent = await machine(store)
        await agent.claim(1)
        assert isinstance(store, SqlStore)
        memory = store._memory
        if where == "machine":
            (number,) = [number for number in memory.seats[agent.id].misfits if number > 0]
            memory.seats[agent.id].misfits[number] = True
        else:
            memory.shapes[memory.line_of(1, Payer("poor"))] = spec(cpus_milli=7).shape
        assert (
            "what is remembered of a shape, of a machine or a payer's line, is not of that shape" in await store.check()
        )


async def test_what_is_withheld_stays_so_when_the_tables_are_read_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables do not know it, and nobody says it again before the next pass."""
    async with stores(sqlite_url, Inline) as open_one:
        store = await open_one(ManualClock())
        await limited(store, BUDGET)
        await store.submit([quarter()])
        store.withhold({POOR: "nearly spent"})
        agent = await machine(store)
        with monkeypatch.context() as patch:
            patch.setattr(writer, "perform", LostAnswer(store, lands=True))
            patch.setattr(store._lock, "connect", gone)
            with pytest.raises(StoreUnavailable, match="in the middle of a commit"):
                await store.submit([quarter()])
        assert await store.submit([quarter()]) == [3]
        assert not await agent.claim(1)
