"""What a real AWS account says to the driver: `pytest -m live_aws` (`suite` says what it needs).

Not run by `make test`, and never yet against AWS itself: there was no account. So that it works when somebody has one,
`tests/providers/aws/test_aws_live_suite.py` runs it against the fake EC2.
"""

from __future__ import annotations

import pytest

from tests.live.suite import LiveSuite

pytestmark = [pytest.mark.live_aws, pytest.mark.timeout(1200)]


class TestAws(LiveSuite):
    driver = "aws"
