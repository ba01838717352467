"""Back to the tables of an earlier version, rows and all, so that the program of that version goes on with them. Owns
that nobody has the store open meanwhile, and what must be remembered of what those tables can't hold.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.statestore.engine import driver_errors, make_engine, parse_url, sqlite_path, to_read, translate
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock, this_process
from cloud_dispatch.statestore.migrate import downgrade, migrating, revision
from cloud_dispatch.statestore.purse import UNSURE_FACT
from cloud_dispatch.statestore.schema import facts, ledger


def revision_of(url: str) -> str:
    """The revision of the store's tables, "" where there is no store yet. Nothing is changed, whoever has it open."""
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None and not _holds_something(path):
        return ""
    engine = make_engine(parsed)
    try:
        with to_read(engine) as connection:
            return revision(connection) or ""
    except driver_errors(engine) as error:
        raise translate(error, parsed) from error
    finally:
        engine.dispose()


def step_back(url: str, to: str, *, now_ms: int) -> None:
    """Give the store the tables of revision `to`, in one transaction. What later tables and columns hold is lost with
    them. Conflict while somebody has it open; InvalidInput where `to` is none of the revisions before."""
    parsed = parse_url(url)
    path, now = sqlite_path(parsed), revision_of(url)
    if now == to:
        return
    if not now:
        raise InvalidInput("there is no statestore yet", place="store.url")
    engine = make_engine(parsed)
    lock = FileLock(path) if path is not None else AdvisoryLock(engine)
    try:
        lock.take(this_process(now_ms))
        _step(engine, to, now_ms)
    except driver_errors(engine) as error:
        raise translate(error, parsed) from error
    finally:
        lock.release()
        engine.dispose()


def _step(engine: Engine, to: str, now_ms: int) -> None:
    with migrating(engine) as connection:
        knew = _has(connection, ledger.name)
        downgrade(connection, to)
        if knew and not _has(connection, ledger.name):
            # What was spent is forgotten: to a later version, that knows limits again, what is open counts as spent.
            connection.execute(sa.delete(facts).where(facts.c.name == UNSURE_FACT))
            connection.execute(sa.insert(facts).values(name=UNSURE_FACT, value=str(now_ms)))


def _has(connection: Connection, table: str) -> bool:
    return sa.inspect(connection).has_table(table)


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
