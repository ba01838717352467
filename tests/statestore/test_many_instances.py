"""A store that remembers many instances that are gone: keeping house costs in proportion to them, not their square."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.care import Prune, past_retention
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.invariants import problems_in
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.rows import instance_row
from cloud_dispatch.statestore.schema import instances, intents
from cloud_dispatch.testing.store_builders import START_MS, instance, intent
from tests.migrated import migrated_store

FEW, MANY = 200, 1_600


@contextmanager
def stored(path: Path, launches: int) -> Iterator[sa.Connection]:
    """So many launches of two VMs each, which are gone since `START_MS` plus their number and their slot."""
    engine = make_engine(parse_url(migrated_store(path)))
    rows, made = [], []
    for number in range(launches):
        wanted = intent(f"b{number:06d}", 2)
        made.append({column.name: getattr(wanted, column.name) for column in intents.c})
        for slot in (0, 1):
            ended_ms = START_MS + number + slot
            gone = instance(wanted.batch, slot, state=InstanceState.GONE, vm=f"{number}-{slot}", ended_ms=ended_ms)
            rows.append(instance_row(gone))
    with engine.begin() as connection:
        connection.execute(sa.insert(instances), rows)
        connection.execute(sa.insert(intents), made)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def prune(connection: sa.Connection) -> None:
    """As a commit does it, of all that were gone one millisecond after the first."""
    found, _ = past_retention(connection, "instances", START_MS + 2, None, 1_000)
    one = Prune({"instances": found})
    one.prepare(connection)
    one.plan(batch := Batch(Memory()))
    for statement, rows in [*batch.before, *batch.after]:
        connection.execute(statement, list(rows) or None)


def steps(connection: sa.Connection, act: Callable[[sa.Connection], object]) -> int:
    """How many hundreds of SQLite's own instructions that takes."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    connection.connection.dbapi_connection.set_progress_handler(count, 100)  # type: ignore[union-attr]
    act(connection)
    return counted[0]


@pytest.mark.parametrize("act", [prune, problems_in])
def test_it_does_not_take_their_square(tmp_path: Path, act: Callable[[sa.Connection], object]) -> None:
    """Eight times as many: some eight times as much. With their square a hundred thousand of them, as a quarter of a
    year may bring, held every commit up for five minutes."""
    with stored(tmp_path / "few.db", FEW) as few, stored(tmp_path / "many.db", MANY) as many:
        assert steps(many, act) < 12 * steps(few, act)


def test_an_intent_goes_with_its_last_instance(tmp_path: Path) -> None:
    """That of the first launch, whose two are past retention; the second has one left."""
    with stored(tmp_path / "store.db", 3) as connection:
        prune(connection)
        left = connection.scalars(sa.select(intents.c.batch).order_by(intents.c.batch)).all()
        assert left == ["b000001", "b000002"]
        assert len(connection.scalars(sa.select(instances.c.id)).all()) == 3
