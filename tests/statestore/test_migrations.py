"""The migrations make exactly the tables that the models say, on both databases, and there is a way back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.statestore import migrate
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.migrate import downgrade, revision, upgrade
from cloud_dispatch.statestore.schema import metadata
from cloud_dispatch.testing.store_builders import ManualClock
from tests.migrated import migrated_store
from tests.statestore.conftest import stores


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def indexes(connection: sa.Connection) -> dict[str, tuple[object, ...]]:
    """Every index with its columns and its condition, which Alembic's comparison leaves out."""
    found = {}
    for table in metadata.tables:
        for index in sa.inspect(connection).get_indexes(table):
            options = {k: str(v) for k, v in index.get("dialect_options", {}).items() if k.endswith("_where")}
            found[str(index["name"])] = (tuple(index["column_names"]), index["unique"], tuple(options.values()))
    return found


def test_models_and_migrations_agree(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tables, columns, types, keys and indexes are the same whether made from the models or step by step."""
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        upgrade(connection)
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        migrated = indexes(connection)
    with engine.begin() as connection:
        downgrade(connection, "base")
        metadata.create_all(connection)
        assert indexes(connection) == migrated
        assert len(migrated) >= 8
    engine.dispose()


def test_what_is_found_without_alembic_is_what_it_finds(url: str) -> None:
    """The revision of this version, and that of tables: before the first, at one, at the last, and back at none."""
    steps = ScriptDirectory(str(migrate._FOLDER))
    assert migrate._head() == steps.get_current_head()
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:

        def told() -> str | None:
            found = MigrationContext.configure(connection).get_current_revision()
            assert revision(connection) == found
            return found

        seen = [told()]
        for to in ("0001", "head"):
            upgrade(connection, to)
            seen.append(told())
        downgrade(connection, "base")
        assert [*seen, told()] == [None, "0001", steps.get_current_head(), None]
    engine.dispose()


def test_who_has_no_step_to_take_does_without_alembic(tmp_path: Path) -> None:
    """It takes a twentieth of a second to load."""
    url = migrated_store(tmp_path / "store.sqlite")
    program = f"""
import sys
from cloud_dispatch.statestore import revision_of
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.migrate import upgrade
with make_engine(parse_url({url!r})).begin() as connection:
    upgrade(connection)
print(revision_of({url!r}), "alembic" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [migrate._head(), "False"]


def test_a_round_trip_leaves_nothing(url: str) -> None:
    """Down to nothing and up again; upgrading what is up to date does nothing."""
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        upgrade(connection)
        upgrade(connection)
        assert revision(connection) == "0004"
        downgrade(connection, "base")
        assert revision(connection) is None
        assert set(sa.inspect(connection).get_table_names()) <= {"alembic_version"}
        upgrade(connection)
    engine.dispose()


async def test_newer_tables_are_refused(url: str) -> None:
    """A store that a newer version has migrated is left alone, with a hint what to do."""
    async with stores(url) as open_one:
        await (await open_one(ManualClock())).close()
        engine = make_engine(parse_url(url))
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        engine.dispose()
        with pytest.raises(Conflict, match="9999") as refused:
            await open_one(ManualClock())
        assert "upgrade" in refused.value.hint
