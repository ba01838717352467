"""The suite for a real account works: it runs against the fake EC2 here, and it is not run unasked."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.ec2 import FakeEc2
from tests.providers.live import check_that_it_has_to_be_asked_for, check_that_it_passes


def test_a_real_account_is_asked_only_on_request() -> None:
    """Without the marker nothing of it is run; with it and no account it fails and says what is missing."""
    check_that_it_has_to_be_asked_for("aws")


def test_the_suite_passes_where_the_driver_is_right(fake: FakeEc2, tmp_path: Path) -> None:
    """Both markets, and nothing is left in the account."""
    (tmp_path / "config.toml").write_text(
        f"""
[profiles.aws]
driver = "aws"
region = "us-east-1"
endpoint_url = "{fake.url}"
instance_types = ["t3.micro"]
images = {{x86_64 = "ami-0a1b2c3d4e5f60004"}}
prices = {{"t3.micro" = "0.0104"}}
consistency = "0s"
guest_enforced = true
caps = {{instances = 1}}
budget = {{total = "$1"}}
"""
    )
    check_that_it_passes("aws", tmp_path / "config.toml")
    assert {one.state for one in fake.all_instances()} <= {"shutting-down", "terminated"}
    assert len(fake.all_instances()) == 2
