"""What a real Azure subscription says to the driver: `pytest -m live_azure` (`suite` says what it needs).

Not run by `make test`, and never yet against Azure itself: there was none. So that it works when somebody has one,
`tests/providers/azure/test_azure_live_suite.py` runs it against the fake.
"""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.money import Rate
from tests.live.suite import LiveSuite

pytestmark = [pytest.mark.live_azure, pytest.mark.timeout(1200)]


class TestAzure(LiveSuite):
    driver = "azure"
    #: Twelve cents.
    most_rate = Rate(120_000_000)
    #: A VM that nobody ends bills on, whatever its guest does: look into the group after a run that was broken off.
    user_data = "#cloud-config\nruncmd: [echo]\n"
