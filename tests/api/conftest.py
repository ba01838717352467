"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.api.house import House, served


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """The API, served over real HTTP on a store of its own."""
    async with served(tmp_path) as made:
        yield made
