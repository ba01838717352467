"""Starting a process that outlives whoever starts it. Owns how: the local VMs' machines and their watchdog need it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LANG = "C.UTF-8"


def start(module: str, folder: Path, output: Path, environment: Mapping[str, str]) -> None:
    """`python -m MODULE FOLDER` in `folder`, a grandchild in a session of its own: it is nobody's child.

    The shell between is gone when this returns. The process gets nothing of the caller's environment but where its
    packages are, and appends what it says to `output`. OSError or SubprocessError where it can't be started.
    """
    packages = os.pathsep.join(path for path in sys.path if path)  # however the caller came by them
    output.touch(mode=0o600)
    with output.open("ab") as file:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-P", "-m", module, str(folder)],
            env={"PATH": PATH, "LANG": LANG, "PYTHONPATH": packages, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            check=True,
        )
