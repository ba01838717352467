"""Brings a database to this version's tables. Owns the use of Alembic; the steps are in `migrations/versions`."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import Conflict

_FOLDER = Path(__file__).parent / "migrations"


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


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
    """Take steps back, for tests and for emergencies; what newer columns held is lost."""
    command.downgrade(_config(connection), to)
