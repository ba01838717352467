"""The suite for a real account works: it runs against the fake Azure here, and it is not run unasked."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.arm.fake import FakeArm
from tests.providers.azure import scenes
from tests.providers.live import check_that_it_has_to_be_asked_for, check_that_it_passes


def test_a_real_account_is_asked_only_on_request() -> None:
    """Without the marker nothing of it is run; with it and no account it fails and says what is missing."""
    check_that_it_has_to_be_asked_for("azure")


def test_the_suite_passes_where_the_driver_is_right(fake: FakeArm, tmp_path: Path) -> None:
    """Both markets, and nothing is left in the account."""
    (tmp_path / "config.toml").write_text(
        f"""
[profiles.azure]
driver = "azure"
subscription = "{scenes.fake.SUBSCRIPTION}"
resource_group = "{scenes.fake.GROUP}"
region = "{scenes.REGION}"
subnet = "{scenes.SUBNET}"
endpoint_url = "{fake.url}"
authority_url = "{fake.url}"
prices_url = "{fake.prices_url}"
ca_file = "{fake.ca_file}"
sizes = ["Standard_D2s_v5"]
consistency = "0s"
guest_enforced = true
caps = {{instances = 1}}
budget = {{total = "$1"}}
"""
    )
    check_that_it_passes("azure", tmp_path / "config.toml")
    assert fake.all_vms() == []
    assert fake.leftovers() == []
    assert fake.calls["VirtualMachines_CreateOrUpdate"] == 4
