"""What tasks print. Owns one file an attempt under the state directory, who waits for more of it, and its bound.

A chunk is appended at its offset, so that sending it twice changes nothing. Must not know HTTP, tasks or leases.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from cloud_dispatch.api.ages import Ages, Held
from cloud_dispatch.api.files import file_error, task_group
from cloud_dispatch.api.http import Gap, TooLarge
from cloud_dispatch.api.room import NOTHING_KEPT_BACK, Room
from cloud_dispatch.domain.ids import FencingToken, TaskId

#: Room for the line that says that a log was cut.
_SLACK = 4096
READ_BYTES = 1 << 20
#: Task, token; whatever else lies there is somebody's own.
_NAME = re.compile(r"[0-9]+\.[0-9]+\.log")
#: A file whose time is the latest before which logs were deleted.
_MARK = "pruned"


class LogStore:
    """The logs of all attempts. Reads and writes are plain calls on small pieces of files in the page cache."""

    def __init__(self, root: Path, limit: int, room: Room = NOTHING_KEPT_BACK) -> None:
        """Files go under `root`, at most `limit` bytes an attempt (and a little for a line that says so), while there
        is `room`."""
        self._root = root
        self._room = room
        self._limit = limit + _SLACK
        self._watches: dict[TaskId, set[asyncio.Event]] = {}
        self._sweep = self._files()
        self._ages = Ages()

    def append(self, task: TaskId, token: FencingToken, offset: int, chunk: bytes) -> int:
        """Store `chunk` at `offset`; what is already there is skipped. Returns the size after it, in bytes.

        Gap when bytes before `offset` are missing, TooLarge past the bound, StoreUnavailable when the disk has no room;
        a chunk that raises has changed nothing.
        """
        if offset + len(chunk) > self._limit:
            raise TooLarge(f"a log holds at most {self._limit} bytes an attempt", place="offset", hint="cut it there")
        path = self._path(task, token)
        self._room.check(path.name)
        try:
            file = _open(path) if offset == 0 else os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _gap(0, offset) from None
        except OSError as error:
            raise file_error(error, path.name) from None
        try:
            size = self._append(file, offset, chunk, path.name)
        finally:
            os.close(file)
        self.notify(task)
        return size

    def _append(self, file: int, offset: int, chunk: bytes, name: str) -> int:
        size = os.fstat(file).st_size
        if offset > size:
            raise _gap(size, offset)
        fresh = memoryview(chunk)[size - offset :]
        end = size
        try:
            while fresh:
                written = os.pwrite(file, fresh, end)
                fresh, end = fresh[written:], end + written
        except OSError as error:
            os.ftruncate(file, size)
            raise file_error(error, name) from None
        return end

    def size(self, task: TaskId, token: FencingToken) -> int:
        """Bytes stored of an attempt's log; 0 when there are none."""
        try:
            return self._path(task, token).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, task: TaskId, token: FencingToken, offset: int, limit: int = READ_BYTES) -> bytes:
        """At most `limit` bytes of an attempt's log from `offset`; empty past its end."""
        try:
            with self._path(task, token).open("rb") as file:
                return os.pread(file.fileno(), limit, offset)
        except FileNotFoundError:
            return b""

    def gone(self, task: TaskId, token: FencingToken, told_ms: int) -> bool:
        """Whether there is no log of an attempt whose end was told at this moment, and may have been one: those of
        attempts that ended until then were deleted."""
        return told_ms < self._pruned_ms() and not self._path(task, token).exists()

    def _pruned_ms(self) -> int:
        try:
            return (self._root / _MARK).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def _mark(self, before_ms: int) -> None:
        """Remember that logs from before this moment may be deleted. On a full disk, where the first mark finds no
        room, they go all the same."""
        with suppress(OSError):
            mark = self._root / _MARK
            mark.touch(mode=0o600)
            os.utime(mark, ns=(before_ms * 1_000_000,) * 2)

    @contextmanager
    def watch(self, task: TaskId) -> Iterator[asyncio.Event]:
        """An event that is set whenever a log of `task` grew or the task may have ended."""
        event = asyncio.Event()
        watches = self._watches.setdefault(task, set())
        watches.add(event)
        try:
            yield event
        finally:
            watches.discard(event)
            if not watches and self._watches.get(task) is watches:
                del self._watches[task]

    def notify(self, task: TaskId) -> None:
        """Wake whoever watches `task`."""
        for event in self._watches.get(task, ()):
            event.set()

    def close(self) -> None:
        """Wake all that watch: the dispatcher ends."""
        for task in list(self._watches):
            self.notify(task)

    def prune(self, before_ms: int, held: Held, *, batch: int = 1000) -> bool:
        """Delete logs of claims that were neither written nor `held` since the moment `before_ms`; returns whether
        others are to be looked at.

        Looks at no more than `batch` files a call; the next call goes on from there, and after the last one anew.
        """
        looked = list(islice(self._sweep, batch))
        if len(looked) < batch:
            self._sweep = self._files()
        marked_ms = self._pruned_ms()
        for path in looked:
            if self._ages.old(path, before_ms, *_claim(path), held):
                if marked_ms < before_ms:
                    self._mark(marked_ms := before_ms)
                path.unlink()
                with suppress(OSError):  # other logs are still there
                    path.parent.rmdir()
        return len(looked) == batch

    def _files(self) -> Iterator[Path]:
        every = (path for group in self._root.glob("*") for path in group.glob("*.log"))
        return (path for path in every if _NAME.fullmatch(path.name))

    def _path(self, task: TaskId, token: FencingToken) -> Path:
        return task_group(self._root, task) / f"{task}.{token}.log"


def _claim(path: Path) -> tuple[TaskId, FencingToken]:
    """Whose log it is, by its name."""
    task, token, _ = path.name.split(".")
    return TaskId(int(task)), FencingToken(int(token))


def _gap(size: int, offset: int) -> Gap:
    return Gap(f"the log has {size} bytes, the chunk starts at {offset}", expected=size)


def _open(path: Path) -> int:
    """A descriptor for writing the file at `path`. Its folder is made when it is missing, not looked for each time: the
    first line of a task's output waits for this."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)
