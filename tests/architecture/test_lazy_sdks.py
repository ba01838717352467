"""Loading the drivers costs nothing and needs no SDK: whoever uses one cloud installs and imports one SDK."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_dispatch.cli.main import MODULES

GROUP = "cloud_dispatch.providers"
SDKS = ("azure", "boto3", "botocore", "google", "kubernetes")
#: Loads what it is told and prints which SDKs that brought along.
PROBE = f"""
import importlib, json, sys
module, _, name = sys.argv[1].partition(":")
value = importlib.import_module(module)
for part in filter(None, name.split(".")):
    value = getattr(value, part)
print(json.dumps(sorted({{loaded.split(".")[0] for loaded in sys.modules}} & set({SDKS!r}))))
"""


def sdks_loaded_by(target: str, folder: Path | None = None) -> list[str]:
    """The SDKs in sys.modules of a fresh interpreter after it has loaded `module:name`."""
    environment = {**os.environ, "PYTHONPATH": str(folder)} if folder else None
    command = [sys.executable, "-c", PROBE, target]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert run.returncode == 0, run.stderr
    loaded: list[str] = json.loads(run.stdout)
    return loaded


def plugins() -> list[importlib.metadata.EntryPoint]:
    return list(importlib.metadata.entry_points(group=GROUP))


def test_the_local_driver_is_registered() -> None:
    """The driver that the demo runs on is found by its entry point."""
    assert "local" in {point.name for point in plugins()}


@pytest.mark.parametrize("target", sorted({point.value for point in plugins()}))
def test_loading_a_plugin_imports_no_sdk(target: str) -> None:
    """A plugin may be loaded, to check a configuration say, without any SDK in memory."""
    assert sdks_loaded_by(target) == []


@pytest.mark.parametrize(
    "target",
    [
        "cloud_dispatch.bootstrap",
        "cloud_dispatch.provider.process_child",
        *(f"cloud_dispatch.cli.{module}" for module in ("main", *MODULES)),
    ],
)
def test_no_way_into_the_core_imports_an_sdk(target: str) -> None:
    """The dispatcher starts without any SDK in memory, so do the commands, and the process of a driver until it is
    told which one it is."""
    assert sdks_loaded_by(target) == []


@pytest.mark.parametrize("target", sorted({point.value for point in plugins()}))
def test_the_settings_of_a_profile_are_read_without_its_sdk(target: str) -> None:
    """The dispatcher has the settings; the SDK is the business of the driver's own process."""
    assert sdks_loaded_by(f"{target}.settings") == []


@pytest.mark.parametrize("driver", ["aws", "azure"])
def test_the_clouds_are_among_the_plugins(driver: str) -> None:
    """What is said of all plugins is said of them."""
    assert f"cloud_dispatch_{driver}:plugin" in {point.value for point in plugins()}


@pytest.mark.parametrize("name", ["cloud_dispatch_gcp:plugin", "cloud_dispatch_gcp:plugin.settings"])
def test_google_cloud_is_described_without_its_sdk(name: str) -> None:
    """Whether it was installed since or not."""
    assert sdks_loaded_by(name) == []


def test_a_plugin_that_imports_its_sdk_is_found(tmp_path: Path) -> None:
    """The probe sees the SDK of a plugin that was planted with an import at its top."""
    (tmp_path / "cloud_dispatch_eager.py").write_text("import botocore\nplugin = object()\n")
    assert sdks_loaded_by("cloud_dispatch_eager:plugin", tmp_path) == ["botocore"]
