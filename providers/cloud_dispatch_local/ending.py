"""Ending VMs for good: what lives of them is killed, then their folders go. Owns how, not when nor which.

Drivers end VMs so when somebody asked, the watchdog when nobody did. Needs no machine process that does its part: one
that hangs, or that left children behind when it died, is killed like everything else of its VM.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from cloud_dispatch_local import processes
from cloud_dispatch_local.folder import MachineRecord, Phase, VmFolder, VmRecord
from cloud_dispatch_local.registry import Registry


def off(machine: MachineRecord | None) -> bool:
    """Whether the VM has no living machine of record; one that never spoke is found by its mark."""
    return machine is None or not processes.alive(machine.process)


async def sweep(registry: Registry, pairs: Sequence[tuple[VmFolder, VmRecord]]) -> frozenset[str]:
    """Finish VMs that shall end and whose machine is off: kill what is left, else remove them.

    Returns the ids of those that are gone now. Transient when the registry is held by somebody else.
    """
    ending = {folder.path: (folder, record) for folder, record in pairs if off(folder.machine())}
    if not ending:
        return frozenset()
    gone = [record.id for folder, record in ending.values() if _powered_off(folder)]
    left = {path: record.id for path, (_, record) in ending.items() if record.id not in gone}
    if left:
        empty = kill(VmFolder(path) for path in left)
        gone += [left[folder.path] for folder in empty]
    await remove(registry, gone)
    return frozenset(gone)


async def remove(registry: Registry, vms: Iterable[str]) -> None:
    """Make VMs not exist of which nothing lives. Transient when the registry is held by somebody else."""
    if gone := tuple(vms):
        async with registry.locked():
            for vm in gone:
                registry.discard(vm)
        registry.empty_trash()


def kill(folders: Iterable[VmFolder]) -> list[VmFolder]:
    """SIGKILL to all that lives of these VMs, machines included; those of which two passes found nothing alive.

    One pass is not enough: a process may be made behind the reader's back by one that dies before it is read.
    """
    empty = {folder.path: folder for folder in folders}
    for _ in range(2):
        found = processes.of_vms(empty)
        for process in (process for members in found.values() for process in members):
            processes.send(process, signal.SIGKILL)
        empty = {path: folder for path, folder in empty.items() if not found[path]}
    return list(empty.values())


def _powered_off(folder: VmFolder) -> bool:
    """Whether the machine itself said that nothing of the VM lives any more."""
    machine = folder.machine()
    return machine is not None and machine.phase is Phase.STOPPED
