"""An attempt's files change hands: from the agent to the task's user before it runs, and back when nothing of it lives.

Run by root in a child process, so that it may take as long as it takes. A task decides what lies in its folder, so
nothing is ever named twice: what was opened, without following links, is looked at and handed on by its descriptor. And
only what belongs to the one is given to the other, so that a hard link to a file of somebody else's gains nothing.

A task may have opened its folders to others, who live on. So each is closed to them before it is looked through: from
then on nobody but its owner changes what it holds.
"""

from __future__ import annotations

import os
import stat
from typing import List, Tuple  # noqa: UP035

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def hand_on(folder: str, giver: int, taker: int, group: int) -> None:
    """All folders and plain files below `folder`, itself included, that belong to `giver` become `taker`'s and
    `group`'s, the folders closed to all others. The rest (links, pipes, what is another's) stays. OSError where
    `folder` itself can't be handed on."""
    top = os.open(folder, _FOLDER)
    try:
        _give(top, giver, taker, group)
    except OSError:
        os.close(top)
        raise
    queue: List[Tuple[int, List[str]]] = [(top, os.listdir(top))]
    while queue:
        parent, names = queue[-1]
        if not names:
            os.close(parent)
            queue.pop()
            continue
        below = _hand_on_one(parent, names.pop(), giver, taker, group)
        if below >= 0:
            queue.append((below, os.listdir(below)))


def _hand_on_one(parent: int, name: str, giver: int, taker: int, group: int) -> int:
    """Hand `name` in `parent` on; its descriptor where it is a folder, else -1."""
    try:
        kind = stat.S_IFMT(os.lstat(name, dir_fd=parent).st_mode)
        if kind not in (stat.S_IFDIR, stat.S_IFREG):
            return -1
        found = os.open(name, _FOLDER if kind == stat.S_IFDIR else _FILE, dir_fd=parent)
    except OSError:
        return -1  # it is gone, or has become something else
    mine = _give(found, giver, taker, group)
    if mine and kind == stat.S_IFDIR:
        return found
    os.close(found)
    return -1


def _give(found: int, giver: int, taker: int, group: int) -> bool:
    status = os.fstat(found)
    if status.st_uid != giver or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return status.st_uid == taker
    if stat.S_ISDIR(status.st_mode):
        os.fchmod(found, status.st_mode & stat.S_IRWXU)  # which takes away what access lists grant, too
    os.fchown(found, taker, group)
    return True
