"""Brings a database to this version's tables. Owns the use of Alembic; the steps are in `migrations/versions`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import Conflict, InvalidInput

_FOLDER = Path(__file__).parent / "migrations"


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A transaction in which tables may be made anew. SQLite alters one by moving its rows to another and dropping it,
    which would delete every row that refers to one of those; so nothing follows a reference meanwhile."""
    with engine.connect() as connection:
        _heed_references(connection, False)
        try:
            with connection.begin():
                yield connection
        finally:
            _heed_references(connection, True)


def _heed_references(connection: Connection, heed: bool) -> None:
    """Outside a transaction: within one SQLite would not listen."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.execute(f"PRAGMA foreign_keys={'ON' if heed else 'OFF'}")


@cache
def _head() -> str | None:
    """The revision of this version. Asked for once: Alembic reads and compiles every step for it."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def revision(connection: Connection) -> str | None:
    """The revision that the tables are at; None before the first."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run what is missing, in the caller's transaction. Conflict when the tables are newer than this version."""
    current = revision(connection)
    if current is not None and current == _head() and to == "head":
        return
    config = _config(connection)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        command.upgrade(config, to)
    except CommandError as error:
        raise Conflict(
            f"the statestore's tables are at revision {current}, which this version does not know: {error}",
            hint="it was opened by a newer cloud-dispatch: upgrade this one, or restore a backup made by it",
        ) from None


def downgrade(connection: Connection, to: str) -> None:
    """Take steps back, in the caller's transaction; what newer columns held is lost. InvalidInput for a revision that
    this version does not know, or that is not behind."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        command.downgrade(_config(connection), to)
    except CommandError as error:
        raise InvalidInput(f"there is no way back to revision {to!r}: {error}", place="--to") from None
