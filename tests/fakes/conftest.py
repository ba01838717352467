"""A fake EC2 for each test, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.clock import SetClock
from tests.fakes.ec2 import FakeEc2
from tests.fakes.gce import FakeGce
from tests.fakes.gce.asking import Asker


@pytest.fixture
def aws() -> Iterator[FakeEc2]:
    """Fails the test for what the fake has not, and for bugs of the fake."""
    with FakeEc2(clock=SetClock()) as fake:
        yield fake


@pytest.fixture
def ec2(aws: FakeEc2) -> Any:
    """A boto3 client of it that never retries."""
    return aws.client()


@pytest.fixture
def gce() -> Iterator[FakeGce]:
    """The same of Google's."""
    with FakeGce(clock=SetClock()) as fake:
        yield fake


@pytest.fixture
def ask(gce: FakeGce) -> Asker:
    """Asks it over plain HTTP."""
    return Asker(gce)
