"""Local VMs for tests: making drivers over a folder, and ending every process of it, whatever the test did."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cloud_dispatch.domain.ids import BatchId, PoolName, ProfileName, instance_id
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.spi import LaunchRequest, ProfileContext
from cloud_dispatch_local import processes
from cloud_dispatch_local.driver import LocalProvider
from cloud_dispatch_local.processes import MARK, Process
from cloud_dispatch_local.settings import LocalSettings

DEPLOYMENT = "test"
_T = TypeVar("_T")
#: What drivers take for the time. Far from the machine's own clock in no test that needs the two to agree.
NOW_MS = time.time_ns() // 1_000_000


def clock() -> int:
    """The time that machines and watchdogs live by, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def driver(root: Path, now: Callable[[], int] = lambda: NOW_MS, **settings: Any) -> LocalProvider:
    validated = LocalSettings.model_validate(settings)
    return LocalProvider(ProfileContext(ProfileName("local"), validated, root, now=now))


async def request(
    provider: LocalProvider,
    user_data: str,
    *,
    batch: str = "b00000000001",
    slots: int = 1,
    ends_ms: int = 0,
    type_name: str = "local.1",
) -> LaunchRequest:
    offering = next(offered for offered in await provider.offerings() if offered.type.name == type_name)
    name = BatchId(batch)
    return LaunchRequest(
        batch=name,
        slots=slots,
        offering=offering,
        tags=VmTags(DEPLOYMENT, "store", PoolName("default"), name, offering.rate or -1, ends_ms).encode(),
        user_data=user_data,
        ends_ms=ends_ms,
        instances=tuple(instance_id(name, slot) for slot in range(slots)),
    )


def cloud_config(*commands: str) -> str:
    """Boot commands for /bin/sh, as a document."""
    return "#cloud-config\nruncmd:\n" + "".join(f"  - [/bin/sh, -c, {_quoted(command)}]\n" for command in commands)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def living(root: Path) -> list[Process]:
    """Every living process that was started in a VM below `root`, by its mark alone."""
    start = f"{MARK}={root.resolve()}/".encode()
    return _those("environ", start, lambda pairs: any(pair.startswith(start) for pair in pairs))


def watchdogs(root: Path) -> list[Process]:
    """Every living watchdog of the registry in `root`, by its command line."""
    words = [b"cloud_dispatch_local.watch", bytes(root.resolve())]
    return _those("cmdline", words[0], lambda command: command[-3:-1] == words)


def _those(name: str, hint: bytes, wanted: Callable[[list[bytes]], bool]) -> list[Process]:
    """The living processes whose file `name` has `hint` in it and is `wanted`, by its words."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        shown = processes.shown(int(entry), name)
        if hint in shown and wanted(shown.split(b"\0")):
            process = processes.identify(int(entry))
            if process is not None:
                found.append(process)
    return found


def end_everything(root: Path) -> None:
    """SIGKILL to every process of every VM below `root`, and to their watchdog, until there is none."""
    folders = [path.resolve() for path in (root / "vms").glob("*")]
    for _ in range(100):
        left = {*living(root), *(process for found in processes.of_vms(folders).values() for process in found)}
        left.update(watchdogs(root))
        if not left:
            return
        for process in left:
            processes.send(process, signal.SIGKILL)
        again = time.monotonic() + 0.1
        time.sleep(0.01)
        while any(map(processes.alive, left)) and time.monotonic() < again:  # to read all of the host takes longer
            time.sleep(0.01)
    raise AssertionError(f"still alive: {left}")


def exists(pid: int) -> bool:
    """Whether a process with this pid lives; a zombie does not."""
    return processes.identify(pid) is not None


def descends_from_us(pid: int) -> bool:
    """Whether the process is below this test in the tree of processes."""
    for _ in range(64):
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if pid <= 1:
            return False
    return False
