"""The working folders of attempts. Owns their making and removal: each attempt starts in an empty one of its own.

Making and removing folders waits for the disk's journal, milliseconds where others sync. So a folder that an attempt
left empty, which is what a tiny task does, serves a later attempt; any other is removed beside the loop.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any, Callable, List  # noqa: UP035

#: The folder for temporary files within an attempt's folder.
TEMPORARY = ".tmp"
_MOST_SPARE = 256


class Folders:
    """All folders below `root`, which is emptied first. `in_thread` runs what may take long."""

    def __init__(self, root: str, in_thread: Callable[..., Any]) -> None:
        self._root = root
        self._in_thread = in_thread
        self._spare: List[str] = []
        self._made = 0
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root, mode=0o700)

    def take(self) -> str:
        """An empty folder, with an empty folder for temporary files in it. OSError if it can't be made."""
        if self._spare:
            return self._spare.pop()
        self._made += 1
        folder = os.path.join(self._root, "a%d" % self._made)
        os.mkdir(folder, 0o700)
        os.mkdir(os.path.join(folder, TEMPORARY), 0o700)
        return folder

    def give_back(self, folder: str) -> None:
        """The attempt is settled, or left its folder empty: nothing of it stays."""
        if len(self._spare) < _MOST_SPARE and is_untouched(folder):
            self._spare.append(folder)
        else:
            self._in_thread(shutil.rmtree, folder, True)

    def clear(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._root, ignore_errors=True)


def is_untouched(folder: str) -> bool:
    """Whether `folder` is as `take` gave it."""
    try:
        temporary = os.path.join(folder, TEMPORARY)
        if os.listdir(folder) != [TEMPORARY] or os.listdir(temporary):
            return False
        modes = [os.lstat(path).st_mode for path in (folder, temporary)]
        return all(stat.S_ISDIR(mode) and stat.S_IMODE(mode) == 0o700 for mode in modes)
    except OSError:
        return False
