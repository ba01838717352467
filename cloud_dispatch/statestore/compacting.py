"""Room of deleted rows, given back to the disk. Owns that nobody has the store open meanwhile.

SQLite uses such room again and never gives it back by itself: its file is as large as the rows ever were at once. Doing
so while it runs, bit by bit, needs a note about every page, which every commit would have to keep.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.statestore.engine import driver_errors, make_engine, parse_url, sqlite_path, translate
from cloud_dispatch.statestore.lock import FileLock, this_process


def compact(url: str, *, now_ms: int) -> tuple[int, int]:
    """Write the store at `url` anew without the room that nothing takes any more; the bytes before and after. Until it
    is written the old one is as it was, whatever happens. InvalidInput where there is none in a file, Conflict while
    somebody has it open."""
    parsed = parse_url(url)
    path = sqlite_path(parsed)
    if path is None:
        raise InvalidInput(
            "the statestore is not in a file",
            place="store.url",
            hint="PostgreSQL uses room again by itself; its VACUUM FULL gives it back to the disk",
        )
    if not path.exists() or not path.stat().st_size:
        raise InvalidInput(f"there is no statestore at {path}", place="store.url")
    engine = make_engine(parsed)
    lock = FileLock(path)
    try:
        lock.take(this_process(now_ms))
        before = _bytes(path)
        with closing(engine.raw_connection()) as connection:
            driver: Any = connection.driver_connection
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is left out of the log is in the file
        return before, _bytes(path)
    except driver_errors(engine) as error:
        raise translate(error, parsed) from error
    finally:
        lock.release()
        engine.dispose()


def _bytes(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(one.stat().st_size for one in files if one.exists())
