"""Charges that are added up: whatever was spent and however often, no limit counts otherwise than before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.money import Amount, Rate, charge
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import DAY_MS, Window
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.folding import Fold
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.purse import Purse
from cloud_dispatch.statestore.schema import charges
from cloud_dispatch.testing.store_builders import START_MS
from tests.migrated import migrated_store

NAMES = ("", "a", "b")
BUDGETS = [
    Budget(Key(scope, name), window, Amount(1))
    for scope in (Scope.PROJECT, Scope.USER)
    for name in NAMES[1:]
    for window in Window
]
CHARGES = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from(NAMES),
        st.integers(0, 400 * DAY_MS), st.integers(0, 3 * DAY_MS), st.integers(0, 10**10),
    ),
    max_size=30,
)  # fmt: skip


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    engine = make_engine(parse_url(migrated_store(Path(tmp_path_factory.mktemp("folding")) / "store.db")))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def fold(connection: sa.Connection, now_ms: int, most: int) -> int:
    """As a commit does it."""
    one = Fold(now_ms, most)
    one.prepare(connection)
    one.plan(batch := Batch(Memory()))
    for statement, rows in batch.after:
        connection.execute(statement, list(rows) or None)
    return one.answer({})


def read(connection: sa.Connection, now_ms: int) -> dict[object, int]:
    purse = Purse(BUDGETS)
    purse.read(connection, now_ms)
    return dict(purse.spent)


@given(CHARGES, st.lists(st.integers(0, 100 * DAY_MS), max_size=4), st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_no_window_counts_otherwise(
    connection: sa.Connection, spent: list[tuple[str, str, int, int, int]], waits: list[int], most: int
) -> None:
    """At any moment from then on, in total, a month, a day and an hour; and one row a payer is left of what is old."""
    transaction = connection.begin()
    for token, (project, user, after_ms, long_ms, rate) in enumerate(spent, 1):
        start = START_MS + after_ms
        row = (token, token, "i", project, user, start, start + long_ms, rate, charge(Rate(rate), long_ms))
        connection.execute(sa.insert(charges).values(row))
    now = START_MS + 200 * DAY_MS
    for wait in waits:
        now += wait
        before = [read(connection, at) for at in (now, now + DAY_MS)]
        while fold(connection, now, most) == most:
            pass
        assert [read(connection, at) for at in (now, now + DAY_MS)] == before
        newest = max((START_MS + after_ms + long_ms for _, _, after_ms, long_ms, _ in spent), default=0)
        old_ms = min(now, newest) - 62 * DAY_MS
        old = sa.select(charges.c.project, charges.c.user_name).where(charges.c.until_ms < old_ms)
        payers = connection.execute(old).all()
        assert len(payers) == len(set(payers))
    transaction.rollback()


def test_what_was_added_up_counts_also_where_the_clock_was_put_back(connection: sa.Connection) -> None:
    """By years, in total: what was spent since is booked before it was spent, and yet it was."""
    with connection.begin() as transaction:
        spend(connection, 0, 99)
        assert fold(connection, START_MS + 100 * DAY_MS, 10) == 1
        total = {account: spent for account, spent in read(connection, DAY_MS).items() if spent}
        assert max(total.values()) == 48_000_000
        transaction.rollback()


def test_a_clock_that_is_far_ahead_takes_nothing_out_of_a_window_that_is_open(connection: sa.Connection) -> None:
    """A dispatcher may start with it, and nobody knows better then; by the newest charge none is old."""
    with connection.begin() as transaction:
        spend(connection, 0, 20)
        now = START_MS + 21 * DAY_MS
        before = read(connection, now)
        assert fold(connection, now + 400 * DAY_MS, 10) == 0
        assert read(connection, now) == before
        spend(connection, 63)
        assert fold(connection, now + 400 * DAY_MS, 10) == 1
        transaction.rollback()


def test_a_charge_of_a_clock_that_was_ahead_takes_nothing_out_of_a_window_that_is_open(
    connection: sa.Connection,
) -> None:
    """It was put right since: by the newest charge all others are old, and yet this month is not over."""
    with connection.begin() as transaction:
        spend(connection, 20, 420)
        now = START_MS + 21 * DAY_MS
        before = read(connection, now)
        assert fold(connection, now, 10) == 0
        assert read(connection, now) == before
        transaction.rollback()


def spend(connection: sa.Connection, *days: int) -> None:
    """A day's charges that end on the day after each of these."""
    for day in days:
        start = START_MS + day * DAY_MS
        row = (day + 1, 1, "i", "a", "", start, start + DAY_MS, 10**9, 24_000_000)
        connection.execute(sa.insert(charges).values(row))


def test_what_is_looked_at_does_not_grow_with_what_was_added_up_or_is_too_young(connection: sa.Connection) -> None:
    """A thousand of each: neither is gone through to find that there is nothing to be done."""
    with connection.begin() as transaction:
        for at, many in ((START_MS, 1_000), (START_MS + 100 * DAY_MS, 1_000)):
            rows = [(at + n, 1, "i", "a", "", at + n, at + n, 1, 1) for n in range(many)]
            connection.execute(sa.insert(charges), [dict(zip(charges.c.keys(), row, strict=True)) for row in rows])
        now = START_MS + 101 * DAY_MS
        assert fold(connection, now, 2_000) == 1_000
        steps = [0]

        def count() -> int:
            steps[0] += 1
            return 0

        driver = connection.connection.dbapi_connection
        driver.set_progress_handler(count, 10)  # type: ignore[union-attr]
        assert fold(connection, now, 2_000) == 0
        driver.set_progress_handler(None, 0)  # type: ignore[union-attr]
        assert steps[0] < 100
        transaction.rollback()
