"""The suite in a project of somebody else: without our configuration of pytest, in either mode of pytest-asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THEIRS = """
import pytest

from cloud_dispatch.testing.provider_contract import ProviderContract
from tests.providers.memory import NAMED, MemoryCloud, MemoryProvider


class Theirs(MemoryProvider):
    async def list(self, deployment):
        found = await super().list("")
        return found


class TestTheirs(ProviderContract):
    settle_s = 5.0

    @pytest.fixture
    def connect(self):
        cloud = MemoryCloud(NAMED)
        return lambda: Theirs(cloud)
"""


@pytest.mark.process
@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_it_runs_and_explains_what_it_finds(tmp_path: Path, mode: str) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nasyncio_mode = {mode}\nfilterwarnings = error\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    few = "test_a_listing_shows_one_deployment or test_terminate_of_an_unknown_vm_succeeds"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", few, "test_theirs.py"],
        cwd=tmp_path, env=kept | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    assert "AssertionError: assert set() == {" in done.stdout, done.stdout[-3000:]


def test_the_package_needs_no_pytest() -> None:
    """Who installs the product has no pytest, and may import all of it."""
    code = "import sys; sys.modules['pytest'] = None; import cloud_dispatch.testing"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
