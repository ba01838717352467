"""A fake Compute Engine of each test's own, and a key of its service account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.clock import RealClock
from tests.fakes.gce import FakeGce, Settings


@pytest.fixture
def quotas() -> dict[tuple[str, str], int]:
    """Limits by region and metric; a test may change them."""
    return {}


@pytest.fixture
def fake(quotas: dict[tuple[str, str], int]) -> Iterator[FakeGce]:
    """Leaving fails where something was asked that the fake has not."""
    with FakeGce(Settings(region_quotas=quotas), RealClock()) as fake:
        yield fake


@pytest.fixture
def told(fake: FakeGce, tmp_path: Path) -> dict[str, Any]:
    """The settings that lead to it."""
    return {"endpoint_url": fake.url, "credentials_file": str(fake.write_key(tmp_path))}
