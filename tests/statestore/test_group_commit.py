"""Group commit: one transaction for many calls, and a failure that stays with the call that made it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import event, insert, select
from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import NotFound, StoreUnavailable
from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState, LaunchIntent
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import InstanceChange, SyncCall, Target, TaskFilter
from cloud_dispatch.statestore import SqlStore, batch, commit, writer
from cloud_dispatch.statestore.batch import Batch, Statements
from cloud_dispatch.statestore.schema import facts, tasks
from cloud_dispatch.testing.store_builders import Agent, ManualClock, instance, result, spec
from tests.statestore.conftest import stores


@pytest.fixture
async def store(migrated_sqlite_url: str) -> AsyncIterator[SqlStore]:
    async with stores(migrated_sqlite_url) as open_one:
        yield await open_one(ManualClock())  # type: ignore[misc]


class Planted:
    """A call whose row breaks the database's rules, or that breaks by itself after it has moved."""

    reads = False

    def __init__(self, task: int, *, bug: bool = False) -> None:
        self._task = task
        self._bug = bug

    def prepare(self, connection: Connection) -> None:
        """Reads nothing."""

    def plan(self, batch: Batch) -> None:
        lot = batch.memory.dequeue(self._task)
        if self._bug:
            raise ZeroDivisionError("planted")
        batch.task_ended(self._task, TaskState.FAILED, lot.attempts, 1)
        batch.memory.counts[TaskState.FAILED] += 1
        batch.write(insert(facts), {"name": "store-id", "value": "twice"})

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None


class TooLarge(Planted):
    """A call whose row no driver takes, with an error that is not the database's."""

    def plan(self, batch: Batch) -> None:
        batch.memory.dequeue(self._task)
        batch.task_ended(self._task, TaskState.FAILED, 2**70, 1)


def commits(store: SqlStore) -> list[int]:
    """A list that grows with every transaction of the store."""
    seen: list[int] = []
    perform = store._writer.perform

    def counted(batch: Batch) -> dict[int, bytes]:
        seen.append(1)
        return perform(batch)

    store._writer.perform = counted  # type: ignore[method-assign]
    return seen


async def test_concurrent_calls_share_a_commit(store: SqlStore) -> None:
    """Fifty calls at once cost far fewer commits than fifty."""
    seen = commits(store)
    await asyncio.gather(*[store.submit([spec()]) for _ in range(50)])
    assert len(seen) <= 2
    assert store.task_counts()[TaskState.QUEUED] == 50


async def test_a_bug_in_the_middle_of_a_transaction_leaves_none_open(store: SqlStore) -> None:
    """The connection goes on, as if nothing had been written."""
    (task,) = await store.submit([spec()])
    with pytest.raises(OverflowError):
        await store._commit.run(TooLarge(task))
    await store.submit([spec()])
    assert store.task_counts()[TaskState.QUEUED] == 2
    assert await store.check() == []


async def test_a_call_without_news_writes_nothing(store: SqlStore) -> None:
    """A heartbeat with nothing to say costs no transaction."""
    await store.submit([spec()])
    await store.adopt(own := instance())
    agent = Agent(store, own)
    (claim,) = await agent.claim()
    agent.runs(claim)
    await agent.sync()
    seen = commits(store)
    for _ in range(3):
        await agent.sync(want=1)
    assert seen == []


async def started(store: SqlStore, name: str = "batch") -> Agent:
    """An agent whose one task has started, as it has just told."""
    await store.submit([spec()])
    await store.adopt(own := instance(name))
    agent = Agent(store, own)
    (claim,) = await agent.claim()
    agent.runs(claim)
    await agent.sync()
    return agent


def stored_state(store: SqlStore) -> str:
    with store._engine.connect() as connection:
        return str(connection.scalar(select(tasks.c.state).where(tasks.c.id == 1)))


async def test_a_start_shares_the_next_commit(store: SqlStore) -> None:
    """It costs none of its own, and who counts tasks knows of it at once."""
    await started(store)
    before = store._memory.commits
    assert store.task_counts()[TaskState.RUNNING] == 1
    assert stored_state(store) == "claimed"
    await store.submit([spec()])
    assert stored_state(store) == "running"
    assert store._memory.commits == before + 1
    assert await store.check() == []


