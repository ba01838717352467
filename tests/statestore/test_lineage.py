"""The database goes back to a moment of before while the dispatcher runs on it: nothing may follow there.

A failover to a replica that lagged, or a disk that is put back to a snapshot, is played by putting the rows back that
the tables had; the sessions live on. No real replica fails over here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.statestore import SqlStore, came_back, open_store, writer
from cloud_dispatch.statestore.batch import Batch, Statements, perform
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.lineage import COMMIT, FALLEN_BACK_FACT, AnotherPast
from cloud_dispatch.statestore.schema import counters, facts, metadata, owner, tasks
from cloud_dispatch.testing.store_builders import START_MS, Agent, ManualClock, adopted, result, spec
from tests.statestore.conftest import CountingEntropy, stores

_MARK = sa.select(facts.c.value).where(facts.c.name == FALLEN_BACK_FACT)


class Tables:
    """The rows of a database, from outside."""

    def __init__(self, url: str) -> None:
        self._engine = make_engine(parse_url(url))
        self._before: dict[sa.Table, list[dict[str, Any]]] = {}

    def remember(self) -> None:
        with self._engine.connect() as connection:
            self._before = {
                table: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
                for table in metadata.sorted_tables
                if table is not owner
            }

    def fall_back(self) -> None:
        with self._engine.begin() as connection:
            for table in reversed(self._before):
                connection.execute(sa.delete(table))
            for table, rows in self._before.items():
                if rows:
                    connection.execute(sa.insert(table), rows)

    def go_on(self) -> None:
        """Somebody else writes."""
        with self._engine.begin() as connection:
            commit = counters.c.name == COMMIT
            connection.execute(sa.update(counters).where(commit).values(value=counters.c.value + 1))

    def ask(self, query: sa.Select[Any]) -> Any:
        with self._engine.connect() as connection:
            return connection.scalar(query)

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"migrated_{request.param}_url"))


@pytest.fixture
def tables(url: str) -> Iterator[Tables]:
    made = Tables(url)
    yield made
    made.close()


@pytest.fixture
async def agent(url: str, tables: Tables) -> AsyncIterator[Agent]:
    """It has claimed two of four tasks and ended one, and a fifth task was submitted: three commits that are lost."""
    async with stores(url) as open_one:
        store = await open_one(ManualClock())
        await store.submit([spec() for _ in range(4)])
        made = await adopted(store)
        tables.remember()
        claims = await made.claim(2)
        await made.sync(result(claims[0]))
        await store.submit([spec()])
        yield made


def store_of(agent: Agent) -> SqlStore:
    assert isinstance(agent.store, SqlStore)
    return agent.store


async def test_nothing_follows_on_tables_that_have_fallen_back(agent: Agent, tables: Tables) -> None:
    """Rows would be changed that are not there, and the next start would hand out tokens twice. Each call says why, and
    changes neither the tables nor what the memory says."""
    tables.fall_back()
    store = store_of(agent)
    counts = dict(store.task_counts())
    answers = await asyncio.gather(
        store.submit([spec()]), store.submit([spec()]), store.set_fact("a", "b"), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [AnotherPast] * 3
    with pytest.raises(StoreUnavailable, match=r"its commit \d+, but not as this dispatcher left it after commit \d+"):
        await store.submit([spec()])
    assert (dict(store.task_counts()), "but not as this dispatcher left it" in store.trouble()) == (counts, True)
    assert tables.ask(sa.select(sa.func.count()).select_from(tasks)) == 4
    assert tables.ask(sa.select(facts.c.value).where(facts.c.name == "a")) is None


async def test_an_agent_keeps_what_it_runs_meanwhile(agent: Agent, tables: Tables) -> None:
    """What it holds is renewed from memory, as while a disk is full. It gets no more, and its results wait."""
    tables.fall_back()
    with pytest.raises(AnotherPast):
        await store_of(agent).submit([spec()])
    assert not (await agent.sync()).kill
    with pytest.raises(AnotherPast):
        await agent.claim(1)


async def test_no_dispatcher_starts_before_an_operator_knows(agent: Agent, tables: Tables, url: str) -> None:
    """A restart by itself would take the old rows for the truth. `db restored` says that they are what is left: tokens
    leap, and what was open counts as spent."""
    tables.fall_back()
    store = store_of(agent)
    with pytest.raises(AnotherPast):
        await store.submit([spec()])
    await store.close()
    with pytest.raises(AnotherPast, match=r"fallen back to its commit \d+ of \d+ .*db restored"):
        await open_store(url, clock=ManualClock(), entropy=CountingEntropy(), executor=Inline())
    looked_at = await open_store(url, clock=ManualClock(), entropy=CountingEntropy(), executor=Inline(), looking=True)
    assert [problem for problem in await looked_at.check() if "fallen back" in problem]
    await looked_at.close()
    newest = max(agent.holding.values(), key=lambda claim: claim.token).token
    came_back(url, now_ms=START_MS)
    async with stores(url) as open_again:
        agent.store = again = await open_again(ManualClock())
        assert (again.unsure_since(), again.task_counts()[TaskState.QUEUED]) == (START_MS, 4)
        assert await again.submit([spec()]) == [5]
        agent.holding.clear()
        assert (await agent.claim(1))[0].token > newest + 1_000_000
        assert await again.check() == []


async def test_who_had_nothing_to_write_leaves_the_mark_when_he_goes(agent: Agent, tables: Tables, url: str) -> None:
    """An upgrade soon after a failover: the old dispatcher has not met it, and the new one could not."""
    tables.fall_back()
    await store_of(agent).close()
    with pytest.raises(AnotherPast, match="fallen back"):
        await open_store(url, clock=ManualClock(), entropy=CountingEntropy(), executor=Inline())


async def test_tables_that_somebody_else_has_written_are_left_as_they_are(agent: Agent, tables: Tables) -> None:
    """They are newer, not older: this process keeps out, and who starts on them may."""
    tables.go_on()
    for _ in range(2):
        with pytest.raises(AnotherPast):
            await store_of(agent).submit([spec()])
    assert tables.ask(_MARK) is None


@pytest.mark.parametrize("reachable", [True, False], ids=["looked up at once", "looked up later"])
async def test_a_failover_in_the_middle_of_a_commit(
    agent: Agent, tables: Tables, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    """The answer of a commit is lost, and the database that answers next is an older one: then neither that commit nor
    the memory that it would be loaded into is what the tables say."""
    store = store_of(agent)

    def loses(connection: Connection, statements: Statements, rows: Batch) -> dict[int, bytes]:
        perform(connection, statements, rows)
        tables.fall_back()
        raise OSError(5, "planted")

    def gone(_engine: object) -> Connection:
        raise StoreUnavailable("planted")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "perform", loses)
        if not reachable:
            patch.setattr(store._lock, "connect", gone)
        with pytest.raises(StoreUnavailable) as first:
            await store.submit([spec()])
    assert isinstance(first.value, AnotherPast) is reachable
    held = dict(store.leases_of(agent.id))
    for _ in range(2):
        with pytest.raises(AnotherPast):
            await store.submit([spec()])
    assert (tables.ask(_MARK) is not None, dict(store.leases_of(agent.id))) == (True, held)


@pytest.mark.parametrize("name", ["store.db", "store.db.lock"])
async def test_files_that_are_moved_under_a_dispatcher(migrated_sqlite_url: str, tmp_path: Path, name: str) -> None:
    """What is written to a file without a name is lost with it; a lock without one keeps nobody out. Put back, it goes
    on."""
    file, aside = tmp_path / name, tmp_path / "aside"
    async with stores(migrated_sqlite_url) as open_one:
        store = await open_one(ManualClock())
        await store.submit([spec()])
        file.rename(aside)
        with pytest.raises(StoreUnavailable, match=f"{name} is not there any more"):
            await store.submit([spec()])
        with pytest.raises(StoreUnavailable, match=f"{name} is not there any more"):
            await asyncio.gather(*[store.tasks(TaskFilter()) for _ in range(3)])
        assert not file.exists(), "nobody has made an empty one in its place"
        file.touch()
        with pytest.raises(StoreUnavailable, match=f"{name} is another file"):
            await store.submit([spec()])
        aside.rename(file)
        assert await store.submit([spec()]) == [2]
        assert await store.check() == []
