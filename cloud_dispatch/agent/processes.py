"""Processes of attempts: spawning, signalling, and finding everything of an attempt that still lives.

Each attempt is a session of its own. Whoever starts it is a child subreaper, so that what a command leaves behind
becomes its own child and can't escape by forking twice. `Processes` is the port; here are the agent's own children,
`tenant` has those that its supervisor starts for it. Knows nothing of the dispatcher and nothing of why.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Optional, Set, Tuple  # noqa: UP035

if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
#: As many files are open as may be, or as many processes there: others' ends make room.
CROWDED = (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
#: The mark in the environment of everything that belongs to an attempt.
TOKEN_VARIABLE = "CLOUD_DISPATCH_TOKEN"  # noqa: S105


@dataclass(frozen=True)
class Exit:
    """A child that was reaped: its wait status and what it used, in bytes and milliseconds."""

    pid: int
    status: int
    max_rss: int
    cpu_ms: int

    @property
    def exit_code(self) -> Optional[int]:
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def signal(self) -> Optional[int]:
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    def describe(self) -> str:
        """How it ended, for people."""
        return "exit code %s" % self.exit_code if self.signal is None else "signal %d" % self.signal


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process; OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def be_called(name: str) -> None:
    """Show `name`, of at most 15 characters, wherever processes are listed by their names: `top`, `ps -e`, the kernel's
    words on memory that ran out. The command line stays what it is."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode("ascii"), 0, 0, 0)


def reap() -> Tuple[List[Exit], bool]:
    """Every child that has ended, orphans included, and whether any child is left. Never waits."""
    exits: List[Exit] = []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return exits, False
        if pid == 0:
            return exits, True
        exits.append(Exit(pid, status, usage.ru_maxrss * 1024, int((usage.ru_utime + usage.ru_stime) * 1000)))


class Processes(Protocol):
    """The main processes of all attempts that are not over, by token, and health checks, by pid."""

    def spawn(self, argv: List[str], env: Dict[str, str], cwd: str, output: int, folder: str) -> int:
        """Start `argv` in a session of its own, output and errors into the descriptor `output`; its pid. `folder` is
        the attempt's, empty for a health check.

        OSError or ValueError (NUL byte, bad variable name) when it can't start.
        """

    def reap(self) -> List[Exit]:
        """Every main process that has ended since the last question; others may be among them."""

    def own(self, token: int, pid: int, folder: str) -> None:
        """From here on `pid`, which runs in `folder`, is the main process of attempt `token`."""

    def disown(self, token: int) -> None:
        """Attempt `token` is over: nothing of it lives."""

    def own_check(self, pid: int) -> None:
        """`pid` is a health check."""

    def end_check(self, pid: int) -> None:
        """Kill the health check and what it left in its group."""

    def disown_check(self, pid: int) -> None:
        """The health check was reaped."""

    def signal(self, token: int, number: int) -> None:
        """Send a signal to the attempt's process group; SIGKILL to everything of the attempt."""

    def prod(self, token: int, number: int) -> None:
        """Send a signal to the attempt's main process, which was not reaped, alone."""

    def signal_strays(self, token: int, number: int) -> None:
        """Send a signal to what the attempt's main process left behind."""

    def alive(self, token: int) -> List[int]:
        """Everything of the attempt that lives, as far as it can be seen."""

    def strays(self, token: int) -> List[int]:
        """Orphans of the attempt."""

    def proportional(self, token: int) -> int:
        """The attempt's resident bytes, with shared pages divided among those that share them."""


