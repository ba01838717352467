"""Where an attempt's files lie under the state directory, and how to reach them without leaving it.

Owns path rules. Names that come from outside are taken apart here, and folders are opened one by one without following
links, so that no name and no planted link leads elsewhere.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cloud_dispatch.domain.errors import DispatchError, InvalidInput, NotFound, StoreUnavailable
from cloud_dispatch.domain.ids import FencingToken, TaskId

_NAME_BYTES = 255
_PATH_BYTES = 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def task_group(root: Path, task: TaskId) -> Path:
    """The folder that a thousand tasks share, so that none grows without bound."""
    return root / str(task // 1000)


def attempt_folder(root: Path, task: TaskId, token: FencingToken) -> Path:
    """The folder of one attempt, named by its fencing token."""
    return task_group(root, task) / str(task) / str(token)


def split_path(path: str) -> tuple[str, ...]:
    """The names that a relative path consists of; InvalidInput for one that is absolute, odd, or leaves its folder."""
    parts = tuple(path.split("/"))
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidInput("the path is not UTF-8", place="path") from None
    if not path or size > _PATH_BYTES or any(len(part.encode()) > _NAME_BYTES for part in parts):
        raise InvalidInput(f"a path has 1 to {_PATH_BYTES} bytes, a name in it at most {_NAME_BYTES}", place="path")
    if any(part in ("", ".", "..") for part in parts) or not path.isprintable():
        hint = "use a relative path such as out/result.txt, without empty, '.' or '..' parts or control characters"
        raise InvalidInput(f"{path!r} is not a path inside the task's folder", place="path", hint=hint)
    return parts


def open_folder(base: Path, parts: tuple[str, ...], *, create: bool) -> int:
    """A descriptor of the folder `parts` below `base`, which the caller closes; links are not followed.

    NotFound when it is not there, InvalidInput when one of the names is no folder.
    """
    if create:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder = os.open(base, _DIRECTORY)
        for part in parts:
            above = folder
            try:
                if create:
                    _make_folder(part, above)
                folder = os.open(part, _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
    except OSError as error:
        raise file_error(error, "/".join(parts)) from None
    return folder


def _make_folder(name: str, above: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return


def open_file(base: Path, parts: tuple[str, ...]) -> int:
    """A descriptor for reading the file `parts` below `base`, which the caller closes. NotFound when there is none."""
    folder = open_folder(base, parts[:-1], create=False)
    try:
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        raise file_error(error, "/".join(parts)) from None
    finally:
        os.close(folder)


def file_error(error: OSError, path: str) -> DispatchError:
    """What an OSError on a file of an attempt means to the caller; raises it again where it is no such thing."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free space under the dispatcher's state directory; nothing that was stored is lost"
        return StoreUnavailable("the dispatcher's disk is full", place=path, hint=hint)
    if error.errno == errno.ENOENT:
        return NotFound(f"there is no file {path}", place="path")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY):
        return InvalidInput(f"{path} is a file where a folder is needed, or the reverse", place="path")
    raise error
