"""Which files an output's path means. Owns that all of them are within the working folder, and can be named."""

from __future__ import annotations

import glob
import os
from typing import Callable, Iterator, List  # noqa: UP035

from cloud_dispatch.agent.depot import TransferFailed

MOST_OUTPUTS = 10_000


def inside(folder: str, path: str) -> str:
    """The real place of `path` below `folder`, a working folder; TransferFailed where it leads out of it."""
    full = os.path.realpath(os.path.join(folder, path))
    if not path or not full.startswith(folder.rstrip("/") + "/"):
        raise TransferFailed("path %r leaves the working folder" % path)
    return full


def found(folder: str, path: str, check: Callable[[], None]) -> List[str]:
    """The files that `path` means, relative to `folder`: itself, all of a folder, or a pattern's. `check` is called at
    every one of them that is a folder; what it raises ends it."""
    try:
        names = _matches(folder, path, check)
    except RecursionError:
        raise TransferFailed("output %s: its folders are nested too deeply" % path) from None
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:  # noqa: PERF203
            raise TransferFailed("output %s: the name of %s is no UTF-8" % (path, ascii(name))) from None
    return names


def _matches(folder: str, path: str, check: Callable[[], None]) -> List[str]:
    full = os.path.join(folder, path)
    names = [full] if os.path.lexists(full) else sorted(glob.glob(full, recursive=True))
    files: List[str] = []
    for name in names:
        relative = os.path.relpath(name, folder)
        inside(folder, relative)
        if os.path.isdir(name):
            check()
            files.extend(_walk(folder, name))
        else:
            files.append(relative)
    if not files:
        raise TransferFailed("output %s is missing" % path)
    return files


def _walk(folder: str, top: str) -> Iterator[str]:
    for root, _, names in os.walk(top):
        for name in sorted(names):
            relative = os.path.relpath(os.path.join(root, name), folder)
            inside(folder, relative)
            yield relative
