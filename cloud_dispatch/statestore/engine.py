"""Connections to the database. Owns URLs, pragmas, transactions and the words for a database's own errors.

SQLite: WAL, synchronous=FULL (an acknowledged commit survives power loss), one writer, readers never blocked.
PostgreSQL through psycopg, the same tables and statements.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import LRUCache

from cloud_dispatch.domain.errors import InvalidInput, StoreUnavailable
from cloud_dispatch.domain.masking import masked
from cloud_dispatch.statestore.login import Login, Renewed

BUSY_TIMEOUT_MS = 10_000
#: A step that makes a table anew, a look through all rows.
LONG_S = 600.0
#: By dialect, what begins a transaction that writes, where the driver does not do it by itself. SQLite: readers take no
#: lock; the one writer takes it at once, so that it never fails in the middle for want of it.
BEGIN_WRITING = {"sqlite": "BEGIN IMMEDIATE"}
#: By dialect, the options of a connection that reads: what one transaction asks is of one moment. SQLite's always is.
_READING: dict[str, dict[str, Any]] = {
    "sqlite": {"reading": True},
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}
#: So many compiled statements are kept, the least used go first: the store has some 150.
_COMPILED = 1_000
#: The classes of SQLSTATE for a value that is wrong, and for one that is too large.
_OF_DATA = ("22", "54")
_FORMS = "sqlite:////absolute/path.db or postgresql+psycopg://user@host/database"


class _Compiled(MutableMapping[tuple[Any, ...], Any]):
    """What SQLAlchemy compiled, for all engines of this process: its keys begin with the engine's own dialect, so that
    each of them compiled everything anew (a tenth of a short simulated run). Same kind of database, same text."""

    def __init__(self) -> None:
        self._kept: LRUCache[tuple[Any, ...], Any] = LRUCache(_COMPILED)

    @staticmethod
    def _key(key: tuple[Any, ...]) -> tuple[Any, ...]:
        dialect, *statement = key
        return (type(dialect), dialect.paramstyle, getattr(dialect, "server_version_info", None), *statement)

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        return self._kept[self._key(key)]

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        self._kept[self._key(key)] = compiled

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        del self._kept[self._key(key)]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


_OPTIONS = {"compiled_cache": _Compiled()}


def parse_url(url: str) -> URL:
    """The URL in parts; InvalidInput when it names no database that the store can live in."""
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise InvalidInput(
            f"{masked(repr(url))} is not the URL of a database", place="store.url", hint=_FORMS
        ) from None
    kind = parsed.get_backend_name()
    if kind == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed
    raise InvalidInput(f"a statestore can't live in {printable(parsed)}", place="store.url", hint=_FORMS)


def printable(url: URL) -> str:
    """`url` without its password, wherever in it that stands."""
    return masked(url.render_as_string())


def sqlite_path(url: URL) -> Path | None:
    """The database's file, by its name or by SQLite's `file:` URI of it; None where it is not SQLite."""
    return Path((url.database or "").removeprefix("file:")) if url.get_backend_name() == "sqlite" else None


def make_engine(url: URL, renewed: Renewed | None = None) -> Engine:
    """An engine for `url`; connects to nothing yet. Unavailable when PostgreSQL's driver is not installed. Its errors
    show no values: tasks bring their own secrets. `renewed` says what `url` is by now, where it is refused."""
    if sqlite_path(url) is not None:
        engine = sa.create_engine(
            url,
            poolclass=QueuePool,
            hide_parameters=True,
            execution_options=_OPTIONS,
            connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
        )
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        engine = sa.create_engine(
            url, paramstyle="format", pool_pre_ping=True, hide_parameters=True, execution_options=_OPTIONS
        )
    except (ModuleNotFoundError, NoSuchModuleError):
        raise StoreUnavailable(
            "the driver of PostgreSQL is not installed",
            place="store.url",
            hint="pip install 'cloud-dispatch[postgres]'",
        ) from None
    from cloud_dispatch.statestore import patience  # needs the driver

    if renewed is not None:
        Login(url, renewed, parse_url, patience.connect).use(engine)
    else:
        sa.event.listen(engine, "do_connect", lambda dialect, *_: patience.connect(dialect, url))
    return engine


def to_read(engine: Engine) -> Connection:
    """A connection that writes nothing. All statements of one of its transactions see what the first one saw."""
    return engine.connect().execution_options(**_READING[engine.dialect.name])


@contextmanager
def at_length(connection: Connection, patience_s: float = LONG_S) -> Iterator[None]:
    """For what is known to take long, or to have nothing to say for long: the database may be silent for so many
    seconds. SQLite is never waited for."""
    driver: Any = connection.connection.driver_connection
    if not hasattr(driver, "patience_s"):
        yield
        return
    before, driver.patience_s = driver.patience_s, patience_s
    try:
        yield
    finally:
        driver.patience_s = before


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "cache_size=-65536",  # 64 MiB
        "wal_autocheckpoint=4000",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    reading = connection.get_execution_options().get("reading")
    # Past SQLAlchemy, which takes a tenth of a small commit's time for it; its errors are among `driver_errors`.
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN DEFERRED" if reading else BEGIN_WRITING["sqlite"])


def driver_errors(engine: Engine) -> tuple[type[Exception], ...]:
    """What the database can raise, by way of SQLAlchemy or past it."""
    driver: Any = engine.dialect.loaded_dbapi
    return (DBAPIError, driver.Error, OSError)


class Unanswered(StoreUnavailable):
    """The database is silent: it may be halted, or its network gone."""


def _cause(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def bad_input(error: BaseException, engine: Engine) -> InvalidInput | None:
    """What the caller hears where the database takes a value of his for none, or for one that is too large: it does
    well, and would say the same again. None for any other error."""
    cause, driver = _cause(error), engine.dialect.loaded_dbapi
    if not isinstance(cause, driver.DataError) and (getattr(cause, "sqlstate", None) or "")[:2] not in _OF_DATA:
        return None
    return InvalidInput(
        f"the database refuses a value: {_words(cause, engine.url)}", hint="change that value; nothing was done"
    )


def _words(cause: BaseException, url: URL) -> str:
    return " ".join(masked(str(cause), [url.password]).split())


def meaning(error: BaseException, engine: Engine) -> StoreUnavailable | InvalidInput:
    """What an error of the database's means to the caller."""
    return bad_input(error, engine) or translate(error, engine.url)


def is_full(error: BaseException) -> bool:
    """Whether it says that a disk of this machine has no room."""
    cause = _cause(error)
    full = isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return full or (isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT))


def translate(error: BaseException, url: URL) -> StoreUnavailable:
    """What a failed commit means to the caller, in words of what to do next."""
    cause = _cause(error)
    path = sqlite_path(url)
    where = str(path) if path is not None else printable(url)
    if getattr(cause, "silent", False):  # `patience.Silence`
        return Unanswered(
            f"the database of the statestore does not answer: {where}: {cause}",
            hint="see that it runs and can be reached, then try again; this call changed nothing",
        )
    if is_full(error) or getattr(cause, "sqlstate", None) == "53100":
        # In whole MiB: the text is logged anew when it differs, and the last few bytes come and go.
        free = f" has {shutil.disk_usage(path.parent).free >> 20} MiB free" if path is not None else " says so"
        return StoreUnavailable(
            f"the disk of the statestore is full: {where}{free}",
            hint="free space; nothing was lost, and this call changed nothing",
        )
    return StoreUnavailable(
        f"the statestore {where} can't commit: {type(cause).__name__}: {_words(cause, url)}".strip(),
        hint="this call changed nothing; try again, and see `cloud-dispatch db check` if it stays",
    )
