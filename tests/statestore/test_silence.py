"""A PostgreSQL that says nothing any more, though its connections stay open: a real one, halted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from cloud_dispatch.adapters.executors import Adaptive, Inline, Thread
from cloud_dispatch.bootstrap import _commit_executor
from cloud_dispatch.config import Embedded, load
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from cloud_dispatch.statestore import SqlStore, describe_owner, patience, reader
from cloud_dispatch.statestore.engine import Unanswered, at_length, make_engine, parse_url
from cloud_dispatch.statestore.migrate import migrating
from cloud_dispatch.statestore.patience import PatientConnection
from cloud_dispatch.testing.store_builders import ManualClock, spec
from tests.statestore import rotating
from tests.statestore.conftest import stores
from tests.statestore.rotating import Database

pytestmark = pytest.mark.process
HOURLY = Budget(EVERYTHING, Window.HOUR, Amount(10**9))


@pytest.fixture
def database() -> Iterator[Database]:
    with rotating.database() as made:
        yield made


@pytest.fixture
async def store(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqlStore]:
    """On a thread, as a dispatcher has it; soon out of patience."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    monkeypatch.setattr(reader, "PATIENCE_S", 0.5)
    monkeypatch.setitem(patience._PARAMETERS, "connect_timeout", 2)
    async with stores(database.said, lambda: Thread("commit")) as open_one:
        made = await open_one(ManualClock())
        await made.submit([spec()])
        yield made
        database.resume()


def connections_of(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows with every connection that is asked for."""
    seen: list[object] = []
    real = PatientConnection.connect

    def counted(*args: object, **more: object) -> object:
        seen.append(args)
        return real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(PatientConnection, "connect", counted)
    return seen


async def test_a_commit_without_an_answer_is_in_doubt_and_looked_up_later(store: SqlStore, database: Database) -> None:
    """Who called hears that nobody answers, and that it may have been committed; and so does whoever looks how the
    store is. The rest hears of it as well, until the database is heard again: then memory and tables say the same."""
    database.halt()
    with pytest.raises(Unanswered, match="in the middle of a commit") as told:
        await store.submit([spec()])
    assert "whether this call was committed is not known" in told.value.hint
    assert "does not answer" in store.trouble()
    with pytest.raises(Unanswered, match="does not answer"):
        await store.submit([spec()])
    with pytest.raises(Unanswered, match="does not answer"):
        await store.tasks(TaskFilter())
    database.resume()
    (last,) = await store.submit([spec()])
    assert store.trouble() == ""
    assert last in (2, 3)  # the one in doubt is there, or is not
    assert [task.id for task in await store.tasks(TaskFilter())] == list(range(1, last + 1))
    assert store.task_counts()[TaskState.QUEUED] == last
    assert await store.check() == []


async def test_a_group_waits_for_nobody_once(
    store: SqlStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where calls have to read before they write, none is in doubt; but each of them waiting for itself, one after the
    other, would be minutes for the last."""
    database.halt()
    seen = connections_of(monkeypatch)
    calls = [store.submit([spec(idempotency_key=str(number))]) for number in range(20)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unanswered}
    assert all("this call changed nothing" in str(answer) for answer in answers)
    assert len(seen) <= 1
    database.resume()
    assert await store.submit([spec(idempotency_key="0")]) == [2]


async def test_a_store_is_closed_though_nobody_answers(store: SqlStore, database: Database) -> None:
    database.halt()
    await store.close()


async def test_a_command_hears_that_nobody_answers(store: SqlStore, database: Database) -> None:
    database.halt()
    with pytest.raises(Unanswered, match="it took no connection in time"):
        describe_owner(database.said)


def test_what_is_known_to_take_long_is_waited_for(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """And afterwards the connection is as before."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    engine = make_engine(parse_url(database.said))
    with engine.connect() as connection:
        with at_length(connection):
            connection.exec_driver_sql("SELECT pg_sleep(1.5)")
        with pytest.raises(Exception, match=r"nothing was heard for 0\.5 s"):
            connection.exec_driver_sql("SELECT pg_sleep(1.5)")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


@pytest.mark.parametrize(
    ("table", "call"),
    [
        ("tasks", lambda store: store.cancel(TaskFilter(name="none"))),
        ("ledger", lambda store: store.set_limits([HOURLY], {})),
    ],
    ids=["a cancellation", "a limit"],
)
async def test_calls_that_go_through_many_rows_are_waited_for(
    store: SqlStore, database: Database, table: str, call: Callable[[SqlStore], Awaitable[object]]
) -> None:
    """Nobody else's call fails by them, either: they share the session, and mostly the transaction. Here the rows are
    kept by somebody else for a while."""
    with database.admin.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        called = asyncio.gather(call(store), store.set_fact("a", "b"))
        await asyncio.sleep(1.5)
        connection.exec_driver_sql("COMMIT")
    await called
    assert store.trouble() == ""


def test_the_commit_of_what_takes_long_is_waited_for(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has restored a large store must not hear that nothing was done."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    engine = make_engine(parse_url(database.said))
    with migrating(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE t (id integer)")
        connection.exec_driver_sql(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql"
            " AS $$BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END$$"
        )
        connection.exec_driver_sql(
            "CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION wait()"
        )
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 1
    engine.dispose()


def test_what_the_url_says_of_a_connection_holds(database: Database) -> None:
    """The rest is as it is for every connection."""
    url = f"{database.said}{'&' if '?' in database.said else '?'}keepalives_idle=77"
    engine = make_engine(parse_url(url))
    with engine.connect() as connection:
        made = connection.connection.driver_connection
        assert isinstance(made, PatientConnection)
        told = made.info.get_parameters()
    engine.dispose()
    assert (told["keepalives_idle"], told["tcp_user_timeout"]) == ("77", "30000")


@pytest.mark.parametrize(
    ("commit", "file", "server"),
    [("auto", Adaptive, Thread), ("thread", Thread, Thread), ("inline", Inline, Inline)],
)
def test_the_loop_does_not_wait_for_a_server_by_itself(commit: str, file: type, server: type) -> None:
    """Commits to one are on a thread from the first: it falls silent without having been slow before."""
    config = load(Embedded({**Embedded().values, "store": {"commit": commit}}), plugin)
    assert isinstance(_commit_executor(config, "sqlite:////queue.db"), file)
    assert isinstance(_commit_executor(config, "postgresql://host/queue"), server)
