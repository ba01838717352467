"""Which files an output's path means. Owns that none of them is left out without a word: what can't be looked into or
named fails the output.

A link is what it leads to, as long as that is within the working folder. Whoever else may write there could make a link
of anything at any time: so a file is opened once, on the way that was looked at, and read by its descriptor alone.
"""

from __future__ import annotations

import glob
import os
import stat
from typing import IO, Callable, Iterator, List, Set, Tuple  # noqa: UP035

from cloud_dispatch.agent.depot import TransferFailed

MOST_OUTPUTS = 10_000
#: What is opened is what its name says, and nothing is waited for: a pipe that took a file's place has no other end.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def inside(folder: str, path: str) -> str:
    """The real place of `path` below `folder`, a working folder; TransferFailed where it leads out of it."""
    full = os.path.realpath(os.path.join(folder, path))
    if not path or not full.startswith(folder.rstrip("/") + "/"):
        raise TransferFailed("path %r leaves the working folder" % path)
    return full


def opened(folder: str, path: str) -> IO[bytes]:
    """The plain file that `path` below `folder`, a real place, leads to. OSError; TransferFailed where it is none."""
    *folders, name = os.path.relpath(inside(folder, path), folder).split("/")
    at = os.open(folder, _FOLDER)
    try:
        for each in folders:
            below = os.open(each, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        file = os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "rb")
    os.close(file)
    raise TransferFailed("output %s is not a file" % path)


def found(folder: str, path: str, check: Callable[[], None]) -> List[str]:
    """The files that `path` means, relative to `folder`: itself, all of a folder, or a pattern's. `check` is called at
    every folder; what it raises ends it."""
    try:
        names = _matches(folder, path, check)
    except RecursionError:
        raise TransferFailed("output %s: its folders are nested too deeply" % path) from None
    except OSError as error:
        where = os.path.relpath(os.fsdecode(error.filename), folder) if error.filename else path
        raise TransferFailed("output %s: can't look into %s: %s" % (path, ascii(where), error.strerror)) from None
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:  # noqa: PERF203
            raise TransferFailed("output %s: the name of %s is no UTF-8" % (path, ascii(name))) from None
    return names


def _matches(folder: str, path: str, check: Callable[[], None]) -> List[str]:
    """Each file once: a pattern such as `**` matches a folder and what lies in it as well, and the working folder."""
    full = os.path.join(folder, path)
    names = [full] if os.path.lexists(full) else sorted(glob.glob(full, recursive=True))
    files: List[str] = []
    walked: Set[str] = set()
    for name in names:  # sorted: a folder comes before what lies in it
        relative = os.path.relpath(name, folder)
        if relative == "." or relative in walked or _is_below(relative, walked):
            continue
        inside(folder, relative)
        if os.path.isdir(name):
            walked.add(relative)
            files.extend(_Walk(folder, path, check).below(relative, ()))
        else:
            files.append(relative)
    if not files:
        raise TransferFailed("output %s is missing" % path)
    return files


def _is_below(relative: str, folders: Set[str]) -> bool:
    above = os.path.dirname(relative)
    while above and above not in folders:
        above = os.path.dirname(above)
    return bool(above)


class _Walk:
    """All files below a folder. Bounded, since links can make many folders of few, and no more files are of use."""

    def __init__(self, folder: str, path: str, check: Callable[[], None]) -> None:
        self._folder = folder
        self._path = path
        self._check = check
        self._entered = self._found = 0

    def below(self, relative: str, above: Tuple[Tuple[int, int], ...]) -> Iterator[str]:
        """The files below the folder `relative`; `above` are those that it was reached through."""
        self._check()
        self._entered += 1
        if self._entered > MOST_OUTPUTS:
            raise TransferFailed("output %s: more than %d folders" % (self._path, MOST_OUTPUTS))
        status = os.stat(os.path.join(self._folder, relative))
        mark = (status.st_dev, status.st_ino)
        if mark in above:
            raise TransferFailed("output %s: %s leads back to a folder above it" % (self._path, ascii(relative)))
        with os.scandir(os.path.join(self._folder, relative)) as entries:
            kinds = sorted(self._kinds(entries))
        for name, _, is_link in kinds:
            if is_link:
                inside(self._folder, os.path.join(relative, name))
        yield from (os.path.join(relative, name) for name, is_folder, _ in kinds if not is_folder)
        for name, is_folder, _ in kinds:
            if is_folder:
                yield from self.below(os.path.join(relative, name), (*above, mark))

    def _kinds(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[Tuple[str, bool, bool]]:
        """Of each entry its name, and whether it is a folder and a link."""
        for entry in entries:
            is_folder = entry.is_dir()
            self._found += not is_folder
            if self._found > MOST_OUTPUTS:
                raise TransferFailed("more than %d output files" % MOST_OUTPUTS)
            yield entry.name, is_folder, entry.is_symlink()
