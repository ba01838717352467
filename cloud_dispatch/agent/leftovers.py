"""What an attempt leaves outside of its folder, where the next one of its uid could find it. Owns finding and removing.

That is in folders where everybody may write, POSIX message queues among them, and in the kernel: System V's shared
memory, semaphores and queues, and keys. An attempt is no more when this runs, and may have left as much as it liked:
only for children of the supervisor. By then these are a user who may not read Python's files: nothing can be imported.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Iterator, List, Optional, Sequence, Set, Tuple  # noqa: UP035

from cloud_dispatch.agent.folders import remove_by_force
from cloud_dispatch.agent.privileges import keyctl, load

#: Where everybody may write, if it is there at all.
_KNOWN = ("/tmp", "/var/tmp", "/var/crash", "/dev/shm", "/dev/mqueue", "/run/lock", "/run/shm")
#: Where systems have other such folders.
_PARENTS = ("/run", "/var")
_TABLES = "/proc/sysvipc"
_IPC_RMID = 0
_KEY_USERS = "/proc/key-users"
_CLEAR, _LINK, _GET_PERSISTENT = 7, 8, 22
#: Keyrings, as the kernel numbers them for whoever asks.
_OF_PROCESS, _OF_USER, _OF_USERS_SESSIONS = -2, -4, -5


def shared_folders(known: Sequence[str] = _KNOWN, parents: Sequence[str] = _PARENTS) -> List[str]:
    """The folders of this machine where everybody may write: those `known`, and what is directly below `parents` unless
    it is mounted there, as what others share with this machine may be: results that tasks are to leave. So are those
    directly below the `known` that are sticky as they are, and of the same owner: systems have some for sockets."""
    found: List[str] = []
    for path in known:
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(path).st_mode):  # a link to one of the others is none
                found.append(path)
    for parent in (*found, *parents):
        with contextlib.suppress(OSError):
            above = os.stat(parent)
            for entry in _entries(parent):
                with contextlib.suppress(OSError):  # as below
                    status = entry.stat(follow_symlinks=False)
                    open_to_all = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IWOTH
                    alike = status.st_mode & stat.S_ISVTX and status.st_uid == above.st_uid
                    meant = status.st_dev == above.st_dev and (parent in parents or alike)
                    if open_to_all and meant and entry.path not in found:
                        found.append(entry.path)
    return found


def owners(first: int, last: int, folders: Optional[Sequence[str]] = None) -> Set[int]:
    """The uids from `first` to `last` of whom there is anything in `folders` (if not named: all) or in the kernel."""
    found = {uid for _, _, uid in _objects()} | _with_keys()
    for folder in shared_folders() if folders is None else folders:
        for entry in _entries(folder):
            with contextlib.suppress(OSError):  # others come and go meanwhile
                found.add(entry.stat(follow_symlinks=False).st_uid)
    return {uid for uid in found if first <= uid <= last}


def forget(uid: int, folders: Optional[Sequence[str]] = None) -> None:
    """Remove what `uid` has left in `folders` (if not named: all) and in the kernel; to be run as that user, and never
    through a link."""
    for kind, number, creator in _objects():
        if creator == uid:
            _remove_object(kind, number)
    if uid in _with_keys():
        _clear_keys()
    for folder in shared_folders() if folders is None else folders:
        for entry in list(_entries(folder)):
            with contextlib.suppress(OSError):  # as above
                if entry.stat(follow_symlinks=False).st_uid != uid:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    remove_by_force(entry.path)
                else:
                    os.unlink(entry.path)


def _objects() -> Iterator[Tuple[str, int, int]]:
    """System V's objects: kind, number and creator of each. Who made one stays so, whomever he has given it to."""
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError), open(os.path.join(_TABLES, kind), "rb") as table:
            creator = table.readline().split().index(b"cuid")
            for line in table:
                fields = line.split()
                yield kind, int(fields[1]), int(fields[creator])


def _remove_object(kind: str, number: int) -> None:
    if kind == "sem":
        load().semctl(number, 0, _IPC_RMID)
    else:
        getattr(load(), kind + "ctl")(number, _IPC_RMID, None)


def _with_keys() -> Set[int]:
    """Who has keys, or has had some: his keyrings stay."""
    with contextlib.suppress(OSError), open(_KEY_USERS, "rb") as table:
        return {int(line.partition(b":")[0]) for line in table}
    return set()


def _clear_keys() -> None:
    """Empty what outlives processes: the keyrings of this user, of his sessions, and the one that stays for days."""
    lasting = keyctl(_GET_PERSISTENT, -1, _OF_PROCESS)
    for ring in (_OF_USER, _OF_USERS_SESSIONS, *([lasting] if lasting > 0 else [])):
        keyctl(_CLEAR, ring)
    keyctl(_LINK, _OF_USER, _OF_USERS_SESSIONS)  # as the kernel makes them


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from entries
