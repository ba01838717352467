"""What a real Google Cloud project says to the driver: `pytest -m live_gcp` (`suite` says what it needs).

Not run by `make test`, and never yet against Google Cloud itself: there was no project. So that it works when somebody
has one, `tests/providers/gcp/test_gcp_live_suite.py` runs it against the fake.
"""

from __future__ import annotations

import pytest

from tests.live.suite import LiveSuite

pytestmark = [pytest.mark.live_gcp, pytest.mark.timeout(1200)]


class TestGcp(LiveSuite):
    driver = "gcp"
