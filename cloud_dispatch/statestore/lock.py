"""One process owns a store. Owns the lock and the name of its owner; the lock dies with the process, however it ends.

SQLite: an flock on `<database>.lock`, which also holds the owner's pid, host and start. PostgreSQL: an advisory lock of
the session that writes, and a row that names the owner; a session that was lost is replaced, and the row says whether
anybody else was there meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import ProgrammingError, SQLAlchemyError

from cloud_dispatch.domain.errors import Conflict, StoreUnavailable
from cloud_dispatch.ownership import give
from cloud_dispatch.statestore.engine import printable
from cloud_dispatch.statestore.schema import owner

#: The key of the advisory lock: one store a database.
ADVISORY_KEY = 0x636C6F7564  # "cloud"
#: How long a session that takes the lock again waits for the one before to be gone.
RETAKE_MS = 1000
_MOVED = "stop the dispatcher, then put all files back; where a copy is in their place, `cloud-dispatch db restored`"
_BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END_BACKEND = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid AND backend_start = :backend_start"
)


class Owner(msgspec.Struct, frozen=True):
    """Who has a store open. `since_ms` since the epoch."""

    pid: int
    host: str
    since_ms: int

    def describe(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"pid {self.pid} on {self.host} since {since}"


def this_process(now_ms: int) -> Owner:
    return Owner(os.getpid(), socket.gethostname(), now_ms)


def _in_use(name: str, holder: Owner | None) -> Conflict:
    who = holder.describe() if holder else "another process"
    return Conflict(f"statestore {name} is in use by {who}", hint="stop that process, or give this one another store")


def _file(name: str) -> tuple[int, int]:
    """Which file has the name; OSError where none has."""
    found = os.stat(name)
    return found.st_dev, found.st_ino


class LostLock(StoreUnavailable):
    """Somebody else has the lock that this process took, or has had it since."""


def _lost(holder: Owner | None) -> LostLock:
    to = f" to {holder.describe()}" if holder else ""
    return LostLock(
        f"this process has lost its lock on the statestore{to}",
        hint="let one of the two run, and restart this one if it is that",
    )


class FileLock:
    """The lock of an SQLite store."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        self._name = str(database)
        self._fd = -1
        self._ours: list[tuple[str, tuple[int, int]]] = []  # the files by name, and which they are

    def take(self, me: Owner, *, making: bool = False) -> None:
        """Conflict, naming the owner, when another opener has it (this process included). `making`: where there is no
        database yet there is an empty one from here on; whoever is refused leaves no file in another one's way."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        give(fd, self.path.parent)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise _in_use(self._name, self.holder()) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(me), 0)
        self._fd = fd
        if making:
            Path(self._name).touch(mode=0o600)  # and so are the files that SQLite makes beside it
        self._ours = [(name, _file(name)) for name in (str(self.path), self._name) if os.path.exists(name)]

    def holder(self) -> Owner | None:
        """Who wrote itself into the file; None where nobody did (it may be long gone all the same)."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Owner)
        except (OSError, msgspec.DecodeError):
            return None

    def live_holder(self) -> Owner | None:
        """Who has the lock at this moment, None when it is free."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self.holder()
        finally:
            os.close(fd)
        return None

    def check(self) -> None:
        """StoreUnavailable where the database or its lock was moved away, or is another file by now: what is written
        would be lost with it, and the lock would keep nobody out."""
        for name, ours in self._ours:
            try:
                found = _file(name)
            except OSError as error:
                raise StoreUnavailable(f"{name} is not there any more: {error.strerror}", hint=_MOVED) from None
            if found != ours:
                raise StoreUnavailable(f"{name} is another file than this process opened", hint=_MOVED)

    def connect(self, engine: Engine) -> Connection:
        """A connection for whoever writes; StoreUnavailable when the lock is not held."""
        if self._fd < 0:
            raise _lost(None)
        self.check()  # otherwise SQLite makes an empty file of that name, and empties the log of the one that was moved
        return engine.connect()

    @contextmanager
    def alone(self) -> Iterator[Connection | None]:
        """Nothing: files that have changed under the lock are found by `check`."""
        yield None

    def release(self) -> None:
        """The file stays, empty: removing it would let two openers lock two files of one name."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


