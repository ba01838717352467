"""The writer's one connection. Owns its life: opened once, reopened after a loss, never without the store's lock, and
never to tables with another past than what was written here (`lineage`).
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import InvalidInput, StoreUnavailable
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.statestore.batch import Batch, Statements, landed, perform, read_specs
from cloud_dispatch.statestore.commit import Operation
from cloud_dispatch.statestore.engine import Unanswered, at_length, bad_input, driver_errors, meaning
from cloud_dispatch.statestore.limits import take_purse
from cloud_dispatch.statestore.lineage import HINT, RESTORED_FACT, AnotherPast, last_commit, mark_fallen_back
from cloud_dispatch.statestore.loading import load
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock, LostLock
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.purse import Configured, Purse
from cloud_dispatch.statestore.reader import PATIENCE_S
from cloud_dispatch.statestore.schema import facts

log = structlog.get_logger(__name__)


class Line:
    """What lies between the writer and its database. A simulation has one that breaks."""

    def connect(self, engine: Engine, lock: FileLock | AdvisoryLock) -> Connection:
        """As the lock's `connect`."""
        return lock.connect(engine)

    def perform(self, connection: Connection, statements: Statements, batch: Batch) -> dict[int, bytes]:
        """As `batch.perform`: when it raises an error of the database's, nobody knows whether it is written."""
        return perform(connection, statements, batch)


