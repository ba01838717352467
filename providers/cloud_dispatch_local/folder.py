"""One VM's folder on disk. Owns its files and how they are read and written whole.

    vm.json       what was asked for, tags included: written by drivers only, under the registry's lock
    machine.json  what the machine says of itself: written by the VM's own machine process only
    identity      the proof of which VM it is, for the VM to read
    user-data  console.log  power.lock  disk/

Loaded by every VM's machine too, so it imports little.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from cloud_dispatch_local.processes import Process

_serial = itertools.count()


class Phase(StrEnum):
    BOOTING = "booting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class VmRecord:
    """vm.json. Times in milliseconds; `ends_ms` 0 is no hard end; `terminate_ms` 0 until somebody asked."""

    id: str
    batch: str
    slot: int
    type: str
    zone: str
    created_ms: int
    ends_ms: int = 0
    spot: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    boot_delay_ms: int = 0
    grace_ms: int = 10_000
    boot_fault: str = ""
    terminate_ms: int = 0
    isolated: bool = False
    identity_key: str = ""  # the public half of what `identity` is signed with, in hex


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """machine.json: the machine process and what it is at. `why` says why it stopped."""

    pid: int
    started: str
    phase: Phase
    why: str = ""

    @property
    def process(self) -> Process:
        return Process(self.pid, self.started)


class Damaged(Exception):
    """A file of the registry can't be read as what it should be."""


_R = TypeVar("_R", VmRecord, MachineRecord)


def _read(path: Path, kind: type[_R]) -> _R | None:
    """None where there is no such file; fields that this version does not know are left out."""
    try:
        values: Any = json.loads(path.read_bytes())
        known = {item.name for item in fields(kind)}
        return kind(**{name: value for name, value in values.items() if name in known})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Damaged(f"{path}: {error}") from error


def _write(path: Path, record: VmRecord | MachineRecord) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.{next(_serial)}")
    try:
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(asdict(record)))
        partial.rename(path)
    except OSError:
        partial.unlink(missing_ok=True)  # a full disk is asked again and again
        raise


class VmFolder:
    """One VM's folder: where its files are, and reading and writing them whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.console = path / "console.log"
        self.user_data = path / "user-data"
        self.disk = path / "disk"
        self.vm_file = path / "vm.json"
        self.identity = path / "identity"

    def vm(self) -> VmRecord | None:
        return _read(self.vm_file, VmRecord)

    def save_vm(self, record: VmRecord) -> None:
        _write(self.vm_file, record)

    def machine(self) -> MachineRecord | None:
        """None until the machine has spoken."""
        path = self.path / "machine.json"
        record = _read(path, MachineRecord)
        if record is None:
            return None
        try:
            return MachineRecord(record.pid, record.started, Phase(record.phase), record.why)
        except ValueError as error:
            raise Damaged(f"{path}: {error}") from error

    def save_machine(self, record: MachineRecord) -> None:
        _write(self.path / "machine.json", record)

    def hold_power(self) -> int | None:
        """Become the VM's one machine process: an open lock to keep, or None where another has it."""
        handle = os.open(self.path / "power.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle
