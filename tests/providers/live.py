"""Runs the suites for real accounts, as somebody who has one would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]


def suite(driver: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`pytest` on the suite of `driver`, with these arguments and this in its environment. Its temporary folders are
    its own: at its start it closes those of all runs to other users, also where a test of this run has opened them."""
    path = f"tests/live/test_{driver}.py"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path, *arguments],
            cwd=ROOT, env=kept | {"PYTEST_DEBUG_TEMPROOT": folder} | environment, capture_output=True, text=True,
            timeout=100, check=False,
        )  # fmt: skip


def check_that_it_has_to_be_asked_for(driver: str) -> None:
    """Without the marker nothing of it is run; with it and no account it fails and says what is missing."""
    assert "3 deselected" in suite(driver).stdout
    asked = suite(driver, "-m", f"live_{driver}", CLOUD_DISPATCH_LIVE_CONFIG="")
    assert asked.returncode == 1
    assert "say which account: CLOUD_DISPATCH_LIVE_CONFIG" in asked.stdout, asked.stdout[-3000:]


def check_that_it_passes(driver: str, config: Path) -> None:
    """All of it, on a fake that answers at once."""
    said = {"CLOUD_DISPATCH_LIVE_CONFIG": str(config), "CLOUD_DISPATCH_LIVE_FAKE": "1"}
    done = suite(driver, "-m", f"live_{driver}", **said)
    assert "3 passed" in done.stdout, done.stdout[-3000:]