class AdvisoryLock:
    """The lock of a PostgreSQL store, held by the session that writes: whoever has lost it can't write either."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = printable(engine.url)
        self._me: Owner | None = None
        self._session: Connection | None = None
        self._backend: dict[str, Any] = {}

    def take(self, me: Owner) -> None:
        """Conflict, naming the owner, when another session has it. The tables must exist."""
        with self._beginning() as session:
            if not session.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": ADVISORY_KEY}):
                raise _in_use(self._name, _named_owner(session))
            session.execute(delete(owner))
            session.execute(insert(owner).values(one=True, pid=me.pid, host=me.host, since_ms=me.since_ms))
        self._me = me

    def hold(self, connection: Connection) -> None:
        """Have the lock for the transaction of `connection`, which may be about to make the tables. Conflict, naming
        the owner, when another session has it."""
        if not connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": ADVISORY_KEY}):
            raise _in_use(self._name, _named_owner(connection))

    def check(self) -> None:
        """There is nothing to look at: who has lost the lock has lost the session."""

    def connect(self, _engine: Engine) -> Connection:
        """The session that holds the lock. When the database has lost it, a new one takes the lock again;
        StoreUnavailable where somebody else has owned the store meanwhile."""
        if self._me is None:
            raise _lost(None)
        if self._session is None or self._session.closed or self._session.invalidated:
            self._retake(self._me)
        assert self._session is not None  # _beginning has set it
        return self._session

    @contextmanager
    def alone(self) -> Iterator[Connection | None]:
        """For whoever has lost the lock: a transaction of a session that has it for so long, where nobody else has it;
        None where somebody has."""
        with self._engine.connect() as session, session.begin():
            alone = session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": ADVISORY_KEY})
            yield session if alone else None

    def _retake(self, me: Owner) -> None:
        with self._beginning() as session:
            self._check(session, me)
            # The session before may live on, where the database has not noticed that nobody is there.
            session.execute(text(_END_BACKEND), self._backend)
            session.execute(text(f"SET LOCAL lock_timeout = {RETAKE_MS}"))
            session.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_KEY})
            self._check(session, me)

    @staticmethod
    def _check(session: Connection, me: Owner) -> None:
        """Whoever takes the lock writes its name, and whoever gives it back deletes it: so nobody has had it since."""
        holder = _named_owner(session)
        if holder != me:
            raise _lost(holder)

    @contextmanager
    def _beginning(self) -> Iterator[Connection]:
        """A transaction of a new session, which is the lock's once that is committed; without it nothing is held."""
        session = self._engine.connect()
        try:
            with session.begin():
                yield session
                row = session.execute(text(_BACKEND)).one()
        except BaseException:
            session.invalidate()
            session.close()
            raise
        self._session, self._backend = session, dict(row._mapping)

    def release(self) -> None:
        session, self._session, self._me = self._session, None, None
        if session is None or session.closed:
            return
        try:
            session.rollback()
            with session.begin():
                session.execute(delete(owner))
                session.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_KEY})
        except SQLAlchemyError:
            session.invalidate()  # the session is gone, and its lock with it
        finally:
            session.close()


def _named_owner(connection: Connection) -> Owner | None:
    try:
        row: Any = connection.execute(select(owner.c.pid, owner.c.host, owner.c.since_ms)).first()
    except ProgrammingError:  # not migrated yet: the first opener is just making it
        return None
    return Owner(*row) if row else None


def advisory_holder(engine: Engine) -> Owner | None:
    """Who has a PostgreSQL store open at this moment, None when it is free."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as session:
        if session.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": ADVISORY_KEY}):
            session.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_KEY})
            return None
        return _named_owner(session)
