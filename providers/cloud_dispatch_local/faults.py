"""Faults that somebody asked for. Owns the grammar of the faults file and the count of those used up.

The file is a JSON list, read again at every call, so that faults come and go under a running dispatcher:

    [{"operation": "launch", "type": "local.4", "times": 2, "error": "capacity"},
     {"operation": "launch", "commit": true, "error": "in-doubt"},
     {"operation": "list", "delay_ms": 3000},
     {"operation": "boot", "boot": "hang"}]

operation  launch, list, get, terminate, extend, tag, identify or boot
type zone  only there; left out: anywhere
times      how often; left out: as long as the file says so
after      so many calls pass before it begins; left out: none
error      capacity, quota, rate, credentials, invalid, transient or in-doubt; left out: only the delay
commit     with in-doubt: carry the call out, then lose the answer
retry_after_ms  of rate: how long to wait
cut        of list: leave out the VMs after the first half, and say so
delay_ms   before anything else
boot       of a VM that is launched: hang, fail or slow

How often each was used stands beside the file, counted under a lock for all processes; writing the file anew resets it.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    ProviderError,
    QuotaExceeded,
    RateLimited,
    Scope,
    Transient,
)

_OPERATIONS = frozenset({"launch", "list", "get", "terminate", "extend", "tag", "identify", "boot"})
_BOOTS = frozenset({"", "hang", "fail", "slow"})
_ERRORS: dict[str, type[ProviderError]] = {
    "capacity": CapacityUnavailable,
    "quota": QuotaExceeded,
    "rate": RateLimited,
    "credentials": CredentialsRejected,
    "invalid": InvalidRequest,
    "transient": Transient,
    "in-doubt": InDoubt,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of the file; `times` None is without end."""

    operation: str
    type: str = ""
    zone: str = ""
    times: int | None = None
    error: str = ""
    after: int = 0
    commit: bool = False
    retry_after_ms: int = 1_000
    cut: bool = False
    delay_ms: int = 0
    boot: str = ""

    def hits(self, operation: str, type_name: str, zone: str) -> bool:
        return self.operation == operation and self.type in ("", type_name) and self.zone in ("", zone)

    def refuse(self, type_name: str, zone: str) -> None:
        """Raise the error that the fault asks for, if any."""
        if not self.error:
            return
        scope = Scope(type=type_name, zone=zone) if self.error == "capacity" else Scope()
        retry = self.retry_after_ms if self.error == "rate" else 0
        raise _ERRORS[self.error](
            f"{self.operation}: injected {self.error}", code=f"injected-{self.error}", scope=scope, retry_after_ms=retry
        )


NO_FAULT = Fault("")


class FaultFile:
    """The faults file of one root. A file that is not what it should be is an InvalidRequest with its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used_path = path.with_name(path.name + ".used")

    def take(self, operation: str, type_name: str = "", zone: str = "") -> Fault:
        """The first fault that hits this call, used once; `NO_FAULT` when there is none."""
        if not self._path.exists():
            return NO_FAULT
        handle = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # held for a few file operations only
            return self._take(operation, type_name, zone)
        finally:
            os.close(handle)

    def _take(self, operation: str, type_name: str, zone: str) -> Fault:
        try:
            stat = self._path.stat()
            faults = parse(self._path.read_text(), str(self._path))
        except FileNotFoundError:
            return NO_FAULT
        stamp = [stat.st_mtime_ns, stat.st_ino, stat.st_size]
        used = self._used(stamp, len(faults))
        for i, fault in enumerate(faults):
            if fault.hits(operation, type_name, zone) and (fault.times is None or used[i] < fault.after + fault.times):
                used[i] += 1
                self._used_path.write_text(json.dumps({"stamp": stamp, "used": used}))
                return fault if used[i] > fault.after else NO_FAULT
        return NO_FAULT

    def _used(self, stamp: list[int], count: int) -> list[int]:
        try:
            kept = json.loads(self._used_path.read_text())
        except (OSError, ValueError):
            kept = {}
        return kept["used"] if kept.get("stamp") == stamp else [0] * count


def parse(text: str, place: str) -> tuple[Fault, ...]:
    """The faults that `text` lists; InvalidRequest with the entry's number for anything else."""
    try:
        entries: Any = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{place}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise InvalidRequest(f"{place}: expected a list of faults")
    return tuple(_fault(entry, f"{place}[{i}]") for i, entry in enumerate(entries))


def _fault(entry: Any, place: str) -> Fault:
    known = {item.name for item in fields(Fault)}
    if not isinstance(entry, dict) or not set(entry) <= known:
        raise InvalidRequest(f"{place}: expected an object with some of {', '.join(sorted(known))}")
    try:
        fault = Fault(**entry)
    except TypeError as error:
        raise InvalidRequest(f"{place}: expected an operation") from error
    for what, value, allowed in (
        ("operation", fault.operation, _OPERATIONS),
        ("error", fault.error, {"", *_ERRORS}),
        ("boot", fault.boot, _BOOTS),
    ):
        if value not in allowed:
            raise InvalidRequest(f"{place}.{what}: {value!r} is none of {', '.join(sorted(filter(None, allowed)))}")
    if fault.commit and fault.error != "in-doubt":
        raise InvalidRequest(f"{place}.commit: only an answer that is in-doubt can hide a call that was carried out")
    return fault
