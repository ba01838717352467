"""Somebody who has only `pip install`ed the wheel runs the main job with one command."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Installation

DEMO_TIMEOUT_SECONDS = 150
pytestmark = [pytest.mark.tools, pytest.mark.xdist_group("packaging"), pytest.mark.timeout(600)]


def processes_below(folder: Path) -> list[str]:
    """The command lines of live processes that run from, in or with a path below `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            working = str((process / "cwd").readlink())
        except OSError:
            continue  # it has just ended, or is somebody else's
        if str(folder) in command or working.startswith(str(folder)):
            found.append(f"{process.name}: {command}")
    return found


def test_the_core_is_installed_without_any_sdk(installation: Installation) -> None:
    """The core's requirements bring no cloud SDK along, and the command answers."""
    probe = installation.run("python", "-c", "import cloud_dispatch, boto3", timeout=60)
    assert "No module named 'boto3'" in probe.stdout
    shown = installation.run("cloud-dispatch", "--help", timeout=60)
    assert shown.returncode == 0, shown.stdout


def test_an_installed_wheel_knows_its_version_and_checks_a_configuration(
    installation: Installation, wheel: Path
) -> None:
    """By its metadata alone: no sources and no git are near. A profile without its SDK says what it lacks."""
    said = installation.run("cloud-dispatch", "--version", timeout=60)
    assert said.stdout == f"cloud-dispatch {wheel.name.split('-')[1]}\n"
    (installation.home / "local.toml").write_text('[profiles.here]\ndriver = "local"\n[pools.p]\nprofiles = ["here"]\n')
    good = installation.run("cloud-dispatch", "config", "check", "--config", "local.toml", timeout=60)
    assert (good.returncode, "local.toml: good; pools: p" in good.stdout) == (0, True), good.stdout
    shutil.copy(ROOT / "profiles" / "aws" / "mixed.toml", installation.home / "mixed.toml")
    lacking = installation.run("cloud-dispatch", "config", "check", "--config", "mixed.toml", timeout=60)
    assert "boto3" in lacking.stdout, lacking.stdout


@pytest.mark.process
def test_the_demo_runs_from_an_empty_folder_and_leaves_nothing(installation: Installation) -> None:
    """`cloud-dispatch demo` succeeds in an empty folder, says that no instance is left, and none is."""
    demo = installation.run("cloud-dispatch", "demo", timeout=DEMO_TIMEOUT_SECONDS)
    assert demo.returncode == 0, demo.stdout
    assert re.search(r"no instances? (is |are )?left", demo.stdout, re.IGNORECASE), demo.stdout
    assert processes_below(installation.home.parent) == []
