"""Attempts of an instance are found by stretches of tokens: all of them, and without reading the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.statestore.migrate import upgrade
from cloud_dispatch.statestore.schema import attempts
from cloud_dispatch.statestore.stretches import of_instance, stretch_of


@contextmanager
def stored(tokens: dict[int, str]) -> Iterator[sa.Connection]:
    """A store in memory with one attempt a token, on the instance said. It is closed: 3.13 warns of one that is not."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        _fill(connection, tokens)
        yield connection
    engine.dispose()


def _fill(connection: sa.Connection, tokens: dict[int, str]) -> None:
    upgrade(connection)
    connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    rows = [
        {"task": token, "token": token, "number": 1, "instance": instance, "claimed_ms": 0, "ended_ms": 0,
         "cause": "success", "detail": "", "max_rss": 0, "cpu_ms": 0, "stretch": stretch_of(token)}
        for token, instance in tokens.items()
    ]  # fmt: skip
    if rows:
        connection.execute(sa.insert(attempts), rows)


@given(
    st.dictionaries(
        st.one_of(st.integers(1, 5000), st.integers(1, 2**62)), st.sampled_from(["a", "b", "c"]), max_size=40
    )
)
def test_every_attempt_of_an_instance_is_found_and_no_other(tokens: dict[int, str]) -> None:
    """Across the borders of stretches, with gaps, and for an instance that has none."""
    with stored(tokens) as connection:
        for instance in ("a", "b", "c", "d"):
            found = connection.scalars(of_instance(instance, attempts.c.token)).all()
            assert sorted(found) == sorted(token for token, at in tokens.items() if at == instance)


def test_the_lookup_reads_by_the_index() -> None:
    """SQLite seeks in the index of stretches; it scans no table of attempts."""
    with stored({1: "a"}) as connection:
        query = of_instance("a", attempts.c.ended_ms).compile(connection, compile_kwargs={"literal_binds": True})
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
    assert any("attempts_instance (stretch=? AND instance=?)" in step for step in plan), plan
    assert not any(step.startswith("SCAN attempts") for step in plan), plan
