"""The local provider's registry on disk: which VMs exist. Owns the folders below a root and the lock over them.

    ROOT/lock      held while anything below changes
    ROOT/making/   a VM's folder until it is whole, then renamed into vms/: nobody ever sees half a VM
    ROOT/vms/ID/   a VM
    ROOT/trash/    folders of VMs that are gone, on their way out
    ROOT/watchdog  who ends VMs at their hard end (see `watch`), and what it said: watchdog.log

Never the statestore: the registry is this provider's cloud side. Knows no process and no clock.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from cloud_dispatch.provider.errors import Transient
from cloud_dispatch_local.folder import VmFolder, VmRecord

_LOCK_WAIT_S = 0.005
_serial = itertools.count()


class Registry:
    """All VMs below `root`, shared by every driver and process that names the same root."""

    def __init__(self, root: Path, patience_s: float = 10.0) -> None:
        self._lock_tries = int(patience_s / _LOCK_WAIT_S)
        self.root = root.resolve()  # the mark in a VM's environment must not depend on how the root was spelt
        self.vms = self.root / "vms"
        self._making = self.root / "making"
        self._trash = self.root / "trash"
        for folder in (self.vms, self._making, self._trash):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the registry against every other driver and process; Transient after `patience_s` of waiting."""
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(self._lock_tries):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_WAIT_S)
            else:
                raise Transient(f"{self.root / 'lock'} is held by another process")
            yield
        finally:
            os.close(handle)

    def folder(self, vm: str) -> VmFolder:
        return VmFolder(self.vms / vm)

    def folders(self) -> Iterator[VmFolder]:
        """The folders of all VMs, by name."""
        for name in sorted(os.listdir(self.vms)):
            yield VmFolder(self.vms / name)

    def add(self, record: VmRecord, user_data: str, proof: str) -> VmFolder:
        """Make a VM's folder; it appears whole. To be called under the lock, for an id that has none."""
        making = VmFolder(self._making / record.id)
        shutil.rmtree(
            making.path, ignore_errors=True
        )  # left by a driver that died here: only one may be here at a time
        making.path.mkdir(mode=0o700)
        making.disk.mkdir()
        if record.isolated:
            for folder in (making.path, making.disk):
                folder.chmod(0o711)
        making.user_data.touch(mode=0o600)
        making.user_data.write_bytes(user_data.encode())  # whatever this machine's own encoding is
        making.identity.touch(mode=0o600)
        making.identity.write_text(proof)
        making.console.touch(mode=0o600)
        making.save_vm(record)
        made = self.folder(record.id)
        making.path.rename(made.path)
        return made

    def discard(self, vm: str) -> None:
        """Make the VM not exist, in one step. To be called under the lock; `empty_trash` frees the space."""
        try:
            (self.vms / vm).rename(self._trash / f"{vm}.{os.getpid()}.{next(_serial)}")
        except FileNotFoundError:
            return

    def empty_trash(self) -> None:
        """Delete what was discarded, by anybody; what can't be deleted is tried again the next time."""
        for entry in self._trash.iterdir():
            _remove(entry)


def _remove(folder: Path) -> None:
    """Remove a folder with all that its VM has left in it; what is nested deeper than Python can follow is for `rm`."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["/bin/rm", "-rf", "--", folder], stdin=subprocess.DEVNULL, check=False)
