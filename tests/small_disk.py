"""A file system that is soon full, and filling it."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE = 2 * 1024 * 1024


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """`folder`, made, as a file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(ballast: Path) -> None:
    """Append until nothing more goes in."""
    with ballast.open("ab", buffering=0) as out:
        try:
            while True:
                out.write(b"x" * 65536)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
