"""Small files that outlive a machine which loses its power. Owns how one is written: whole or not there, then synced.

A rename alone is not enough: a file system may keep the new name and lose what was in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_dispatch.ownership import give


def write(path: Path, content: bytes, mode: int, owner: Path | None = None) -> None:
    """`content` as the file `path`, in place of one that is there; the owner's of the folder `owner`, if one is named.
    What is there stays as it is until all of it can be replaced."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with naming(path), os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the process leaves out of the modes of new files
            if owner is not None:
                give(descriptor, owner)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    os.replace(fresh, path)
    sync(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError names the file: the system says that a disk is full, and not which."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sync(path: Path | str) -> None:
    """Wait until what is in the file is on the disk, or which names are in the folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
