"""What new connections to a PostgreSQL log in by. Owns that a login which was refused is asked for anew.

A managed database changes its password by itself, every few days. Connections that there are go on; the first new one
is refused, and gets what its secret says now. No connection asks for it that is not refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import URL, Engine

from cloud_dispatch.domain.errors import DispatchError

log = structlog.get_logger(__name__)
#: Says the URL of the database as it is now, with its password; DispatchError where that can't be known.
Renewed = Callable[[], str]


class Login:
    """`url` until it is refused, then what `renewed` says, parsed by `parse`; `connect` makes a
    connection by either."""

    def __init__(
        self, url: URL, renewed: Renewed, parse: Callable[[str], URL], connect: Callable[[Any, URL], Any]
    ) -> None:
        self._url = url
        self._connect = connect
        self._renewed = renewed
        self._parse = parse
        self._asking = threading.Lock()

    def use(self, engine: Engine) -> None:
        """Have `engine` connect by it."""
        sa.event.listen(engine, "do_connect", self._log_in)

    def _log_in(self, dialect: Any, _record: object, _args: object, _parameters: object) -> Any:
        url = self._url
        try:
            return self._connect(dialect, url)
        except dialect.loaded_dbapi.OperationalError as error:
            # A text would be in the language of the server. Whoever was asked for a password, and has sent one, was
            # refused for it, or comes in with no other one either.
            if not getattr(getattr(error, "pgconn", None), "used_password", False):
                raise
            return self._connect(dialect, self._anew(url, error, dialect.loaded_dbapi))

    def _anew(self, refused: URL, error: Exception, driver: Any) -> URL:
        """The URL to try next; the refusal again, where there is no other."""
        with self._asking:
            if self._url == refused:  # nobody else has asked meanwhile
                try:
                    told = self._parse(self._renewed())
                except DispatchError as why:
                    # As the driver's error it says to whoever waits for a commit that nothing was done.
                    raise driver.OperationalError(f"{error}; and nobody knows another one: {why.message}") from None
                if told == refused:
                    raise error
                log.info("statestore.login_renewed", user=told.username)
                self._url = told
            return self._url
