"""Backup and restore. Owns what a copy of a store is: an SQLite file of the same tables, wherever the store lives.

A copy is made under another name and renamed when it is whole, so that a file with the target's name is a good one.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, delete, func, insert, select
from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from cloud_dispatch.ownership import as_owner
from cloud_dispatch.statestore.engine import (
    at_length,
    driver_errors,
    is_full,
    make_engine,
    parse_url,
    sqlite_path,
    to_read,
    translate,
)
from cloud_dispatch.statestore.lineage import RESTORED_FACT, unmark
from cloud_dispatch.statestore.loading import STORE_ID, tokens_by
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock, this_process
from cloud_dispatch.statestore.migrate import VERSION, migrating, revision, upgrade
from cloud_dispatch.statestore.purse import UNSURE_FACT
from cloud_dispatch.statestore.schema import counters, events, facts, ledger, owner

#: Tokens handed out after the copy was made are unknown to it: a restored store goes on from those that any can have
#: handed out by now, or, where the clock is behind what it knows, far beyond that, so that no token is ever used twice.
TOKEN_LEAP = 1_000_000_000
_ROWS = 5_000
#: Has SQLite open all that there is of a database: its file, and the log and index beside.
_LOOK = "SELECT count(*) FROM sqlite_master"
#: What SQLite keeps beside a database while it is open, and after a process that was killed.
_BESIDE = ("-wal", "-shm", "-journal")


def backup(engine: Engine, target: Path) -> None:
    """A consistent copy of a store in use. Conflict if `target` exists, NotFound where there is no folder
    for it; on any error there is no `target`. The store is opened with the rights of its folder's owner."""
    if target.exists():
        raise Conflict(f"{target} exists", hint="name a file that does not exist yet")
    if not target.parent.is_dir():
        raise NotFound(f"there is no folder {target.parent}", hint="a backup is made into one that is there")
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    try:
        if engine.dialect.name == "sqlite":
            with as_owner(Path(str(engine.url.database)).parent):
                source = engine.raw_connection()
                source.cursor().execute(_LOOK)
            with closing(source), closing(sqlite3.connect(part)) as copy:
                _online_copy(source.driver_connection, copy)
        else:
            _dump(engine, part)
        _publish(part, target)
    except driver_errors(engine) as error:
        if is_full(error):  # nothing but the copy is written to
            message = f"the disk of {target.parent} is full: nothing was copied"
            raise Unavailable(message, hint="free space there, or name a file on another disk") from error
        raise translate(error, engine.url) from error
    finally:
        part.unlink(missing_ok=True)


def identity_in(copy: Path) -> str:
    """The id of the store that the file `copy` is a backup of, which is only read; "" where it does not tell."""
    try:
        with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            found = connection.execute("SELECT value FROM facts WHERE name = ?", (STORE_ID,)).fetchone()
    except sqlite3.Error:
        return ""
    return str(found[0]) if found else ""


def restore(source: Path, url: str, *, now_ms: int) -> None:
    """Make the store at `url` from a backup. InvalidInput for a file that is none, Conflict where a store is already.

    Leases in the copy stand: what their agents still hold under the same token goes on, the rest is sorted out by their
    next sync. Fencing tokens leap ahead. The backup is read with the rights of its folder's owner, and a store in a
    file is made with those of that one's.
    """
    with as_owner(source.parent):
        _check_source(source)
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    engine = make_engine(parsed)
    try:
        if path is not None:
            _restore_file(source, path, now_ms)
        else:
            _restore_rows(source, engine, now_ms)
    except driver_errors(engine) as error:
        raise translate(error, parsed) from error
    finally:
        engine.dispose()


def refuse_restore(source: Path, url: str) -> None:
    """What `restore` refuses, before anything is done: InvalidInput for a file that is no backup, Conflict where a
    store is at `url` already."""
    with as_owner(source.parent):
        _check_source(source)
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None:
        with as_owner(path.parent):
            _refuse_what_is_there(path)
        return
    engine = make_engine(parsed)
    try:
        with to_read(engine) as connection:
            _refuse_tables(connection)
    except driver_errors(engine) as error:
        raise translate(error, parsed) from error
    finally:
        engine.dispose()


def came_back(url: str, *, now_ms: int) -> None:
    """Mark the store at `url` as one that was brought back to a moment of before by other means: a snapshot of its
    disk, the database's own backups. As `restore` does. InvalidInput where there is none, Conflict where it is in use.
    """
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is not None and not path.exists():
        raise InvalidInput(f"there is no statestore at {path}", place="store.url")
    engine = make_engine(parsed)
    lock = FileLock(path) if path is not None else AdvisoryLock(engine)
    try:
        with engine.begin() as connection:
            if revision(connection) is None:
                raise InvalidInput("there is no statestore in this database", place="store.url")
        lock.take(this_process(now_ms))
        with migrating(engine) as connection:
            upgrade(connection)
            _mark_restored(connection, now_ms)
    except driver_errors(engine) as error:
        raise translate(error, parsed) from error
    finally:
        lock.release()
        engine.dispose()


def _online_copy(source: Any, copy: sqlite3.Connection) -> None:
    source.backup(copy)
    copy.execute("PRAGMA journal_mode=DELETE")  # one file, complete in itself
    copy.commit()


