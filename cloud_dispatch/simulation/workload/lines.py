"""Lines of a file that may be compressed and larger than memory. Owns opening, bounds, and unreadable bytes."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Protocol, cast

from cloud_dispatch.domain.errors import InvalidInput, NotFound

#: A longer line is no line of a log: it would have to be held in memory whole.
MAX_LINE = 65_536
_GZIP = b"\x1f\x8b"


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and content, without its end, of each line of `path` (`-`: the standard input; a pipe will do);
    gzip is seen by its first bytes.

    NotFound when there is no such file, InvalidInput with the line for what can't be read.
    """
    try:
        given = nullcontext(cast(BufferedReader, sys.stdin.buffer)) if str(path) == "-" else path.open("rb")
        with given as raw:
            packed = raw.peek(2).startswith(_GZIP)
            with gzip.open(raw) if packed else nullcontext(raw) as stream:
                yield from _numbered(stream, path)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidInput(f"can't be read: {error.strerror or error}", place=str(path)) from None


class _Lines(Protocol):
    def readline(self, size: int, /) -> bytes: ...


def _numbered(stream: _Lines, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while True:
        number += 1
        try:
            line = stream.readline(MAX_LINE + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(f"expected a whole gzip file: {error}", place=f"{path}:{number}") from None
        if not line:
            return
        if len(line) > MAX_LINE:
            raise InvalidInput(f"expected lines of at most {MAX_LINE} bytes", place=f"{path}:{number}")
        yield number, line.rstrip(b"\r\n")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Like `lines`, as UTF-8 text (a byte order mark at the start is left out); InvalidInput for what is not."""
    for number, line in lines(path):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InvalidInput("expected UTF-8 text", place=f"{path}:{number}") from None
