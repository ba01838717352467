"""How long a PostgreSQL may keep a caller waiting. Owns the connections that give up; knows psycopg, and no statement.

A server that is halted, or whose network is gone, says nothing, and neither does the driver: it would wait for ever.
The limits of the server's own (`statement_timeout` and the like) are kept by the one that is silent, and TCP notices
only some of it, late. So a connection that has heard nothing for `PATIENCE_S` closes itself, with an error like that of
any lost connection: whoever was committing has to look what became of it (`writer`).
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.errors import ConnectionTimeout
from sqlalchemy.engine import URL

T = TypeVar("T")
#: Between two signs of life of the server, and until it has taken a new connection.
PATIENCE_S, CONNECT_S = 10.0, 5
#: Of the driver, where the URL does not say otherwise. The last four find a network that is gone under a connection
#: that nobody waits for, and keep one open whose way forgets what is quiet; `tcp_user_timeout` is in ms.
_PARAMETERS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Silence(psycopg.OperationalError):
    """Nothing was heard in time. `engine.translate` knows it by `silent`."""

    silent = True


class PatientConnection(psycopg.Connection[Any]):
    """One that closes itself when the server is silent for too long."""

    #: `engine.at_length` sets it, for what is known to take long.
    patience_s: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **more: Any) -> T:
        try:
            return super().wait(self._watched(gen), *args, **more)
        except Silence:
            self.close()  # what comes now would be the answer to something else
            raise

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """`gen`, which the driver resumes whenever something was heard, and every now and then with nothing."""
        patience_s = PATIENCE_S if self.patience_s is None else self.patience_s
        heard_s = monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if ready:
                    heard_s = monotonic()
                elif monotonic() - heard_s > patience_s:
                    raise Silence(f"nothing was heard for {patience_s:g} s")
                state = gen.send(ready)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def connect(dialect: Any, url: URL) -> PatientConnection:
    """A new connection by what `url` says."""
    args, parameters = dialect.create_connect_args(url)
    try:
        return PatientConnection.connect(*args, **{**_PARAMETERS, **parameters})
    except ConnectionTimeout:
        raise Silence("it took no connection in time") from None