def _publish(part: Path, target: Path) -> None:
    """Durable under its final name, or not there. Conflict where something appeared under that meanwhile."""
    for path in (part, target.parent):
        if path is not part:
            try:
                os.link(part, target)  # unlike rename it replaces nothing
            except FileExistsError:
                hint = f"move {target.name} away, and see who makes it"
                raise Conflict(f"{target} appeared while it was being made", hint=hint) from None
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _dump(engine: Engine, part: Path) -> None:
    """Every row, as of one moment, into an SQLite file."""
    copy = make_engine(parse_url(f"sqlite:///{part.absolute()}"))
    try:
        one_moment = engine.execution_options(isolation_level="REPEATABLE READ")
        with copy.begin() as into, one_moment.connect() as out, at_length(out):
            _copy_tables(out, into)
        with closing(copy.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA journal_mode=DELETE")
    finally:
        copy.dispose()


def _copy_tables(out: Connection, into: Connection) -> None:
    """Into a database without a store: tables of the revision that there is, with every row. They may be older than
    those of this version, which an upgrade still has to come over. Beside them there may be tables of others."""
    current = revision(out)
    if current is None:
        raise InvalidInput("there is no statestore in this database", place="store.url")
    upgrade(into, current)
    there, here = MetaData(), MetaData()
    there.reflect(out)
    here.reflect(into)
    for table in here.sorted_tables:
        if table.name in (owner.name, VERSION.name) or table.name not in there.tables:
            continue
        with out.execute(select(there.tables[table.name]).execution_options(yield_per=_ROWS)) as rows:
            for part in rows.mappings().partitions():
                into.execute(insert(table), [dict(row) for row in part])


def _check_source(source: Path) -> None:
    try:
        with closing(sqlite3.connect(f"file:{source.absolute()}?mode=ro", uri=True)) as connection:
            (healthy,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            connection.execute("SELECT count(*) FROM counters").fetchone()
    except sqlite3.Error as error:
        raise InvalidInput(f"{source} is not a backup of a statestore: {error}") from None
    if healthy != "ok":
        raise InvalidInput(f"{source} is damaged: {healthy}")


def _refuse_what_is_there(path: Path) -> None:
    """Conflict where a store is at `path`, or what SQLite keeps beside one: a log that a killed process left is written
    over whichever database has its name."""
    beside = [one for one in (path.with_name(path.name + end) for end in _BESIDE) if one.exists()]
    names = ", ".join(one.name for one in beside)
    if path.exists():
        together = f"{path.name}, {names} away together" if beside else f"{path.name} away"
        raise Conflict(f"there is a statestore at {path}", hint=f"move {together} first")
    if beside:
        hint = "move that to where its statestore is: it holds the last of what that one wrote"
        raise Conflict(f"{names} of another statestore is left in {path.parent}", hint=hint)


def _refuse_tables(connection: Connection) -> None:
    if revision(connection) is not None:
        raise Conflict("there is a statestore in this database", hint="give an empty database")


def _restore_file(source: Path, path: Path, now_ms: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with as_owner(source.parent):
        backed = sqlite3.connect(source)
        backed.execute(_LOOK).fetchone()
    with closing(backed), as_owner(path.parent):
        _make_file(backed, path, now_ms)


def _make_file(backed: sqlite3.Connection, path: Path, now_ms: int) -> None:
    lock = FileLock(path)
    lock.take(this_process(now_ms))
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    try:
        _refuse_what_is_there(path)
        with closing(sqlite3.connect(part)) as copy:
            backed.backup(copy)
        engine = make_engine(parse_url(f"sqlite:///{part.absolute()}"))
        with migrating(engine) as connection:
            upgrade(connection)
            _mark_restored(connection, now_ms)
        with closing(engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA journal_mode=DELETE")
        engine.dispose()
        _publish(part, path)
    finally:
        part.unlink(missing_ok=True)
        lock.release()


def _restore_rows(source: Path, engine: Engine, now_ms: int) -> None:
    """Tables, rows and marks are one transaction, which has the lock: what is cut off leaves an empty database, and
    nobody starts on a half store."""
    old = make_engine(parse_url(f"sqlite:///{source.absolute()}"))
    try:
        with as_owner(source.parent):
            out = to_read(old)
            out.exec_driver_sql(_LOOK)
        with out, migrating(engine) as into:
            AdvisoryLock(engine).hold(into)
            _refuse_tables(into)
            _copy_tables(out, into)
            upgrade(into)
            for table in (events, ledger):
                last = select(func.max(table.c.id)).scalar_subquery()
                into.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), last)))
            _mark_restored(into, now_ms)
    finally:
        old.dispose()


def _mark_restored(connection: Connection, now_ms: int) -> None:
    """Tokens leap ahead; and what was spent since the copy was made is not known: what is open counts as spent."""
    token = counters.c.name == "token"
    last = connection.scalar(select(counters.c.value).where(token)) or 0
    connection.execute(delete(counters).where(token))
    later = tokens_by(now_ms) if tokens_by(now_ms) > last else last + TOKEN_LEAP
    connection.execute(insert(counters).values(name="token", value=later))
    for fact in (UNSURE_FACT, RESTORED_FACT):
        connection.execute(delete(facts).where(facts.c.name == fact))
        connection.execute(insert(facts).values(name=fact, value=str(now_ms)))
    unmark(connection)
