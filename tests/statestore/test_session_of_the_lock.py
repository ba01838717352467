"""PostgreSQL loses the session of the lock: the store goes on, unless somebody else had it meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import Conflict, StoreUnavailable
from cloud_dispatch.statestore import SqlStore, came_back, describe_owner
from cloud_dispatch.statestore.lineage import COMMIT, AnotherPast
from cloud_dispatch.statestore.schema import counters, owner
from cloud_dispatch.testing.store_builders import START_MS, ManualClock, spec
from tests.statestore.conftest import stores


@pytest.fixture
def admin(postgres_url: str) -> Iterator[sa.Connection]:
    """Somebody with rights on the store's database."""
    engine = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[SqlStore]:
    """With one task in it."""
    async with stores(postgres_url, Inline) as open_one:
        made = await open_one(ManualClock())
        await made.submit([spec()])
        yield made


def hang_up(admin: sa.Connection) -> None:
    admin.execute(
        sa.text(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    )


def fail_over(admin: sa.Connection) -> None:
    """To a database that lacks the last transaction."""
    hang_up(admin)
    admin.execute(sa.update(counters).where(counters.c.name == COMMIT).values(value=counters.c.value - 1))


async def nobody_starts(postgres_url: str) -> None:
    with pytest.raises(AnotherPast, match=r"fallen back to its commit 0 of 1"):
        async with stores(postgres_url, Inline) as open_one:
            await open_one(ManualClock())


def holders(admin: sa.Connection) -> int:
    return admin.scalar(
        sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database())")
    )  # fmt: skip


async def test_a_lock_that_went_with_its_session_is_taken_again(store: SqlStore, admin: sa.Connection) -> None:
    """Whatever ends all sessions (a restart, a failover) costs no more than a call; the store is locked as before."""
    for number in (2, 3):
        hang_up(admin)
        assert holders(admin) == 0
        assert await store.submit([spec()]) == [number]
        assert holders(admin) == 1
    assert await store.check() == []


async def test_a_session_that_ends_while_it_takes_the_lock_has_lost_it_to_nobody(
    store: SqlStore, admin: sa.Connection
) -> None:
    """Who could not ask for the name of the owner has not heard another one's: he is not told to look for one."""
    hang_up(admin)

    def ended(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM owner" in statement:
            hang_up(admin)

    sa.event.listen(store._engine, "before_cursor_execute", ended)
    with pytest.raises(StoreUnavailable) as told:
        await store.submit([spec()])
    sa.event.remove(store._engine, "before_cursor_execute", ended)
    assert "lost its lock" not in str(told.value)
    assert await store.submit([spec()]) == [2]


async def test_nobody_writes_without_the_lock(store: SqlStore, admin: sa.Connection, postgres_url: str) -> None:
    """Once the session of the lock is gone another process may have the store, and the first one can't write then."""
    admin.execute(
        sa.text("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted AND"
                " database = (SELECT oid FROM pg_database WHERE datname = current_database())")
    )  # fmt: skip
    async with stores(postgres_url, Inline) as open_one:
        later = ManualClock()
        later.now_ms += 5_000
        other = await open_one(later)
        assert await other.submit([spec()]) == [2]
        with pytest.raises(StoreUnavailable, match=r"lost its lock on the statestore to pid \d+ on"):
            await store.submit([spec()])
        assert await other.submit([spec()]) == [3]
    with pytest.raises(StoreUnavailable, match="lost its lock on the statestore"):
        await store.submit([spec()])
    assert admin.scalar(sa.text("SELECT count(*) FROM tasks")) == 3


@pytest.mark.parametrize("named", [True, False], ids=["the dispatcher before is named", "nobody is named"])
async def test_a_database_of_before_the_lock_was_taken(
    store: SqlStore, admin: sa.Connection, postgres_url: str, named: bool
) -> None:
    """A replica that lagged by more than the dispatcher's own life knows nothing of it. Nobody had the lock since, or
    the transactions would have been counted on: the tables are marked, and no dispatcher starts on them by itself."""
    fail_over(admin)
    admin.execute(sa.update(owner).values(pid=1, since_ms=0) if named else sa.delete(owner))
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(AnotherPast, match="at its commit 0, but not as this dispatcher left it after commit 1"):
                await store.submit([spec()])
    assert {one["error"].partition("(")[0] for one in logs if one["event"] == "store.commit_failed"} == {"AnotherPast"}
    assert holders(admin) == 0
    await store.close()
    await nobody_starts(postgres_url)


async def test_who_goes_without_a_session_looks_back_by_another(
    store: SqlStore, admin: sa.Connection, postgres_url: str
) -> None:
    """An upgrade soon after a failover, that took the session with it."""
    fail_over(admin)
    await store.close()
    await nobody_starts(postgres_url)


async def test_an_operator_who_has_spoken_is_not_contradicted(
    store: SqlStore, admin: sa.Connection, postgres_url: str
) -> None:
    """A dispatcher that was cut off meets the database again after `db restored`: others go on from there, and may just
    not be running. It leaves no mark, and says that it has lost the lock."""
    fail_over(admin)
    admin.execute(sa.update(owner).values(pid=1, since_ms=0))
    came_back(postgres_url, now_ms=START_MS + 5_000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="lost its lock") as told:
            await store.submit([spec()])
        assert not isinstance(told.value, AnotherPast)
    await store.close()
    async with stores(postgres_url, Inline) as open_one:
        assert await (await open_one(ManualClock())).submit([spec()]) == [2]


async def test_tables_that_are_not_older_are_those_of_whoever_had_the_lock(
    store: SqlStore, admin: sa.Connection, postgres_url: str
) -> None:
    """It may have been killed, so that its name stands there still: its tables are as good as any."""
    hang_up(admin)
    admin.execute(sa.update(owner).values(pid=1, since_ms=0))
    with pytest.raises(StoreUnavailable, match=r"lost its lock on the statestore to pid 1 on") as told:
        await store.submit([spec()])
    assert not isinstance(told.value, AnotherPast)
    await store.close()
    async with stores(postgres_url, Inline) as open_one:
        assert (await (await open_one(ManualClock())).submit([spec()])) == [2]


async def test_a_session_that_the_database_still_has_makes_way(store: SqlStore, admin: sa.Connection) -> None:
    """A connection that is cut on this side alone may live for hours on the other one, and its lock with it."""
    cut, store._writer._connection, store._lock._session = store._writer._connection, None, None  # type: ignore[union-attr]
    assert cut is not None
    assert await store.submit([spec()]) == [2]
    assert holders(admin) == 1
    cut.invalidate()


async def test_a_lock_that_is_given_back_is_free(store: SqlStore, postgres_url: str) -> None:
    """After a loss too, and nobody is named as the owner then."""
    with pytest.raises(Conflict, match="is in use by pid"):
        async with stores(postgres_url, Inline) as open_one:
            await open_one(ManualClock())
    await store.close()
    assert describe_owner(postgres_url) is None
