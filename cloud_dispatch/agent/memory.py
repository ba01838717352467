"""How much memory attempts use. Owns the measures of /proc and the kernel's own word of out-of-memory kills."""

from __future__ import annotations

import os
from collections import deque
from typing import Deque, List, Optional  # noqa: UP035

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Between two looks at an attempt, in milliseconds: the longest, and the shortest for one that grows fast.
LOOK_MOST_MS = 1_000
LOOK_LEAST_MS = 50
#: So many looks back is lately: a process that the kernel killed may take seconds to be gone.
_LOOKS = 4


def resident(pids: List[int]) -> int:
    """Resident bytes of the processes, shared pages counted once for each."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/statm" % pid, "rb") as file:
                total += int(file.read().split()[1]) * _PAGE
        except (OSError, IndexError):  # noqa: PERF203
            continue
    return total


def proportional(pids: List[int]) -> int:
    """Resident bytes with shared pages divided among those that share them; where the kernel hides it, all of them."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/smaps_rollup" % pid, "rb") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except OSError:  # noqa: PERF203
            total += resident([pid])
    return total


def next_look_ms(used: int, before: int, elapsed_ms: int, limit: int) -> int:
    """When to look again: before the limit could be reached at twice the present growth."""
    growth = max(used - before, 0)
    if not growth or elapsed_ms <= 0:
        return LOOK_MOST_MS
    reach_ms = max(limit - used, 0) * elapsed_ms // growth
    return max(min(reach_ms // 2, LOOK_MOST_MS), LOOK_LEAST_MS)


class KernelKills:
    """The kernel's counter of out-of-memory kills: of our control group where there is one, else of the machine. It
    does not say who was killed: what tells is that it was lately."""

    def __init__(self) -> None:
        self._path, self._key = _counter()
        self._seen: Deque[Optional[int]] = deque([self._read()], maxlen=_LOOKS)

    def look(self) -> None:
        """To be called at intervals."""
        self._seen.append(self._read())

    def rose(self) -> bool:
        """Whether the kernel killed something within the last few intervals, however many ask: it may have killed
        several at once, and one that it killed earlier says nothing of what ends now."""
        now, before = self._read(), self._seen[0]
        return now is not None and before is not None and now > before

    def _read(self) -> Optional[int]:
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    key, _, value = line.partition(b" ")
                    if key == self._key:
                        return int(value)
        except (OSError, ValueError):
            return None
        return None


def _counter() -> tuple[str, bytes]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        lines = []
    for number, controllers, path in lines:
        if "memory" in controllers.split(","):
            candidate = "/sys/fs/cgroup/memory%s/memory.oom_control" % path
        elif number == "0":
            candidate = "/sys/fs/cgroup%s/memory.events" % path
        else:
            continue
        if os.path.exists(candidate):
            return candidate, b"oom_kill"
    return "/proc/vmstat", b"oom_kill"
