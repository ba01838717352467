"""A fake Azure of each test's own, and credentials for it where the SDK looks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.spi import ProfileContext
from cloud_dispatch_azure.driver import AzureProvider
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import Settings
from tests.fakes.clock import RealClock
from tests.providers.azure import scenes
from tests.providers.azure.steps import Connect


@pytest.fixture
def quotas() -> dict[str, int]:
    """vCPUs by the name of a usage; a test may change them."""
    return {}


@pytest.fixture
def pace() -> dict[str, object]:
    """How long things take at the fake, by its settings' names, where not as usual."""
    return {}


@pytest.fixture
def fake(quotas: dict[str, int], pace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeArm]:
    """Leaving fails where something was asked that the fake has not."""
    with FakeArm(Settings(quotas=quotas, **pace), RealClock()) as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        yield fake


@pytest.fixture
async def connect(fake: FakeArm, tmp_path: Path) -> AsyncIterator[Connect]:
    """A driver with these settings beyond those for the fake; closed after the test."""
    made: list[AzureProvider] = []

    def make(now: Callable[[], int] = fake.clock.now, **more: object) -> AzureProvider:
        places = {"endpoint_url": fake.url, "authority_url": fake.url, "prices_url": fake.prices_url}
        said = scenes.settings(**{**places, "ca_file": fake.ca_file, "consistency": "0s", **more})
        made.append(AzureProvider(ProfileContext(ProfileName("azure"), said, tmp_path, now=now)))
        return made[-1]

    yield make
    for driver in made:
        await driver.close()
