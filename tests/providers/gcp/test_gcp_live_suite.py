"""The suite for a real project works: it runs against the fake here, and it is not run unasked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.gce import FakeGce

ROOT = Path(__file__).parents[3]


def suite(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/live/test_gcp.py", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_real_project_is_asked_only_on_request() -> None:
    """Without the marker nothing of it is run; with it and no project it fails and says what is missing."""
    assert "3 deselected" in suite().stdout
    asked = suite("-m", "live_gcp", CLOUD_DISPATCH_LIVE_CONFIG="")
    assert asked.returncode == 1
    assert "say which account: CLOUD_DISPATCH_LIVE_CONFIG" in asked.stdout


def test_the_suite_passes_where_the_driver_is_right(fake: FakeGce, tmp_path: Path) -> None:
    """Both markets, and nothing is left in the project."""
    (tmp_path / "config.toml").write_text(
        f"""
[profiles.gcp]
driver = "gcp"
project = "fake-project"
regions = ["us-central1"]
endpoint_url = "{fake.url}"
credentials_file = "{fake.write_key(tmp_path)}"
instance_types = ["e2-micro"]
consistency = "0s"
operation_poll = "100ms"
caps = {{instances = 1}}
budget = {{total = "$1"}}
"""
    )
    said = {"CLOUD_DISPATCH_LIVE_CONFIG": str(tmp_path / "config.toml"), "CLOUD_DISPATCH_LIVE_FAKE": "1"}
    done = suite("-m", "live_gcp", **said)
    assert "3 passed" in done.stdout, done.stdout[-3000:]
    assert fake.all_instances() == []
    assert len(fake.ever()) == 2
