"""The suite for a real account works: it runs against the fake Azure here, and it is not run unasked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.arm.fake import FakeArm
from tests.providers.azure import scenes

ROOT = Path(__file__).parents[3]


def suite(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/live/test_azure.py", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_real_account_is_asked_only_on_request() -> None:
    """Without the marker nothing of it is run; with it and no account it fails and says what is missing."""
    assert "3 deselected" in suite().stdout
    asked = suite("-m", "live_azure", CLOUD_DISPATCH_LIVE_CONFIG="")
    assert asked.returncode == 1
    assert "say which subscription: CLOUD_DISPATCH_LIVE_CONFIG" in asked.stdout


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
    said = {"CLOUD_DISPATCH_LIVE_CONFIG": str(tmp_path / "config.toml"), "CLOUD_DISPATCH_LIVE_FAKE": "1"}
    done = suite("-m", "live_azure", **said)
    assert "3 passed" in done.stdout, done.stdout[-3000:]
    assert fake.all_vms() == []
    assert fake.leftovers() == []
    assert fake.calls["VirtualMachines_CreateOrUpdate"] == 4
