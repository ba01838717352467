"""The statestore: SQLite or PostgreSQL behind `ports.store`. `open_store` is the way in.

Owns SQL, commits and the queue's order; the rest of the core sees the port alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import Engine

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.statestore import lock as locks
from cloud_dispatch.statestore.compacting import compact
from cloud_dispatch.statestore.copying import backup as copy
from cloud_dispatch.statestore.copying import came_back, identity_in, refuse_restore, restore
from cloud_dispatch.statestore.engine import driver_errors, make_engine, parse_url, sqlite_path, to_read, translate
from cloud_dispatch.statestore.lineage import refuse_fallen_back
from cloud_dispatch.statestore.loading import identity_of, initialise, load
from cloud_dispatch.statestore.login import Renewed
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.migrate import migrating, revision, upgrade
from cloud_dispatch.statestore.stepping import revision_of, step_back
from cloud_dispatch.statestore.store import SqlStore
from cloud_dispatch.statestore.writer import Line

__all__ = [
    "Line",
    "SqlStore",
    "backup",
    "came_back",
    "compact",
    "describe_owner",
    "identity",
    "identity_in",
    "is_embedded",
    "open_store",
    "refuse_restore",
    "restore",
    "revision_of",
    "size",
    "step_back",
]


async def open_store(
    url: str,
    *,
    clock: Clock,
    entropy: Entropy,
    executor: Executor,
    reads: Executor | None = None,
    create: bool = True,
    looking: bool = False,
    renewed: Renewed | None = None,
    line: Line | None = None,
) -> SqlStore:
    """Open, lock, migrate and load the store at `url` (`sqlite:////path` or `postgresql+psycopg://...`).

    Commits run on `executor`; longer reads on `reads` (default: the same). Neither is closed with the store. Where a
    new connection is refused for its password, `renewed` says the URL as it is by then. Transactions go over `line`.
    Conflict, naming the owner, when another process has it; InvalidInput for a URL that is none, or for a store that
    does not exist where `create` is False; StoreUnavailable when the database can't be reached or read, and where it
    has fallen back behind what was written, unless it is opened for `looking` alone.
    """
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None and not path.exists() and not create:
        raise InvalidInput(f"there is no statestore at {path}", place="store.url")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = make_engine(parsed, renewed)
    me = locks.this_process(clock.now())
    lock = locks.FileLock(path) if path is not None else locks.AdvisoryLock(engine)
    try:
        if isinstance(lock, locks.FileLock):
            lock.take(me, making=True)
        else:
            await executor.run(_migrate, engine, lock)
            await executor.run(lock.take, me)
        memory = await executor.run(_load, engine, entropy.name("store", 16), clock.now())
        if not looking:
            refuse_fallen_back(memory.facts)
    except BaseException as error:
        lock.release()
        engine.dispose()
        if isinstance(error, driver_errors(engine)):
            raise translate(error, parsed) from error
        raise
    return SqlStore(engine, lock, memory, clock=clock, executor=executor, reads=reads or executor, line=line or Line())


def is_embedded(url: str) -> bool:
    """Whether the database at `url` is a file, and no server."""
    return sqlite_path(parse_url(url)) is not None


def backup(url: str, target: Path) -> None:
    """A consistent copy of the store at `url`, whoever has it open. InvalidInput where there is none, Conflict if
    `target` exists."""
    with _existing(url) as engine:
        copy(engine, target)


def identity(url: str) -> str:
    """The id of the store at `url`, whoever has it open. InvalidInput where there is none."""
    with _existing(url) as engine:
        try:
            with to_read(engine) as connection:
                known = None if revision(connection) is None else identity_of(connection)
        except driver_errors(engine) as error:
            raise translate(error, engine.url) from error
    if known is None:
        raise InvalidInput("there is no statestore in this database", place="store.url")
    return known


def size(url: str) -> int:
    """About how many bytes a copy of the store at `url` has, rather too many. InvalidInput where there is none."""
    with _existing(url) as engine:
        path = sqlite_path(engine.url)
        if path is not None:
            files = (path, path.with_name(f"{path.name}-wal"))
            return sum(one.stat().st_size for one in files if one.exists())
        try:
            with to_read(engine) as connection:
                return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)
        except driver_errors(engine) as error:
            raise translate(error, engine.url) from error


@contextmanager
def _existing(url: str) -> Iterator[Engine]:
    """An engine for a few questions, where there is something to be asked."""
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None and not path.exists():
        raise InvalidInput(f"there is no statestore at {path}", place="store.url")
    engine = make_engine(parsed)
    try:
        yield engine
    finally:
        engine.dispose()


def describe_owner(url: str) -> str | None:
    """Who has the store at `url` open now (`pid 12 on host since ...`), None when nobody has. StoreUnavailable where a
    database can't be asked."""
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None:
        holder = locks.FileLock(path).live_holder()
    else:
        engine = make_engine(parsed)
        try:
            holder = locks.advisory_holder(engine)
        except driver_errors(engine) as error:
            raise translate(error, parsed) from error
        finally:
            engine.dispose()
    return holder.describe() if holder else None


def _migrate(engine: Engine, lock: locks.AdvisoryLock) -> None:
    """Make the tables in which the lock's owner is named; never under somebody who has the store."""
    with migrating(engine) as connection:
        lock.hold(connection)
        upgrade(connection)


def _load(engine: Engine, store_id: str, now_ms: int) -> Memory:
    with migrating(engine) as connection:
        upgrade(connection)
        initialise(connection, store_id, now_ms)
        return load(connection)
