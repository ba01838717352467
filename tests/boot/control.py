"""A disk with the program of this checkout installed on it, as `pip install` in an environment of its own leaves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Where the environment is on the machine: its scripts name their interpreter by a whole path.
HOME = "/opt/cloud-dispatch"
_PROGRAM = f"""\
#!{HOME}/bin/python3
import sys

from cloud_dispatch.cli.main import main

sys.exit(main())
"""
_BUILD_S, _DISK_MB = 600, 400


def make_disk(folder: Path) -> Path:
    """An ext4 disk below `folder`, whose root is the environment. The image's Python is 3.11."""
    tree = folder / "environment"
    packages = tree / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (tree / "bin" / "python3").symlink_to("/usr/bin/python3")
    (tree / "bin" / "cloud-dispatch").write_text(_PROGRAM)
    (tree / "bin" / "cloud-dispatch").chmod(0o755)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    into = ["--target", str(packages), "--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28, 34)]
    locked = ["--no-deps", "--require-hashes", "-r", str(ROOT / "requirements-core.txt")]
    _run([*pip, "install", *into, *platforms, "--platform=manylinux2014_x86_64", *locked])
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    _run([*pip, "install", "--target", str(packages), "--no-deps", str(wheel)])
    disk = folder / "control.ext4"
    _run(["mke2fs", "-q", "-t", "ext4", "-L", "control", "-d", str(tree), str(disk), f"{_DISK_MB}M"])
    return disk


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
