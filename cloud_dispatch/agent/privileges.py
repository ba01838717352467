"""Users of the VM: whom the agent and the tasks run as. Owns what the settings mean and how a process steps down.

Knows no attempts and no dispatcher. Everything that is given up is given up for good: no way back to root is left.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import stat
import sys
from dataclasses import dataclass
from typing import Any, Iterable, Optional  # noqa: UP035

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
#: -1, which the system calls take for "leave it as it is", comes after it.
_LAST_UID = (1 << 32) - 2
_MOST_UIDS = 65_536
#: The system call for the kernel's keys, which the C library lacks; 0 where its number is not known here.
_KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, 0) if sys.maxsize > 1 << 32 else 0
_JOIN_SESSION_KEYRING = 1
_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
_prctl: Any = None


class Unseparated(Exception):
    """Agent and tasks can't run as the users that are asked for; the text says why and what to do."""


@dataclass(frozen=True)
class Users:
    """`agent` is the agent's uid and `group` its gid. Attempts run as `first` to `last`, if there are any, each of
    these a uid and the gid of the same number; `hand` is one more, which only ever sends signals."""

    agent: int
    group: int
    first: int = 0
    last: int = -1

    @property
    def hand(self) -> int:
        return self.last + 1


def users(agent_user: str, task_uids: str) -> Optional[Users]:
    """What the two settings mean, None where both are empty. Unseparated for what can't be meant."""
    if not agent_user and not task_uids:
        return None
    if not agent_user:
        raise Unseparated("task_uids = %r needs agent_user: the agent would hold its token as root" % task_uids)
    agent, group = _user(agent_user)
    if not task_uids:
        return Users(agent, group)
    first, last = _range(task_uids)
    if first <= agent <= last or first <= group <= last:
        raise Unseparated(
            "agent_user = %r is one of task_uids = %r: tasks could read its token" % (agent_user, task_uids)
        )
    return Users(agent, group, first, last - 1)


def berths(task_uids: str) -> int:
    """How many attempts and health checks there may be at once; 0 where they are no users of their own."""
    first, last = _range(task_uids) if task_uids else (0, 0)
    return last - first


def _user(name: str) -> tuple[int, int]:
    """The uid and gid that `name` means; a bare number is both."""
    if name.isascii() and name.isdigit():
        uid = gid = int(name)
    else:
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise Unseparated("agent_user = %r: no such user here; make it, or name a uid" % name) from None
        uid, gid = entry.pw_uid, entry.pw_gid
    if not (0 < uid <= _LAST_UID and 0 < gid <= _LAST_UID):
        raise Unseparated("agent_user = %r: expected a user who is not root" % name)
    return uid, gid


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (dash and text.isascii() and first.isdigit() and last.isdigit()):
        raise Unseparated("task_uids = %r: expected FIRST-LAST, as in 60600-60855" % text)
    low, high = int(first), int(last)
    if not (0 < low < high <= _LAST_UID and high - low < _MOST_UIDS):
        raise Unseparated("task_uids = %r: expected 2 to %d uids from 1 to %d" % (text, _MOST_UIDS, _LAST_UID))
    return low, high


def step_down(uid: int, gid: int) -> None:
    """From root to `uid`, with no other group, no way to gain anything by running a program, and files for it alone."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    gain_nothing()
    os.umask(0o077)


def lend_hand(uid: int, hand: int) -> None:
    """From root to one who may signal the processes of `uid` and no others, and whom those may not: its real and saved
    users are `hand`, of whom there is nothing else. The kernel takes the effective one for the sender's right."""
    os.setgroups([])
    os.setresgid(hand, hand, hand)
    os.setresuid(hand, uid, hand)


def gain_nothing() -> None:
    """No program that is run from here on gives rights that this process has not: no setuid, no file capabilities."""
    if load().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")


def shield() -> None:
    """Nobody but root may look into this process, not even others of its user."""
    load().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def end_with_parent() -> None:
    """SIGKILL when the parent of this process ends. To be asked for after stepping down, which forgets it."""
    load().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def keyctl(operation: int, *arguments: Optional[int]) -> int:
    """What the kernel, which keeps keys for its users, says to that; -1 where it keeps none, or refuses."""
    return int(load().syscall(_KEYCTL, operation, *arguments)) if _KEYCTL else -1


def leave_keys() -> None:
    """What this process and its children put into their session's keyring ends with them. Else it is that of whoever
    started this one, and of all that he starts."""
    keyctl(_JOIN_SESSION_KEYRING, None)


def load() -> Any:
    """The C library, looked for once: a forked child needs it at once and may not find it any more."""
    global _prctl
    if _prctl is None:
        _prctl = ctypes.CDLL(None, use_errno=True)
    return _prctl


def python_for_all(candidates: Iterable[str] = (sys.executable, *_PYTHONS)) -> str:
    """A Python that every user may run: this one, or the system's. Unseparated where there is none."""
    for path in candidates:
        if path and os.path.isfile(path) and open_to_all(os.path.realpath(path)):
            return path
    raise Unseparated("no Python that agent_user may run: %s can't be reached by others" % sys.executable)


def open_to_all(path: str) -> bool:
    """Whether everybody may enter all folders on the way to `path`, and may read and run it if it is a file."""
    try:
        mode = os.stat(path).st_mode
        need = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IXOTH | stat.S_IROTH
        return mode & need == need and (path == "/" or open_to_all(os.path.dirname(path)))
    except OSError:
        return False
