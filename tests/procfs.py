"""What the kernel shows of a process, for tests that look at others' processes: these may end between two looks."""

from __future__ import annotations

from pathlib import Path


def shown(pid: int, name: str) -> bytes:
    """A file of the process, as `cmdline` or `environ`; nothing where it has ended (or is no longer ours to see)."""
    try:
        return Path(f"/proc/{pid}", name).read_bytes()
    except OSError:  # gone before it was opened (ENOENT), or between that and the read (ESRCH)
        return b""


def words(pid: int) -> list[str]:
    """Its command line, word by word; none where it has ended, or is a zombie."""
    command = shown(pid, "cmdline").decode(errors="replace").removesuffix("\0")
    return command.split("\0") if command else []


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    state = shown(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] != b"Z"
