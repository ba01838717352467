"""One command at a time changes a control VM. Owns the lock that says so.

Two upgrades at once make the same environment and copy, and each takes the other's version for the one of before; an
`install` meanwhile, as a tool for configurations runs it every half hour, points the machine back. The lock is on the
folder of the configuration: it is there before any of them, an editor that replaces the file leaves it, and it is free
when its process ends, however that ends. What a command has other programs do, such as a new version's `install`, is
its own doing: they have the lock too, so that a `pip` which outlives an upgrade that was killed still keeps others out.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_dispatch.domain.errors import Conflict

#: Of a program that the command with the lock runs: on which folder that has it.
_HELD = "CLOUD_DISPATCH_ALONE"


@contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """Nobody else changes what is configured in `folder` (None: by no file) for as long. Conflict where somebody does.
    It is not asked for where the file system knows no such locks, nor of who may not read the folder."""
    if folder is None or os.environ.get(_HELD) == str(folder) or not os.access(folder, os.R_OK):
        yield
        return
    before = os.environ.get(_HELD)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _locked(descriptor):
            raise Conflict(
                f"another command changes what is configured in {folder}: nothing was done",
                hint="wait for that `upgrade`, `rollback`, `install` or `restore`, or for what one that was killed has"
                f" left running; `fuser {folder}` names the process",
            )
        os.set_inheritable(descriptor, True)
        os.environ[_HELD] = str(folder)
        yield
    finally:
        os.environ.pop(_HELD, None)
        if before is not None:
            os.environ[_HELD] = before
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # whoever else comes is told the same
        pass
    return True
