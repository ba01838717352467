"""Questions that the memory can't answer, each on a connection of the pool. Owns where they run, how long they may
take, and what their errors mean; the questions are in `reading`, `costs` and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy.engine import Engine

from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.statestore.engine import at_length, driver_errors, meaning, to_read
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock

T = TypeVar("T")
#: A question may go through many rows before there is one to be told.
PATIENCE_S = 60.0


class Reader:
    """Sees what is committed, each question as it was at one moment."""

    def __init__(self, engine: Engine, lock: FileLock | AdvisoryLock, executor: Executor) -> None:
        self.executor = executor
        self._engine = engine
        self._lock = lock
        self._errors = driver_errors(engine)

    async def ask(self, query: Callable[..., T], *args: Any) -> T:
        """What `query` finds, given a connection and `args`. StoreUnavailable, or InvalidInput where the database takes
        one of them for no value."""
        return await self.executor.run(self._ask, query, args)

    def _ask(self, query: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            self._lock.check()
            with to_read(self._engine) as connection, connection.begin(), at_length(connection, PATIENCE_S):
                return query(connection, *args)
        except self._errors as error:
            raise meaning(error, self._engine) from error