async def test_a_start_alone_is_written_soon(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "WRITE_SOON_S", 0.5)
    await started(store)
    assert stored_state(store) == "claimed"
    async with asyncio.timeout(10):
        while stored_state(store) != "running":
            await asyncio.sleep(0.01)


async def test_readers_find_a_start_in_the_tables(store: SqlStore) -> None:
    """By id, in lists by state and in counts by filter."""
    await started(store)
    assert (await store.task(TaskId(1))).state is TaskState.RUNNING
    await started(store, "other")
    assert [task.id for task in await store.tasks(TaskFilter(states=frozenset({TaskState.RUNNING})))] == [1, 2]


async def test_a_start_outlives_a_failed_commit_and_is_there_after_a_close(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' failure takes nothing back of it."""
    async with stores(sqlite_url) as open_one:
        store = await open_one(ManualClock())  # type: ignore[misc]
        await started(store)
        with pytest.raises(StoreUnavailable):
            await failing(store, monkeypatch)
        assert store.task_counts()[TaskState.RUNNING] == 1
        assert stored_state(store) == "claimed"
        await store.close()
        again = await open_one(ManualClock())  # type: ignore[misc]
        assert (await again.task(TaskId(1))).state is TaskState.RUNNING


async def failing(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission whose transaction fails."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(batch, "_write_hot", full)
        await store.submit([spec()])


@pytest.mark.parametrize("bug", [False, True])
async def test_a_failing_call_does_not_fail_its_group(store: SqlStore, bug: bool) -> None:
    """The planted one gets its error, the others of its group succeed, and memory and tables agree."""
    await store.submit([spec() for _ in range(6)])
    await store.adopt(own := instance())
    commits_before = store._memory.commits
    answers = await asyncio.gather(
        store.sync(SyncCall(own.id, 1, want=2)),
        store._commit.run(Planted(6, bug=bug)),
        store.submit([spec(cpus_milli=7)]),
        store.sync(SyncCall(InstanceId("none-0"), 1)),
        return_exceptions=True,
    )
    assert store._memory.commits == commits_before + 2  # the two that write, each alone
    done, planted, ids, unknown = answers
    assert not isinstance(done, BaseException)
    assert [claim.task for claim in done.claims] == [1, 2]
    assert isinstance(planted, ZeroDivisionError if bug else StoreUnavailable)
    assert ids == [7]
    assert isinstance(unknown, NotFound)
    assert (await store.task(TaskId(6))).state is TaskState.QUEUED
    assert store.task_counts()[TaskState.FAILED] == 0
    assert await store.check() == []


async def test_a_failed_commit_takes_every_move_back(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing can be committed, every call fails, and memory is what it was: leases, queue, counts, instances."""
    await store.submit([spec() for _ in range(8)])
    await store.adopt(own := instance())
    agent = Agent(store, own)
    claims = await agent.claim(3)
    agent.runs(claims[0])
    await agent.sync()
    heard: list[int] = []
    store.subscribe(lambda shape, count: heard.append(count))
    before = (store.task_counts(), store.leases_of(own.id), store.load_of(own.id), store.waiting(), store.instances())

    def fails(batch: Batch) -> dict[int, bytes]:
        raise OSError(5, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "perform", fails)
        answers = await asyncio.gather(
            store.sync(SyncCall(own.id, 3, (), (result(claims[1]),), want=3)),
            store.submit([spec(), spec(cpus_milli=9)]),
            store.cancel(TaskFilter(ids=(TaskId(7), claims[0].task))),
            store.prioritise(TaskId(8), 5),
            store.change([InstanceChange(own.id, InstanceEvent.TERMINATE)]),
            store.set_target(Target(own.pool, "rest", 1)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 6
    after = (store.task_counts(), store.leases_of(own.id), store.load_of(own.id), store.waiting(), store.instances())
    assert after == before
    assert (heard, list(store.targets())) == ([], [])
    assert await store.check() == []
    assert await store.submit([spec()]) == [9]


class LostAnswer:
    """A writer's `perform` whose commits lose their answer: before or after they landed, or with the database gone."""

    def __init__(self, store: SqlStore, *, lands: bool) -> None:
        self.real = batch.perform
        self.lands = lands
        self.left = 1
        self.store = store

    def __call__(self, connection: Connection, statements: Statements, rows: Batch) -> dict[int, bytes]:
        if not self.left:
            return self.real(connection, statements, rows)
        self.left -= 1
        if self.lands:
            self.real(connection, statements, rows)
        raise OSError(5, "planted")


def gone(_engine: Engine) -> Connection:
    """A database that can't be reached."""
    raise StoreUnavailable("planted")


@pytest.mark.parametrize("lands", [False, True])
async def test_a_lost_answer_of_a_commit_is_looked_up(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    """Whether the commit landed or not, the call is carried out once and answered as if nothing had happened."""
    await store.submit([spec() for _ in range(4)])
    await store.adopt(own := instance())
    monkeypatch.setattr(writer, "perform", LostAnswer(store, lands=lands))
    done, ids = await asyncio.gather(store.sync(SyncCall(own.id, 1, want=2)), store.submit([spec()]))
    assert [claim.task for claim in done.claims] == [1, 2]
    assert all(claim.spec for claim in done.claims)
    assert (ids, store.task_counts()[TaskState.QUEUED]) == ([5], 3)
    assert await store.check() == []


@pytest.mark.parametrize("lands", [False, True])
async def test_a_commit_in_doubt_is_settled_before_the_next_one(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    """While nobody can tell whether it landed, calls are refused; then the memory is what the tables say."""
    await store.submit([spec() for _ in range(4)])
    await store.adopt(own := instance())
    with monkeypatch.context() as patch:
        patch.setattr(writer, "perform", LostAnswer(store, lands=lands))
        patch.setattr(store._lock, "connect", gone)
        with pytest.raises(StoreUnavailable, match="in the middle of a commit"):
            await store.sync(SyncCall(own.id, 1, want=2))
        with pytest.raises(StoreUnavailable):
            await store.submit([spec()])
    assert await store.submit([spec()]) == [5]
    assert len(store.leases_of(own.id)) == (2 if lands else 0)
    assert await store.check() == []


async def test_what_became_of_a_commit_is_found_out_though_nobody_calls(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle dispatcher may have nothing to write for long; who reads its memory shall not wait for that."""
    monkeypatch.setattr("cloud_dispatch.statestore.store.TRY_S", 0.01)
    await store.submit([spec()])
    mending = asyncio.create_task(store.mend())
    with monkeypatch.context() as patch:
        patch.setattr(writer, "perform", LostAnswer(store, lands=True))
        patch.setattr(store._lock, "connect", gone)
        with pytest.raises(StoreUnavailable, match="in the middle of a commit"):
            await store.submit([spec()])
        await asyncio.sleep(0.05)
        assert (store.trouble() != "", store.task_counts()[TaskState.QUEUED]) == (True, 1)
    async with asyncio.timeout(10):
        while store.trouble():
            await asyncio.sleep(0.01)
    assert store.task_counts()[TaskState.QUEUED] == 2
    mending.cancel()


async def test_instances_change_for_readers_only_after_the_commit(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can see an instance as terminating that might not become so."""
    await store.adopt(own := instance())
    seen: list[InstanceState] = []
    real = store._writer.perform

    def watches(batch: Batch) -> dict[int, bytes]:
        seen.append(store.instances()[own.id].state)
        return real(batch)

    monkeypatch.setattr(store._writer, "perform", watches)
    await store.change([InstanceChange(own.id, InstanceEvent.TERMINATE)])
    assert seen == [InstanceState.IDLE]
    assert store.instances()[own.id].state is InstanceState.TERMINATING


async def test_calls_beyond_the_bound_are_refused(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of calls that only grows is no queue: beyond the bound the caller hears it at once."""
    monkeypatch.setattr(commit, "MAX_WAITING", 3)
    answers = await asyncio.gather(*[store.submit([spec()]) for _ in range(5)], return_exceptions=True)
    assert sum(isinstance(answer, list) for answer in answers) == 3
    assert sum(getattr(answer, "code", "") == "overloaded" for answer in answers) == 2


async def test_a_caller_that_gives_up_leaves_the_store_whole(store: SqlStore) -> None:
    """A cancelled call may be committed or not; the others of its group are answered."""
    first = asyncio.create_task(store.submit([spec()]))
    second = asyncio.create_task(store.submit([spec()]))
    await asyncio.sleep(0)
    first.cancel()
    assert len(await second) == 1
    assert await store.check() == []


async def test_a_task_that_somebody_waits_for_is_submitted_and_claimed_by_one_commit(store: SqlStore) -> None:
    """The early listener's claim joins the transaction of the submission, and gets the task's specification from it."""
    await store.adopt(own := instance())
    agent = Agent(store, own)
    claiming: list[asyncio.Task[list[object]]] = []
    store.subscribe(lambda shape, count: claiming.append(asyncio.create_task(agent.claim())), early=True)  # type: ignore[arg-type]
    seen = commits(store)
    (task,) = await store.submit([spec()])
    (claim,) = await claiming[0]
    assert (claim.task, len(claiming), len(seen)) == (task, 1, 1)  # type: ignore[attr-defined]
    assert await store.check() == []


async def test_what_joined_a_commit_that_fails_is_tried_again_alone(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission that can't be written fails alone; the claim that was drawn by it finds what else there is."""
    (first,) = await store.submit([spec()])
    await store.adopt(own := instance())
    agent = Agent(store, own)
    claiming: list[asyncio.Task[list[object]]] = []
    store.subscribe(lambda shape, count: claiming.append(asyncio.create_task(agent.claim())), early=True)  # type: ignore[arg-type]
    perform = batch.perform

    def failing(connection: Connection, statements: Statements, rows: Batch) -> dict[int, bytes]:
        if rows.new_tasks:
            raise OSError("planted")
        return perform(connection, statements, rows)

    monkeypatch.setattr(writer, "perform", failing)
    with pytest.raises(StoreUnavailable):
        await store.submit([spec()])
    (claim,) = await claiming[0]
    assert claim.task == first  # type: ignore[attr-defined]
    assert await store.check() == []


async def test_early_listeners_hear_of_what_joined_calls_put_back(store: SqlStore) -> None:
    """What only the joined calls queue is announced after the commit: each task is announced once."""
    await store.adopt(own := instance())
    agent = Agent(store, own)
    await store.submit([spec()])
    assert len(await agent.claim()) == 1
    heard: list[int] = []

    def listener(shape: object, count: int) -> None:
        heard.append(count)
        if len(heard) == 1:
            agent.holding.clear()
            returning.append(asyncio.create_task(agent.sync()))  # lacks what it holds: it goes back

    returning: list[asyncio.Task[object]] = []
    store.subscribe(listener, early=True)
    await store.submit([spec(), spec()])
    await returning[0]
    assert heard == [2, 1]


async def test_many_changed_instances_are_one_statement_and_leave_the_loop_its_turn(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 rows: one call of the database, off the loop, which has a turn between the calls that share the commit."""
    for number in range(3):
        slots = [instance(f"b{number}", slot, state=InstanceState.INTENDED) for slot in range(100)]
        await store.intend(LaunchIntent(slots[0].batch, slots[0].pool, "local/t/z/spot", 100, 0, "test"), slots)
    written: list[int] = []
    off_the_loop: list[object] = []
    turns: list[int] = []

    def executed(connection: Connection, cursor: object, text: str, rows: Sequence[object], *_: object) -> None:
        if text.startswith("UPDATE instances"):
            written.append(len(rows))

    async def run_long(work: Callable[..., object], *args: object) -> object:
        off_the_loop.append(work)
        return work(*args)

    def turn() -> None:
        if not written:
            turns.append(1)
            asyncio.get_running_loop().call_soon(turn)

    monkeypatch.setattr(store._executor, "run_long", run_long)
    event.listen(store._engine, "before_cursor_execute", executed)
    changes = [[InstanceChange(name, InstanceEvent.LAUNCH) for name in store.instances() if name[:2] == of]
               for of in ("b0", "b1", "b2")]  # fmt: skip
    planned = store._commit._plan
    before: list[int] = []

    async def planning(*args: Any) -> None:
        before.append(len(turns))
        await planned(*args)
        before.append(len(turns))

    monkeypatch.setattr(store._commit, "_plan", planning)
    turn()
    await asyncio.gather(*map(store.change, changes))
    assert written == [300]
    assert len(off_the_loop) == 1
    assert before[1] - before[0] >= 2
    assert {row.state for row in store.instances().values()} == {InstanceState.LAUNCHING}
