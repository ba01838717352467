"""Values that the database takes for none, or for too large ones: who gave them is told, and nobody else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.ports.store import TaskFilter
from cloud_dispatch.statestore import SqlStore
from cloud_dispatch.testing.store_builders import ManualClock, spec
from tests.statestore.conftest import stores

#: More than an index holds, and of a kind that does not get smaller by compression.
TOO_LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))


@pytest.fixture
async def store(migrated_postgres_url: str) -> AsyncIterator[SqlStore]:
    async with stores(migrated_postgres_url) as open_one:
        yield await open_one(ManualClock())


def session_of(store: SqlStore) -> int:
    """Which session of the database the store writes by."""
    connection = store._writer._open()
    with connection.begin():
        return int(connection.scalar(sa.text("SELECT pg_backend_pid()")) or 0)


async def test_a_value_that_the_database_refuses_is_its_writers_error_alone(store: SqlStore) -> None:
    """Those who share its transaction are answered, the session of the lock is kept, and the store is not in trouble:
    a caller who took it for that would send the same again for ever."""
    await store.submit([spec()])
    session = session_of(store)
    answers = await asyncio.gather(
        store.set_fact("a", "with\0 it"),
        store.submit([spec()]),
        store.submit([spec(project=TOO_LONG)]),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [InvalidInput, list, InvalidInput]
    assert "index row" in str(answers[2])
    assert TOO_LONG not in str(answers[2])
    assert (store.trouble(), session_of(store)) == ("", session)
    assert await store.submit([spec()]) == [3]
    assert await store.check() == []


async def test_a_question_by_such_a_value_is_bad_input_too(store: SqlStore) -> None:
    """Looked for by a list, and by what has to be read before a commit."""
    with pytest.raises(InvalidInput, match="refuses a value"):
        await store.tasks(TaskFilter(project="with\0 it"))
    with pytest.raises(InvalidInput, match="refuses a value"):
        await store.cancel(TaskFilter(project="with\0 it"))
    assert store.trouble() == ""
