"""The writer's one connection. Owns its life: opened once, reopened after a loss, never without the store's lock."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.statestore.batch import Batch, Statements, landed, perform, read_specs
from cloud_dispatch.statestore.commit import Operation
from cloud_dispatch.statestore.engine import driver_errors, translate
from cloud_dispatch.statestore.limits import take_purse
from cloud_dispatch.statestore.loading import load
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.purse import Configured, Purse


class DatabaseWriter:
    """Runs where the executor puts it, one call at a time."""

    def __init__(self, engine: Engine, lock: FileLock | AdvisoryLock, clock: Clock) -> None:
        self.errors = driver_errors(engine)
        self._engine = engine
        self._lock = lock
        self._clock = clock
        self.configured = Configured()
        self._statements = Statements.of(engine.dialect)
        self._connection: Connection | None = None
        self.doubtful = False

    def prepare(self, operations: list[Operation[Any]]) -> None:
        connection = self._open()
        try:
            with connection.begin():
                for operation in operations:
                    operation.prepare(connection)
        except self.errors:
            self._drop()
            raise

    def perform(self, batch: Batch) -> dict[int, bytes]:
        connection = self._open()
        try:
            return perform(connection, self._statements, batch)
        except self.errors:
            self._drop()
            specs = self._look(batch)
            if specs is None:
                raise
            return specs

    def reload(self) -> Memory:
        """The memory as the tables have it, once they can be read again."""
        try:
            with self._open().begin():
                memory = load(self._open())
                purse, now = Purse.of(self.configured, memory.facts), self._clock.now()
                purse.read(self._open(), now)
                take_purse(memory, purse, now)
        except self.errors:
            self._drop()
            raise
        self.doubtful = False
        return memory

    def _look(self, batch: Batch) -> dict[int, bytes] | None:
        """What `perform` would have answered, if the failed transaction was committed all the same; None if not.

        StoreUnavailable, and doubt, when that can't be found out now.
        """
        try:
            connection = self._open()
            with connection.begin(), closing(connection.connection.cursor()) as cursor:
                return read_specs(cursor, self._statements, batch.read_specs) if landed(connection, batch) else None
        except Exception as error:
            said = self.error(error)
            if said is None:
                raise
            self._drop()
            self.doubtful = True
            raise StoreUnavailable(
                f"the statestore was lost in the middle of a commit: {said.message}",
                hint="whether this call was committed is not known; look before you repeat it",
            ) from error

    def error(self, error: BaseException) -> StoreUnavailable | None:
        if isinstance(error, StoreUnavailable):
            return error
        return translate(error, self._engine.url) if isinstance(error, self.errors) else None

    def close(self) -> None:
        """Give the lock back, whose session may be the connection."""
        self._lock.release()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = self._lock.connect(self._engine)
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
