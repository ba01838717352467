"""A fake EC2 of each test's own, and credentials for it where the SDK looks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.aws import sdk
from tests.fakes.clock import RealClock
from tests.fakes.ec2 import FakeEc2, Settings
from tests.fakes.ec2.settings import KEY
from tests.providers.aws import scenes

ROLE = "arn:aws:iam::210987654321:role/dispatcher"


@pytest.fixture(autouse=True, scope="session")
def _models() -> Iterator[None]:
    with sdk.shared_models():
        yield


@pytest.fixture
def quotas() -> dict[str, int]:
    """vCPUs by quota code; a test may change them."""
    return {scenes.STANDARD: 64}


@pytest.fixture
def fake(quotas: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEc2]:
    """Leaving fails where something was asked that the fake has not."""
    credentials = {**scenes.CREDENTIALS, "AWS_ACCESS_KEY_ID": KEY.id, "AWS_SECRET_ACCESS_KEY": KEY.secret}
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    types, roles = ("m5.large", "m6i.large", "c5d.large", "t3.micro"), {ROLE: "shared-secret"}
    with FakeEc2(Settings(quotas=quotas, types=types, roles=roles), RealClock()) as fake:
        yield fake
