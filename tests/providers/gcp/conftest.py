"""A fake Compute Engine of each test's own, a key of its service account, and drivers that use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.spi import ProfileContext, Provider
from cloud_dispatch_gcp import plugin
from tests.fakes.clock import RealClock
from tests.fakes.gce import FakeGce, Settings
from tests.fakes.gce.catalogue import TYPES
from tests.fakes.gce.settings import REGIONS
from tests.providers.gcp import scenes
from tests.providers.gcp.launching import Connect

#: Families that no test of the driver rents: each driver reads all types, and so a third of them.
UNOFFERED = frozenset(
    (name, zone)
    for name, kind in TYPES.items()
    for zones in REGIONS.values()
    for zone in zones
    if kind.family in ("n2d", "c2", "c3", "t2d") or name.startswith(("n2-high", "e2-high"))
)


@pytest.fixture
def quotas() -> dict[tuple[str, str], int]:
    """Limits by region and metric; a test may change them."""
    return {}


@pytest.fixture
def fake(quotas: dict[tuple[str, str], int]) -> Iterator[FakeGce]:
    """Leaving fails where something was asked that the fake has not."""
    with FakeGce(Settings(region_quotas=quotas, unoffered=UNOFFERED), RealClock()) as fake:
        yield fake


@pytest.fixture
def told(fake: FakeGce, tmp_path: Path) -> dict[str, Any]:
    """The settings that lead to it."""
    return {"endpoint_url": fake.url, "credentials_file": str(fake.write_key(tmp_path))}


@pytest.fixture
async def connect(fake: FakeGce, told: dict[str, Any], tmp_path: Path) -> AsyncIterator[Connect]:
    """Drivers by their settings; they are closed at the end."""
    made: list[Provider] = []

    def make(**more: Any) -> Provider:
        said = scenes.settings(**{**told, "consistency": "0s", "operation_poll": "100ms", **more})
        made.append(plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now)))
        return made[-1]

    yield make
    for driver in made:
        await driver.close()
