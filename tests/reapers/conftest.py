"""What the tests of the reapers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.aws import sdk


@pytest.fixture(autouse=True, scope="session")
def _models() -> Iterator[None]:
    with sdk.shared_models():
        yield
