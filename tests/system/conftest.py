from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.ec2 import Settings
from tests.fakes.ec2.settings import KEY
from tests.providers.aws import scenes
from tests.system.aws import ENDING_MS, PENDING_MS, TYPES, Account, MakeAccount, WatchedEc2
from tests.system.house import House

MakeHouse = Callable[..., House]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/system/" in item.path.as_posix():
            item.add_marker(pytest.mark.process)
            item.add_marker(pytest.mark.system)


@pytest.fixture
def make_house(tmp_path: Path) -> Iterator[MakeHouse]:
    """Makes deployments whose processes end with the test."""
    houses: list[House] = []

    def make(**more: Any) -> House:
        folder = tmp_path / f"house{len(houses)}"
        folder.mkdir()
        houses.append(House(folder, **more))
        return houses[-1]

    yield make
    for house in houses:
        house.clean_up()


@pytest.fixture
def house(make_house: MakeHouse) -> House:
    """A dispatcher that is up."""
    made = make_house()
    made.up()
    return made


@pytest.fixture
def settings() -> Settings:
    """What the fake EC2 is like; a test may say otherwise."""
    return Settings(types=TYPES, pending_ms=PENDING_MS, shutting_down_ms=ENDING_MS)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake EC2's, where the SDK looks."""
    for name, value in {**scenes.CREDENTIALS, "AWS_ACCESS_KEY_ID": KEY.id, "AWS_SECRET_ACCESS_KEY": KEY.secret}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fake(settings: Settings, keys: None) -> Iterator[WatchedEc2]:
    """A fake EC2 of the test's own. The test fails where at its end inventory and its dispatchers' state are not alike,
    and where the fake was asked for what it has not."""
    with WatchedEc2(settings) as made:
        yield made


@pytest.fixture
def make_account(tmp_path: Path, fake: WatchedEc2) -> MakeAccount:
    """Makes a deployment whose VMs are instances of the fake."""
    return lambda **more: Account(tmp_path, fake, **more)
