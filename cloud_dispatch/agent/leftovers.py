"""What an attempt leaves outside of its folder, where the next one of its uid could find it. Owns finding and removing.

An attempt is no more when this runs, and may have left as much as it liked: only for children of the supervisor.
"""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, Sequence, Set  # noqa: UP035

from cloud_dispatch.agent.folders import remove_by_force

#: Where everybody may write, on any Linux.
SHARED = ("/tmp", "/var/tmp", "/dev/shm")


def owners(first: int, last: int, folders: Sequence[str] = SHARED) -> Set[int]:
    """The uids from `first` to `last` of whom there is anything in `folders`."""
    found: Set[int] = set()
    for folder in folders:
        for entry in _entries(folder):
            with contextlib.suppress(OSError):  # others come and go meanwhile
                found.add(entry.stat(follow_symlinks=False).st_uid)
    return {uid for uid in found if first <= uid <= last}


def forget(uid: int, folders: Sequence[str] = SHARED) -> None:
    """Remove what `uid` has left in `folders`; to be run as that user, and never through a link."""
    for folder in folders:
        for entry in list(_entries(folder)):
            with contextlib.suppress(OSError):  # as above
                if entry.stat(follow_symlinks=False).st_uid != uid:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    remove_by_force(entry.path)
                else:
                    os.unlink(entry.path)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from entries
