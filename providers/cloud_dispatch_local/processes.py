"""Processes of this host as /proc shows them. Owns their identity (pid and start time) and which VM they belong to.

Linux only. Knows no registry and no clock. A pid alone names nothing: the kernel gives it again, so every question and
every signal is about a pid *with* its start time, and signals go through a pidfd.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Set in the environment of every process of a VM: the VM's folder. Children inherit it, whatever session they make.
MARK = "CLOUD_DISPATCH_LOCAL_VM"
_MARKED = f"{MARK}=".encode()
#: An agent gives its tasks an environment of their own; their home and temporary folders are still on the VM's disk.
_PLACES = (b"HOME=", b"TMPDIR=")
_PROC = Path("/proc")
_DEAD = frozenset((b"Z", b"X", b"x"))
#: More than most environments are long.
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one boot of this host. `started` is the boot's id and the clock tick of the start."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class _Stat:
    process: Process
    parent: int
    session: int
    dead: bool


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]


def shown(pid: int, name: str) -> bytes:
    """The file `name` of the process; nothing where it has ended, or is not ours to read. Those of all processes are
    read at each look at the VMs: without the layers of a file object, which took most of the time."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, _CHUNK):
            parts.append(part)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(parts)


def _stat(pid: int) -> _Stat | None:
    fields = shown(pid, "stat").rpartition(b") ")[2].split()  # the name in parentheses may hold anything
    if not fields:
        return None
    started = f"{_boot()}:{fields[19].decode()}"
    return _Stat(Process(pid, started), int(fields[1]), int(fields[3]), fields[0] in _DEAD)


def identify(pid: int) -> Process | None:
    """The living process with this pid now; None where there is none, or a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat.dead else stat.process


def alive(process: Process) -> bool:
    """Whether exactly this process lives; a zombie does not."""
    return identify(process.pid) == process


def send(process: Process, signum: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone or not ours to signal."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(handle, signum)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def of_vms(folders: Iterable[Path]) -> Mapping[Path, tuple[Process, ...]]:
    """The living processes of each VM, by its folder: those that carry its mark, or whose home or temporary folder is
    on its disk, their sessions and their descendants.

    One pass over /proc for all folders. The one that this can't find is a process that dropped its whole environment,
    made a session of its own and lost all its ancestors to SIGKILL.
    """
    by_mark = {str(folder).encode(): folder for folder in folders}
    members: dict[Path, dict[int, Process]] = {folder: {} for folder in by_mark.values()}
    others: list[_Stat] = []
    sessions: dict[int, Path] = {}
    for entry in os.scandir(_PROC):
        stat = _stat(int(entry.name)) if entry.name.isdecimal() else None
        if stat is None or stat.dead:
            continue
        folder = _marked(stat.process.pid, by_mark)
        if folder is None:
            others.append(stat)
        else:
            members[folder][stat.process.pid] = stat.process
            sessions[stat.session] = folder
    _follow(members, others, sessions)
    return {folder: tuple(found.values()) for folder, found in members.items()}


def _marked(pid: int, by_mark: Mapping[bytes, Path]) -> Path | None:
    """Whose process this is, by the environment that it was started with; None where it says nothing of these VMs."""
    environment = shown(pid, "environ")
    if _MARKED not in environment and not any(folder in environment for folder in by_mark):
        return None  # most processes of a host
    pairs = environment.split(b"\0")
    for pair in pairs:
        if pair.startswith(_MARKED):
            return by_mark.get(pair.removeprefix(_MARKED))
    places = [pair.partition(b"=")[2] for pair in pairs if pair.startswith(_PLACES)]
    for folder, path in by_mark.items():
        if any(place.startswith(folder + b"/disk/") for place in places):
            return path
    return None


def _follow(members: Mapping[Path, dict[int, Process]], others: list[_Stat], sessions: Mapping[int, Path]) -> None:
    """Add unmarked processes of the VMs' sessions, then the children of members until nothing is added."""
    owner = {pid: folder for folder, found in members.items() for pid in found}
    left = others
    for _ in range(len(others) + 1):
        rest = []
        for stat in left:
            folder = sessions.get(stat.session) or owner.get(stat.parent)
            if folder is None:
                rest.append(stat)
            else:
                owner[stat.process.pid] = folder
                members[folder][stat.process.pid] = stat.process
        if len(rest) == len(left):
            return
        left = rest
