"""Statements are compiled once a process and kind of database, whichever engine they run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from cloud_dispatch.statestore import engine as engine_module
from cloud_dispatch.statestore.engine import _Compiled, make_engine, parse_url


def test_a_statement_is_compiled_for_the_first_engine_alone(tmp_path: Path, monkeypatch: Any) -> None:
    compiled: list[Dialect] = []
    real = SQLCompiler.__init__

    def counted(self: SQLCompiler, dialect: Dialect, *args: Any, **kwargs: Any) -> None:
        compiled.append(dialect)
        real(self, dialect, *args, **kwargs)

    monkeypatch.setattr(SQLCompiler, "__init__", counted)
    monkeypatch.setattr(engine_module, "_OPTIONS", {"compiled_cache": _Compiled()})
    statement: Any = sa.select(sa.literal_column("41 + 1").label("only_asked_here"), sa.bindparam("more", 0))
    for number in range(3):
        engine = make_engine(parse_url(f"sqlite:///{tmp_path}/{number}.db"))
        with engine.connect() as connection:
            assert tuple(connection.execute(statement, {"more": number}).one()) == (42, number)
        engine.dispose()
    assert len(compiled) == 1


def _postgresql() -> Any:
    make: Any = psycopg.dialect
    return make(paramstyle="format")


def test_each_kind_of_database_has_its_own() -> None:
    known = _Compiled()
    lite, post = pysqlite.dialect(), _postgresql()
    known[lite, "statement"] = "for SQLite"
    assert known.get((pysqlite.dialect(), "statement")) == "for SQLite"
    assert known.get((post, "statement")) is None
    assert known.get((lite, "another")) is None
    newer = _postgresql()
    newer.server_version_info = (17, 0)
    known[post, "statement"] = "for one whose version is not known"
    assert known.get((newer, "statement")) is None


def test_they_are_not_kept_without_bound() -> None:
    known, dialect = _Compiled(), pysqlite.dialect()
    for number in range(5_000):
        known[dialect, number] = number
    assert len(known) < 2_000
    assert known.get((dialect, 4_999)) == 4_999
