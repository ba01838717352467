"""Where the statestore of a run lives: in SQLite's own memory, shared by all connections to it. Owns its copies.

A store's file is what its memory is filled from: the lock is beside it, a restore makes it anew. Commits change the
memory alone, which outlasts every incarnation; in a file, even one in memory, they took twice the time. A new disk
starts as a copy of one that was migrated before, so that a run does not pay for migrations.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from cloud_dispatch import statestore
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.simulation.clock import EPOCH_MS

_MEMORY = Path("/dev/shm")
_PREFIX = "cloud-dispatch-simulation-"
#: Locked in a folder as long as the process lives that made it.
_LOCK = "lock"
#: Twice SQLite's usual page. Where pages that are split change places, SQLite looks at every page in memory when it
#: commits (3.40 does): with 300,000 tasks a third of a commit. Still larger ones cost more to copy for the journal.
_PAGE = 8_192


#: In place of a backup, where there is none: a store that is empty.
NOTHING = Path("/nothing")


class Disk:
    """One folder with one store in it; `close` removes both. What a process leaves that was killed goes with the next
    one's first."""

    def __init__(self) -> None:
        above = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
        _sweep(above)
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=above)
        self.folder = Path(self._folder.name)
        self._lock = _locked(self.folder)
        self._path = self.folder / "store.sqlite"
        self._file_url = f"sqlite:///{self._path}"
        # Shared by its name: that of the file, so that the lock and what the store says of itself are as for a file.
        shared = f"file:{self._path}?mode=memory&cache=shared"
        self.url = f"sqlite:///{shared}&uri=true"
        self._keeper = sqlite3.connect(shared, uri=True)  # the memory lasts as long as this is open
        self._copies = 0

    def format(self) -> None:
        """Put an empty store on it. Outside of any loop."""
        self._path.write_bytes(_template())
        self._fill()

    def _fill(self) -> None:
        """Replace the memory by the file."""
        with closing(sqlite3.connect(self._path)) as file:
            file.backup(self._keeper)

    def copy(self) -> Path:
        """A backup of the store as it is now, whoever has it open."""
        self._copies += 1
        target = self.folder / f"backup-{self._copies}.sqlite"
        statestore.backup(self.url, target)
        return target

    def restore(self, source: Path, now_ms: int) -> None:
        """Replace the store, which nobody may have open, by a backup, or by `NOTHING`; `now_ms` by the clock of whoever
        does it."""
        for path in (self._path, self._path.with_name(self._path.name + "-wal"), Path(f"{self._path}-shm")):
            path.unlink(missing_ok=True)
        if source is NOTHING:
            self.format()
            return
        statestore.restore(source, self._file_url, now_ms=now_ms)
        self._fill()

    def fall_back(self, source: Path) -> None:
        """Replace what the store holds by a backup, under whoever has it open: as a replica does that lagged."""
        with closing(sqlite3.connect(source)) as older:
            older.backup(self._keeper)

    def came_back(self, now_ms: int) -> None:
        """An operator says that what the store, which nobody may have open, holds is what is left."""
        statestore.came_back(self.url, now_ms=now_ms)

    def close(self) -> None:
        self._keeper.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._folder.cleanup()
        os.close(self._lock)


@cache
def _sweep(above: Path) -> None:
    """Remove the folders of processes of this user that live no more. Once a process: they are few, and small."""
    for lock in above.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):  # it is locked, another user's, or gone by now
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def _locked(folder: Path) -> int:
    """The descriptor of its lock, which is locked before it has its name."""
    unnamed = folder / f".{_LOCK}"
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    unnamed.rename(folder / _LOCK)
    return descriptor


@cache
def _template() -> bytes:
    """An empty store, migrated; made when one is first wanted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.sqlite"
        asyncio.run(_make(f"sqlite:///{path}"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("DELETE FROM facts")
            connection.execute("DELETE FROM counters")
            connection.commit()
            connection.execute(f"PRAGMA page_size={_PAGE}")
            connection.execute("VACUUM")
        return path.read_bytes()


class _Still:
    """A clock and names for a store that nobody uses."""

    def now(self) -> int:
        return EPOCH_MS

    def monotonic(self) -> int:
        return 0

    def name(self, purpose: str, length: int = 12) -> str:
        return purpose

    def secret(self, purpose: str) -> str:
        return purpose

    def fraction(self, purpose: str) -> float:
        return 0.0


async def _make(url: str) -> None:
    still = _Still()
    store = await statestore.open_store(url, clock=still, entropy=still, executor=Inline())
    await store.close()
