"""The working folders of attempts. Owns their making and removal: each attempt starts in an empty one of its own.

Making and removing folders waits for the disk's journal, milliseconds where others sync. So a folder that an attempt
left empty, which is what a tiny task does, serves a later attempt; any other is removed beside the loop.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from typing import Any, Callable, List, Optional, Sequence, Set  # noqa: UP035

from cloud_dispatch.agent.adapters import new_name

#: The folder for temporary files within an attempt's folder.
TEMPORARY = ".tmp"
_MOST_SPARE = 256


class NoneFree(OSError):
    """There is no folder to be had for now: those who had them are still being cleaned up after."""


class Folders:
    """All folders below `root`, which has nothing from before but what is `kept`. `in_thread` runs what may take long:
    what was there is removed beside the loop, since an agent that shows no sign of life meanwhile is taken for hung."""

    #: Below this nothing but an attempt's own folder is a task's to name; "": tasks are the agent's own user.
    closed = ""

    def __init__(self, root: str, in_thread: Callable[..., Any], kept: Sequence[str] = ()) -> None:
        self._root = root
        self._in_thread = in_thread
        self._spare: List[str] = []
        self._made = 0
        self._waste = root + ".waste"
        if kept:
            self._clear_but({os.path.basename(path) for path in kept})
        else:
            self._set_aside()
            os.makedirs(root, mode=0o700)
        self._in_thread(remove_tree, self._waste)  # also where the program before had only begun to

    def _set_aside(self) -> None:
        os.makedirs(self._waste, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._root, os.path.join(self._waste, new_name()))

    def _clear_but(self, kept: Set[str]) -> None:
        """Of the program whose place this one has taken: what still runs stays, and no name is given twice."""
        for name in os.listdir(self._root):
            number = name[1:]
            if name[:1] == "a" and number.isdigit():
                self._made = max(self._made, int(number))
            if name not in kept:
                path = os.path.join(self._root, name)
                with contextlib.suppress(OSError):
                    os.unlink(path)
                self._in_thread(remove_tree, path)

    def spill_path(self, name: str) -> str:
        """Where an attempt's unsent log goes when it is too much for memory: no task may read it."""
        return os.path.join(self._root, name)

    def take(self, fills: bool) -> str:
        """An empty folder, with an empty folder for temporary files in it; `fills`: the agent will put files there
        before the command starts. NoneFree if it can't be had for now, another OSError if it can't be made."""
        if self._spare:
            return self._spare.pop()
        self._made += 1
        folder = os.path.join(self._root, "a%d" % self._made)
        os.mkdir(folder, 0o700)
        try:
            os.mkdir(os.path.join(folder, TEMPORARY), 0o700)
        except OSError:  # the disk is full, and half a folder makes it no emptier
            os.rmdir(folder)
            raise
        return folder

    def give_back(self, folder: str, filled: bool = False) -> None:
        """The attempt is settled, or left its folder empty: nothing of it stays. `filled`: the agent puts files there,
        and a transfer that was given up may be about to put one more."""
        if not filled and len(self._spare) < _MOST_SPARE and is_untouched(folder):
            self._spare.append(folder)
        else:
            self._in_thread(remove_tree, folder)

    def costs_nothing(self, folder: str) -> bool:
        """Whether it can be given back at once, without waiting for the disk."""
        return is_untouched(folder)

    async def reclaim(self, folder: str) -> None:
        """Nothing lives that was started in `folder`: what is in it is the agent's. OSError if it can't be had."""

    def clear(self) -> None:
        """Remove everything."""
        remove_tree(self._root)
        remove_tree(self._waste)


def free_room(folder: str) -> int:
    """How many bytes its disk has free for whoever asks; 0 where that is not said."""
    with contextlib.suppress(OSError):
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
    return 0


def remove_tree(folder: str) -> None:
    """Remove `folder` with all that is in it, as far as that is allowed. What a task has nested deeper than Python can
    follow, or has made so that its owner may not write, is left to `remove_by_force`."""
    import shutil  # not at the top: the supervisor, which needs the rest of this module, stays small

    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder) and not os.path.islink(folder):
        remove_by_force(folder)


def remove_by_force(folder: str) -> None:
    """Remove `folder`, however deep it is; what its owner may not write to is made so, where that is in the way. Only
    for whoever has the rights of that owner and no more: then no mode of anybody else's can change."""
    remove = ["/bin/rm", "-rf", "--", folder]
    for command in (remove, ["/bin/chmod", "-R", "u+rwx", "--", folder], remove):
        _run(command)
        if not os.path.lexists(folder):  # how a command ended somebody else may have been told, who waits for all
            return


def _run(command: List[str]) -> None:
    """What it has to say is nobody's, least of all the next task's."""
    import subprocess  # as above

    null = subprocess.DEVNULL
    subprocess.run(command, stdin=null, stdout=null, stderr=null, check=False)


def is_untouched(folder: str, owner: Optional[int] = None) -> bool:
    """Whether `folder` is as `take` gave it, and `owner`'s if one is named. Reads no more than a few names of it."""
    try:
        temporary = os.path.join(folder, TEMPORARY)
        for path in (folder, temporary):
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or stat.S_IMODE(status.st_mode) != 0o700:
                return False
            if owner is not None and status.st_uid != owner:
                return False
        return _names(folder) == [TEMPORARY] and not _names(temporary)
    except OSError:
        return False


def _names(folder: str) -> List[str]:
    """The first two names in `folder`."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, 2)]
