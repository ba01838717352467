"""What a process gives to another, or to its next program, in a descriptor: no file of it lies anywhere."""

from __future__ import annotations

import os


def holding(name: str, content: bytes) -> int:
    """A descriptor with all of `content` in it, to be read once and closed by the caller. OSError."""
    descriptor = os.memfd_create(name)
    left = memoryview(content)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
