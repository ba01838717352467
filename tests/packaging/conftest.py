"""Builds the wheel once, and an environment that holds it and nothing but the core's own requirements."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_SECONDS = 120
INSTALL_TIMEOUT_SECONDS = 300


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built as a release would be."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS, cwd=out)
    assert run.returncode == 0, run.stdout + run.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def names_in_wheel(wheel: Path) -> frozenset[str]:
    """The paths of all files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel in it, and an empty home and working folder for whoever runs something."""

    bin: Path
    home: Path

    def run(self, *command: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the empty folder, without anything of the caller's environment."""
        environment = {
            "PATH": f"{self.bin}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )


@pytest.fixture(scope="session")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An empty environment into which the core's pinned requirements and the wheel were installed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv")  # without a pip of its own, which takes seconds to unpack
    binaries = folder / "venv" / "bin"
    quietly = ("--quiet", "--disable-pip-version-check", "--no-compile")  # what is imported is compiled then
    install = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install", *quietly]
    requirements = str(ROOT / "requirements-core.txt")
    for what in (["--require-hashes", "-r", requirements], ["--no-deps", str(wheel)]):
        run = subprocess.run([*install, *what], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS)
        assert run.returncode == 0, run.stdout + run.stderr
    home = folder / "home"
    home.mkdir()
    return Installation(binaries, home)
