"""Output files that the dispatcher keeps. Owns their place on disk, one folder an attempt; must not know leases.

A file appears under its name only whole and durable; until then it lies in `incoming/`, which is emptied at start.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count, islice
from pathlib import Path

from cloud_dispatch import durable
from cloud_dispatch.api.ages import Ages, Held
from cloud_dispatch.api.files import attempt_folder, file_error, open_file, open_folder, split_path
from cloud_dispatch.api.http import TooLarge
from cloud_dispatch.api.room import NOTHING_KEPT_BACK, Room
from cloud_dispatch.api.shares import Shares, Upload, weight
from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.resources import format_size
from cloud_dispatch.ports.executor import Executor


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it arrived: its path inside the task's folder, size in bytes and sha256 (hex)."""

    path: str
    size: int
    sha256: str


class OutputStore:
    """The output files of all attempts, each attempt's under its own token."""

    def __init__(
        self, root: Path, limit: int, executor: Executor, *, total: int | None = None, room: Room = NOTHING_KEPT_BACK
    ) -> None:
        """Files go under `root`, at most `limit` bytes each and `total` an attempt, while there is `room`; `executor`
        waits for the disk."""
        self._root = root
        self._limit = limit
        self._room = room
        self._executor = executor
        self._shares = Shares(total, executor)
        self._numbers = count()
        self._incoming = root / "incoming"
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep = self._folders()
        self._ages = Ages()
        for part in self._incoming.iterdir():  # of uploads that a crash cut off
            part.unlink()

    async def store(
        self, task: TaskId, token: FencingToken, path: str, chunks: AsyncIterator[bytes], guard: Callable[[], None],
        declared: int = 0,
    ) -> Stored:  # fmt: skip
        """Keep what `chunks` brings as the attempt's file `path`, replacing an earlier upload of it. What the bytes
        that are `declared` can be refused for is refused before the first of them is asked for.

        `guard` is called before anything is written and again just before the file gets its name; what it raises stops
        the upload. TooLarge, InvalidInput for a bad path, StoreUnavailable when the disk has no room. A failed upload
        leaves nothing.
        """
        names = split_path(path)
        guard()
        base = attempt_folder(self._root, task, token)
        part = self._incoming / f"{task}-{token}-{next(self._numbers)}"
        try:
            share = await self._shares.of(base)
            with share.upload(self._former(base, names)) as upload:
                self._check(upload, declared, path)
                size, digest = await self._receive(part, chunks, upload, path)
                await self._executor.run(durable.sync, str(part))
                guard()
                upload.arrived(size, self._place(part, base, names))
        except OSError as error:
            raise file_error(error, path) from None
        finally:
            part.unlink(missing_ok=True)
        await self._executor.run(durable.sync, str(base.joinpath(*names[:-1])))
        return Stored(path, size, digest)

    def _check(self, upload: Upload, size: int, path: str) -> None:
        """Whether the upload may have `size` bytes."""
        if size > self._limit:
            message = f"an output file has at most {format_size(self._limit)}"
            raise TooLarge(message, place="body", hint="give the output a URL of its own, or raise the limit")
        self._room.check(path)
        upload.holds(size)

    async def _receive(self, part: Path, chunks: AsyncIterator[bytes], upload: Upload, path: str) -> tuple[int, str]:
        digest, size = sha256(), 0
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            async for chunk in chunks:
                size += len(chunk)
                self._check(upload, size, path)
                digest.update(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)
        return size, digest.hexdigest()

    def _place(self, part: Path, base: Path, names: tuple[str, ...]) -> int:
        """Give the upload its name; what the file weighed that had it before."""
        folder = open_folder(base, names[:-1], create=True)
        try:
            former = _weight_of(names[-1], folder)
            os.rename(part, names[-1], dst_dir_fd=folder)
        finally:
            os.close(folder)
        return former

    def _former(self, base: Path, names: tuple[str, ...]) -> int:
        """What the file weighs that has the name now."""
        try:
            folder = open_folder(base, names[:-1], create=False)
        except NotFound:
            return 0
        try:
            return _weight_of(names[-1], folder)
        finally:
            os.close(folder)

    async def prune(self, before_ms: int, held: Held, *, batch: int = 1000) -> bool:
        """Delete the files of attempts whose folders were not written to and whose claims were not `held` since the
        moment `before_ms`; returns whether others are to be looked at. Looks at no more than `batch` of them a call;
        the next call goes on from there, and after the last one anew."""
        looked = list(islice(self._sweep, batch))
        if len(looked) < batch:
            self._sweep = self._folders()
        old = [folder for folder in looked if self._ages.old(folder, before_ms, *_claim(folder), held)]
        for folder in old:
            await self._executor.run(_remove, str(folder))
        return len(looked) == batch

    def _folders(self) -> Iterator[Path]:
        groups = (group for group in self._root.glob("*") if group != self._incoming)
        every = (folder for group in groups for folder in group.glob("*/*"))
        return (folder for folder in every if folder.name.isdecimal() and folder.parent.name.isdecimal())

    def open(self, task: TaskId, token: FencingToken, path: str) -> int:
        """A descriptor for reading an attempt's file, which the caller closes. NotFound, InvalidInput."""
        return open_file(attempt_folder(self._root, task, token), split_path(path))


def _claim(folder: Path) -> tuple[TaskId, FencingToken]:
    """Whose it is, by its name and that of the folder above."""
    return TaskId(int(folder.parent.name)), FencingToken(int(folder.name))


def _weight_of(name: str, folder: int) -> int:
    try:
        return weight(os.stat(name, dir_fd=folder, follow_symlinks=False).st_size)
    except FileNotFoundError:
        return 0


def _remove(folder: str) -> None:
    """Remove an attempt's folder, and those above it that hold no other's. Of the module, for any executor."""
    shutil.rmtree(folder)
    above = os.path.dirname(folder)
    with suppress(OSError):  # other attempts, other tasks
        os.rmdir(above)
        os.rmdir(os.path.dirname(above))
