"""A fake Azure of each test's own, and credentials for it where the SDK looks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.settings import Settings
from tests.fakes.clock import RealClock


@pytest.fixture
def quotas() -> dict[str, int]:
    """vCPUs by the name of a usage; a test may change them."""
    return {}


@pytest.fixture
def fake(quotas: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeArm]:
    """Leaving fails where something was asked that the fake has not."""
    with FakeArm(Settings(quotas=quotas), RealClock()) as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        yield fake
