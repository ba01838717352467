"""A dispatcher whose PostgreSQL goes away or falls silent and comes back, over real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.statestore import rotating
from tests.statestore.rotating import Database
from tests.system.conftest import MakeHouse
from tests.system.house import CONFIG

STORE = """
[store]
url = "{url}"
"""


@pytest.fixture
def database() -> Iterator[Database]:
    with rotating.database() as made:
        yield made


def test_the_database_goes_and_comes_back(make_house: MakeHouse, database: Database) -> None:
    """What runs goes on and ends well, health says what is wrong as long as it is, and no bug shows in the log."""
    house = make_house(config=CONFIG + STORE.format(url=database.said))
    house.up()
    tasks = house.submit(*[{"command": ["sleep", "2"]} for _ in range(6)])
    house.until(lambda: house.counts().get("running"), 30, "a task to run")
    database.stop()
    assert house.ask("POST", "/v1/tasks", json={"tasks": [{"command": ["true"]}]}).status_code == 507
    health = house.get("/v1/health")
    assert health["status"] == "degraded"
    assert "can't commit" in health["problems"][0]
    database.start()
    house.until(lambda: house.get("/v1/health")["status"] == "ok", 30, "the statestore to be written again")
    assert house.until_all_ended(len(tasks))["succeeded"] == len(tasks)
    log = house.log.read_text()
    assert "Traceback" not in log
    assert "api.failed" not in log


def test_the_database_falls_silent_and_is_heard_again(make_house: MakeHouse, database: Database) -> None:
    """Its connections stay open and nobody answers. Whoever submits hears of it in time, health is answered all the
    while and says so, and what ran meanwhile is known afterwards."""
    house = make_house(config=CONFIG + STORE.format(url=database.said))
    house.up()
    tasks = house.submit(*[{"command": ["sleep", "2"]} for _ in range(2)])
    house.until(lambda: house.counts().get("running"), 30, "a task to run")
    database.halt()
    refused = house.ask("POST", "/v1/tasks", json={"tasks": [{"command": ["true"]}]})
    assert refused.status_code == 507
    assert "does not answer" in refused.text
    health = house.get("/v1/health")
    assert health["status"] == "degraded"
    assert "does not answer" in health["problems"][0]
    database.resume()
    house.until(lambda: house.get("/v1/health")["status"] == "ok", 30, "the statestore to be written again")
    house.until(lambda: house.counts().get("succeeded", 0) >= len(tasks), 30, "what ran to be known")
    log = house.log.read_text()
    assert "Traceback" not in log
    assert "api.failed" not in log
