from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.house import House

MakeHouse = Callable[..., House]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/system/" in item.path.as_posix():
            item.add_marker(pytest.mark.process)


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
