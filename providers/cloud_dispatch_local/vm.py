"""`python -m cloud_dispatch_local.vm FOLDER`: a local VM's power switch.

The composition root of the machine process, and the other side of `power_on`, which drivers use to start it. Beside
`watch` the one place of the package that reads a clock.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from cloud_dispatch_local import detached
from cloud_dispatch_local.folder import VmFolder
from cloud_dispatch_local.isolation import lease_uids
from cloud_dispatch_local.machine import Machine
from cloud_dispatch_local.processes import MARK

VM_ID = "CLOUD_DISPATCH_VM_ID"


def power_on(folder: VmFolder, vm: str) -> None:
    """Start the VM's machine, which outlives the caller. No process of the VM was ever without the VM's mark. Harmless
    where the VM has a machine, or had one."""
    detached.start(__name__, folder.path, folder.console, {VM_ID: vm, MARK: str(folder.path)})


def main() -> int:
    folder = VmFolder(Path(sys.argv[1]))
    os.setsid()  # the shell led the session that we were born in
    power = folder.hold_power()
    if power is None or folder.machine() is not None:
        return 0  # it is on, or has been: a VM boots once
    os.chdir(folder.disk)
    temporary = folder.disk / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    record = folder.vm()
    environment = {
        "PATH": detached.PATH,
        "LANG": detached.LANG,
        "HOME": str(folder.disk),
        "TMPDIR": str(temporary),
        VM_ID: os.environ[VM_ID],
        MARK: os.environ[MARK],
        **(lease_uids() if record is not None and record.isolated else {}),
    }
    Machine(folder, environment, lambda: time.time_ns() // 1_000_000, lambda: time.monotonic_ns() // 1_000_000).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
