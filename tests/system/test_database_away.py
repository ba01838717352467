"""A dispatcher whose PostgreSQL goes away under load and comes back, over real processes."""

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