class OwnProcesses:
    """`Processes` that are the agent's own children, and run as its own user."""

    def __init__(self) -> None:
        from cloud_dispatch.agent.memory import proportional  # not at the top, as above: neither is the supervisor's
        from cloud_dispatch.agent.spawning import Spawner

        self._weigh = proportional
        self._mains: Dict[int, int] = {}  # token -> pid of the main process, also its session and process group
        self._others: Set[int] = set()  # health checks
        self._childless = True  # the agent had no child at all when it last looked, and has made none since
        self._spawner = Spawner()

    def spawn(self, argv: List[str], env: Dict[str, str], cwd: str, output: int, folder: str) -> int:
        pid = self._spawner.spawn(argv, env, cwd, output)
        self._childless = False
        return pid

    def reap(self) -> List[Exit]:
        exits, more = reap()
        self._childless = not more
        return exits

    def own(self, token: int, pid: int, folder: str) -> None:
        self._mains[token] = pid
        self._childless = False

    def disown(self, token: int) -> None:
        self._mains.pop(token, None)

    def own_check(self, pid: int) -> None:
        self._others.add(pid)

    def end_check(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def disown_check(self, pid: int) -> None:
        self._others.discard(pid)

    def signal(self, token: int, number: int) -> None:
        pid = self._mains.get(token)
        if pid is None:
            return
        victims = [*tree(pid), *self.strays(token)] if number == signal.SIGKILL else []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
        kill_each(victims, number)

    def prod(self, token: int, number: int) -> None:
        kill_each([pid for pid in (self._mains.get(token),) if pid], number)

    def signal_strays(self, token: int, number: int) -> None:
        kill_each(self.strays(token), number)

    def alive(self, token: int) -> List[int]:
        pid = self._mains.get(token)
        return [] if pid is None else [*tree(pid), *self.strays(token)]

    def proportional(self, token: int) -> int:
        return self._weigh(self.alive(token))

    def strays(self, token: int) -> List[int]:
        """Orphans of the attempt, now children of the agent. One that hides whose it is counts as the attempt's if no
        other attempt runs, so that an idle instance has nothing of a past attempt."""
        if self._childless:
            return []
        ours = self._others.union(self._mains.values())
        found = []
        for pid in orphans(os.getpid(), ours):
            owner = self._owner(pid)
            if owner == token or (owner is None and len(self._mains) <= 1):
                found.append(pid)
        return found

    def _owner(self, pid: int) -> Optional[int]:
        """The token of the attempt that `pid` belongs to: by its session, else by the mark in its environment."""
        session = stat_fields(pid)[3]
        for token, main in self._mains.items():
            if main == session:
                return token
        mark = environment_mark(pid)
        return mark if mark in self._mains else None


def children(pid: int) -> List[int]:
    """Living children of `pid`, zombies left out."""
    found: List[int] = []
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return found
    for thread in threads:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread), "rb") as file:
                found.extend(int(child) for child in file.read().split())
        except FileNotFoundError:  # noqa: PERF203
            if thread == str(pid) and os.path.exists("/proc/%d" % pid):
                return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
        except OSError:
            continue
    return [child for child in found if stat_fields(child)[0] not in ("Z", "X", "")]


def raw_children(pid: int) -> List[int]:
    """Children of `pid`, which has one thread, those that ended and were not reaped included."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return _children_by_scan(pid)


def uid_of(pid: int) -> Optional[int]:
    """The user that `pid` runs as; None where there is no such process."""
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return None


def orphans(pid: int, known: Set[int]) -> List[int]:
    """Living children of `pid`, which is a subreaper, without those in `known`: orphans go to its first thread."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), "rb") as file:
            unknown = [int(child) for child in file.read().split() if int(child) not in known]
    except OSError:
        return [child for child in children(pid) if child not in known]
    return [child for child in unknown if stat_fields(child)[0] not in ("Z", "X", "")]


def _children_by_scan(pid: int) -> List[int]:
    everyone = (int(name) for name in os.listdir("/proc") if name.isdigit())
    fields = ((other, stat_fields(other)) for other in everyone)
    return [other for other, (state, parent, _, _) in fields if parent == pid and state not in ("Z", "X", "")]


def tree(pid: int) -> List[int]:
    """`pid` and all that descends from it and lives."""
    found = [pid] if stat_fields(pid)[0] not in ("Z", "X", "") else []
    queue = [pid]
    seen = {pid}
    while queue:
        for child in children(queue.pop()):
            if child not in seen:
                seen.add(child)
                found.append(child)
                queue.append(child)
    return found


def stat_fields(pid: int) -> Tuple[str, int, int, int]:
    """State letter, parent, process group and session of `pid`; ("", 0, 0, 0) when there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "", 0, 0, 0
    return fields[0].decode("ascii"), int(fields[1]), int(fields[2]), int(fields[3])


def environment_mark(pid: int) -> Optional[int]:
    """The attempt's token in the environment of `pid`; None where there is none or it can't be read."""
    prefix = TOKEN_VARIABLE.encode("ascii") + b"="
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for entry in file.read().split(b"\0"):
                if entry.startswith(prefix):
                    return int(entry[len(prefix) :])
    except (OSError, ValueError):
        return None
    return None


def kill_each(pids: List[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def describe_failure(error: Exception, argv: List[str], cwd: str) -> str:
    """Why a command could not start, for its user."""
    if isinstance(error, OSError) and error.filename == cwd:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        return "working folder %s %s" % (cwd, "does not exist" if missing else "can't be entered: %s" % error.strerror)
    if isinstance(error, ValueError):
        return "command or environment can't be used: %s" % error
    if isinstance(error, FileNotFoundError):
        return "command not found: %s" % argv[0]
    if isinstance(error, PermissionError):
        return "no permission to run: %s" % argv[0]
    return "can't start %s: %s" % (argv[0], error)