class DatabaseWriter:
    """Runs where the executor puts it, one call at a time."""

    def __init__(
        self, engine: Engine, lock: FileLock | AdvisoryLock, clock: Clock, line: Line, memory: Memory
    ) -> None:  # fmt: skip
        self.errors = driver_errors(engine)
        self._engine = engine
        self._lock = lock
        self._line = line
        self._clock = clock
        self.configured = Configured()
        self._statements = Statements.of(engine.dialect)
        self._connection: Connection | None = None
        self.doubtful = False
        self._landed = memory.commits  # the number of the last transaction that is known to be committed
        self._estranged = ""  # why nothing is written any more
        #: When the tables were made from a copy, as they said then.
        self._restored_ms = int(memory.facts.get(RESTORED_FACT, 0))
        self._opened = self._lost = False

    def prepare(self, operations: list[Operation[Any]]) -> None:
        connection = self._open()
        try:
            with connection.begin():
                for operation in operations:
                    operation.prepare(connection)
        except self.errors as error:
            if bad_input(error, self._engine) is None:
                self._drop()
            raise

    def perform(self, batch: Batch) -> dict[int, bytes]:
        connection = self._open()
        self._lock.check()
        try:
            written = self._line.perform(connection, self._statements, batch)
            self._landed = batch.serial
            return written
        except AnotherPast:
            raise self._estrange() from None
        except self.errors as error:
            if bad_input(error, self._engine) is not None:
                raise  # before the commit, and the session is as good as it was
            self._drop()
            specs = self._look(batch)
            if specs is None:
                raise
            self._landed = batch.serial
            return specs

    def reload(self) -> Memory:
        """The memory as the tables have it, once they can be read again."""
        try:
            connection = self._open()
            with connection.begin(), at_length(connection, PATIENCE_S):  # all of it comes bit by bit
                memory = load(connection)
                if memory.commits not in (self._landed, self._landed + 1):
                    raise AnotherPast(f"its last transaction is {memory.commits}")
                purse, now = Purse.of(self.configured, memory.facts), self._clock.now()
                purse.read(connection, now)
                take_purse(memory, purse, now)
        except AnotherPast:
            raise self._estrange() from None
        except self.errors:
            self._drop()
            raise
        self.doubtful, self._landed = False, memory.commits
        return memory

    def _look(self, batch: Batch) -> dict[int, bytes] | None:
        """What `perform` would have answered, if the failed transaction was committed all the same; None if not.

        StoreUnavailable, and doubt, when that can't be found out now.
        """
        try:
            connection = self._open()
            with connection.begin(), closing(connection.connection.cursor()) as cursor:
                return read_specs(cursor, self._statements, batch.read_specs) if landed(connection, batch) else None
        except AnotherPast:
            raise self._estrange() from None
        except Exception as error:
            said = self.error(error)
            if not isinstance(said, StoreUnavailable):
                raise
            self._drop()
            self.doubtful = True
            kind = Unanswered if isinstance(said, Unanswered) else StoreUnavailable
            raise kind(
                f"the statestore was lost in the middle of a commit: {said.message}",
                hint="whether this call was committed is not known; look before you repeat it",
            ) from error

    @property
    def in_doubt(self) -> bool:
        """Whether what was committed last may not be in the memory."""
        return self.doubtful or bool(self._estranged)

    def error(self, error: BaseException) -> StoreUnavailable | InvalidInput | None:
        if isinstance(error, StoreUnavailable):
            return error
        if not isinstance(error, self.errors):
            return None
        return meaning(error, self._engine)

    def close(self) -> None:
        """Give the lock back, whose session may be the connection."""
        self._look_back()
        self._lock.release()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look_back(self) -> None:
        """Whoever had nothing to write did not see that the tables have fallen back: the next start has to be told. A
        session may have gone with the database that fell back: then a new one looks, once, for it may be long in coming
        where the database is away."""
        for last in (False, True) if self._connection is not None else (True,):
            if self._estranged or not self._opened:
                return
            try:
                connection = self._open()
                with connection.begin():
                    self._mark(connection)
                return
            except StoreUnavailable:
                return  # it has been said, or the lock is somebody else's
            except self.errors as error:
                self._drop()
                if last:
                    log.warning("store.not_looked_back", error=repr(error))

    def _estrange(self) -> AnotherPast:
        """Write nothing more into these tables, nor take anything from them; and say so in them where they are older,
        so that no dispatcher starts on them as if nothing had happened. What to tell the callers."""
        connection = self._open()  # AnotherPast where it was found when that was opened
        try:
            with connection.begin():
                found = self._mark(connection)
        except self.errors as error:  # the next transaction meets it again
            self._drop()
            return AnotherPast(f"the statestore has another past than this dispatcher ({error})", hint=HINT)
        return self._part(found)

    def _mark(self, connection: Connection) -> int:
        """Say so in tables that are older than what was written here; returns their last transaction."""
        found = last_commit(connection)
        if found < self._landed:
            mark_fallen_back(connection, found, self._landed)
        return found

    def _part(self, found: int) -> AnotherPast:
        """From here on nothing is written. What to tell the callers."""
        written = self._landed
        said = f"the statestore is at its commit {found}, but not as this dispatcher left it after commit {written}"
        self._estranged = said
        log.error("store.another_past", found=found, written=written)
        return AnotherPast(said, hint=HINT)

    def _look_for_whom(self) -> None:
        """AnotherPast where the lock was lost to nobody: who had it since would have counted on, and these tables are
        of a time before it was taken. Unless an operator has said since that they are what is left (`db restored`): who
        counts on from there is another dispatcher. Looked for once, since others want the lock."""
        found = None
        with self._lock.alone() as connection:
            if connection is not None and not self._spoken_since(connection):
                found = self._mark(connection)
        self._lost = True
        if found is not None and found < self._landed:
            raise self._part(found)

    def _spoken_since(self, connection: Connection) -> bool:
        restored = connection.scalar(select(facts.c.value).where(facts.c.name == RESTORED_FACT))
        return int(restored or 0) > self._restored_ms

    def _open(self) -> Connection:
        if self._estranged:
            raise AnotherPast(self._estranged, hint=HINT)
        if self._connection is None:
            try:
                self._connection = self._line.connect(self._engine, self._lock)
            except LostLock:
                if not self._lost:
                    self._look_for_whom()
                raise
            self._opened = True
        return self._connection

    def _drop(self) -> None:
        """After an error nothing is known of the connection: the next call gets a new one."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except self.errors:
            pass  # it is being thrown away
