"""Folders in which something is made for a while. Owns that what a killed process has left in one is deleted by the
next, and that one in which somebody still works is not.

A copy that is cut off is as large as a whole one, and nobody lists it: one an hour fills the disk.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def workplace(folder: Path, prefix: str, suffix: str, left: re.Pattern[str]) -> Iterator[Path]:
    """A new folder in `folder`, which nobody else may look into; those there of the names `left` that no process has
    any more are deleted first. What is renamed meanwhile stays."""
    with _locked(folder):  # a new one has no lock yet
        for one in folder.iterdir():
            if left.fullmatch(one.name):
                with suppress(OSError), _locked(one, wait=False) as free:  # it may just become what was to be made
                    if free:
                        shutil.rmtree(one, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=folder))
        held = ExitStack()
        held.enter_context(_locked(made))
    with held:
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether it is ours for as long. It never is where the file system knows no such locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        locked = False
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            locked = True
        yield locked
    finally:
        os.close(descriptor)
