"""Brings a database to this version's tables. Owns the use of Alembic; the steps are in `migrations/versions`.

Alembic is loaded when there is a step to take: most dispatchers, and all who only look, find their tables as they are
to be. Which revision those are at, and which is this version's, is found without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import column, inspect, select, table
from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.domain.errors import Conflict, InvalidInput
from cloud_dispatch.statestore.engine import at_length

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER = Path(__file__).parent / "migrations"
#: Alembic's, which holds one row: the revision.
VERSION = table("alembic_version", column("version_num"))


def _config(connection: Connection) -> Config:
    from alembic.config import Config

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
            with at_length(connection), connection.begin():  # the commit of it all may take long, too
                yield connection
        finally:
            _heed_references(connection, True)


def _heed_references(connection: Connection, heed: bool) -> None:
    """Outside a transaction: within one SQLite would not listen."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        driver.execute(f"PRAGMA foreign_keys={'ON' if heed else 'OFF'}")


def _known() -> list[str]:
    """The revisions that this version knows, its own last: the steps are in one line, and the names of their files
    begin with their numbers. Alembic would read and compile every step for it."""
    return sorted(step.name.partition("_")[0] for step in (_FOLDER / "versions").glob("[0-9]*.py"))


def _head() -> str:
    return _known()[-1]


def revision(connection: Connection) -> str | None:
    """The revision that the tables are at; None before the first."""
    if not inspect(connection).has_table(VERSION.name):
        return None
    found: str | None = connection.scalar(select(VERSION.c.version_num))
    return found


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run what is missing, in the caller's transaction. Conflict when the tables are newer than this version."""
    current = revision(connection)
    if current is not None and current == _head() and to == "head":
        return
    from alembic import command
    from alembic.util.exc import CommandError

    config = _config(connection)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        command.upgrade(config, to)
    except CommandError as error:
        unknown = current if to == "head" else to
        raise Conflict(
            f"the statestore's tables are at revision {unknown}, which this version does not know: {error}",
            hint="it was opened by a newer cloud-dispatch: upgrade this one, or restore a backup made by it",
        ) from None


def downgrade(connection: Connection, to: str) -> None:
    """Take steps back, in the caller's transaction; what newer columns held is lost. InvalidInput for a revision that
    this version does not know, or that is not behind."""
    from alembic import command
    from alembic.util.exc import CommandError

    current = revision(connection)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        command.downgrade(_config(connection), to)
    except CommandError as error:
        raise InvalidInput(
            f"there is no way back to revision {to!r}: {error}",
            place="--to",
            hint=f"the tables are at {current}, and this version knows {', '.join(_known())}",
        ) from None
