"""`python -m cloud_dispatch_local.vm FOLDER`: a local VM's power switch.

The composition root of the machine process, and the other side of `power_on`, which drivers use to start it. This is
the one place of the package that reads a clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from cloud_dispatch_local.folder import VmFolder
from cloud_dispatch_local.machine import Machine
from cloud_dispatch_local.processes import MARK

VM_ID = "CLOUD_DISPATCH_VM_ID"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LANG = "C.UTF-8"


def power_on(folder: VmFolder, vm: str) -> None:
    """Start the VM's machine, a grandchild in a session of its own: it is nobody's child and outlives the caller.

    The shell between is gone when this returns, and no process of the VM was ever without the VM's mark. The machine
    gets nothing of the caller's environment. Harmless where the VM has a machine, or had one.
    """
    environment = {
        "PATH": _PATH,
        "LANG": _LANG,
        VM_ID: vm,
        MARK: str(folder.path),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # however the caller came by its packages
    }
    with folder.console.open("ab") as console:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-P", "-m", "cloud_dispatch_local.vm", str(folder.path)],
            env=environment,
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            check=True,
        )


def main() -> int:
    folder = VmFolder(Path(sys.argv[1]))
    os.setsid()  # the shell led the session that we were born in
    power = folder.hold_power()
    if power is None or folder.machine() is not None:
        return 0  # it is on, or has been: a VM boots once
    os.chdir(folder.disk)
    temporary = folder.disk / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {
        "PATH": _PATH,
        "LANG": _LANG,
        "HOME": str(folder.disk),
        "TMPDIR": str(temporary),
        VM_ID: os.environ[VM_ID],
        MARK: os.environ[MARK],
    }
    Machine(folder, environment, lambda: time.time_ns() // 1_000_000, lambda: time.monotonic_ns() // 1_000_000).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
