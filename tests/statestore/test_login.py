"""A database that changes the password of its user by itself, as managed ones do: a real PostgreSQL, real refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import StoreUnavailable, Unavailable
from cloud_dispatch.statestore import open_store
from cloud_dispatch.statestore.engine import make_engine, parse_url, translate
from tests.fakes.clock import SetClock
from tests.statestore import rotating
from tests.statestore.conftest import CountingEntropy
from tests.statestore.rotating import Database

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with rotating.database() as made:
        yield made


@pytest.fixture
def database(server: Database) -> Database:
    server.rotate("first")
    server.said, server.asked = server.url("first"), 0
    return server


async def test_a_store_goes_on_after_its_password_was_changed(database: Database) -> None:
    """What is open stays open; a new connection is refused once, and the secret is asked for once by all of them."""
    store = await open_store(
        database.url("first"), clock=SetClock(), entropy=CountingEntropy(), executor=Inline(), renewed=database.renewed
    )
    await store.set_fact("before", "1")
    assert database.asked == 0
    database.rotate("second")
    database.said = database.url("second")
    await store.set_fact("still", "1")
    assert database.asked == 0
    database.hang_up()
    await store.set_fact("after", "1")
    database.hang_up()
    await store.set_fact("again", "1")
    assert database.asked == 1
    assert [store.fact(name) for name in ("before", "still", "after", "again")] == ["1"] * 4
    await store.close()


async def test_as_long_as_nobody_knows_the_password_nothing_is_committed_and_it_says_so(database: Database) -> None:
    """Then it goes on by itself. A password stands in no message."""
    store = await open_store(
        database.url("first"), clock=SetClock(), entropy=CountingEntropy(), executor=Inline(), renewed=database.renewed
    )
    database.rotate("second")
    database.hang_up()
    with pytest.raises(StoreUnavailable, match="authentication failed") as refused:
        await store.set_fact("a", "1")
    assert not [word for word in ("first", "second") if word in str(refused.value)]
    database.said = database.url("second")
    await store.set_fact("a", "2")
    assert store.fact("a") == "2"
    await store.close()


def test_whoever_can_not_be_asked_is_named_beside_the_refusal(database: Database) -> None:
    def silent() -> str:
        raise Unavailable("the secret db: no answer within 45 s", place="store.password")

    engine = make_engine(parse_url(database.url("wrong")), silent)
    with pytest.raises(sa.exc.OperationalError) as refused:
        engine.connect()
    said = str(translate(refused.value, engine.url))
    assert "authentication failed" in said
    assert "the secret db: no answer within 45 s" in said
    assert "wrong" not in said


def test_a_server_that_is_not_there_is_no_reason_to_ask(database: Database) -> None:
    url = parse_url("postgresql://disp:x@127.0.0.1:1/queue")
    with pytest.raises(sa.exc.OperationalError):
        make_engine(url, database.renewed).connect()
    assert database.asked == 0
