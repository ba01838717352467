"""cloud-init's own judgement of a cloud-config document. Owns how it is asked, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_TIMEOUT_S = 60


def program() -> str | None:
    """The cloud-init beside this interpreter, or on the PATH; None where there is none."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("cloud-init", path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))


def complaint(cloud_init: str, document: str) -> str:
    """What `cloud-init schema` has against the cloud-config `document`, "" if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "user-data"
        path.write_text(document, encoding="utf-8")
        try:
            done = subprocess.run(
                [cloud_init, "schema", "--config-file", path],
                capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{cloud_init} could not be asked: {error}"
    said = " ".join(f"{done.stdout} {done.stderr}".replace(str(path), "the document").split())
    return "" if done.returncode == 0 else said or f"exit code {done.returncode}"
