"""What deleted rows took is given back to the disk when somebody asks for it, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict, InvalidInput, StoreUnavailable
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.ports.store import Retention, TaskFilter
from cloud_dispatch.statestore import compact
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.testing.store_builders import START_MS, ManualClock, spec
from tests.statestore.conftest import stores


async def test_a_store_that_was_pruned_gets_smaller(migrated_sqlite_url: str, tmp_path: Path) -> None:
    """Not while a dispatcher has it. What it keeps is as before, in one file."""
    clock, path = ManualClock(), tmp_path / "store.db"
    async with stores(migrated_sqlite_url) as open_one:
        store = await open_one(clock)
        await store.submit([spec("x" * 1000) for _ in range(2_000)])
        await store.cancel(TaskFilter(name="x" * 1000))
        await store.submit([spec("kept")])
        clock.now_ms += 1_000
        assert (await store.prune(clock.now_ms, Retention(tasks_ms=0)))["tasks"] == 2_000
        with pytest.raises(Conflict, match="in use"):
            compact(migrated_sqlite_url, now_ms=START_MS)
        await store.close()
        large = path.stat().st_size
        before, after = compact(migrated_sqlite_url, now_ms=START_MS)
        assert after == sum(one.stat().st_size for one in tmp_path.glob("store.db*") if one.suffix != ".lock")
        assert after < large // 3 <= before // 3
        assert compact(migrated_sqlite_url, now_ms=START_MS) == (after, after)
        again = await open_one(clock)
        assert (again.id, [task.id for task in await again.tasks(TaskFilter())]) == (store.id, [TaskId(2_001)])
        assert await again.check() == []
        assert await again.submit([spec()]) == [2_002]


def test_who_writes_to_it_by_other_means_is_not_cut_off(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an operator with a tool of SQLite's: it is said that the database is locked, and nothing was done."""
    monkeypatch.setattr("cloud_dispatch.statestore.engine.BUSY_TIMEOUT_MS", 50)
    engine = make_engine(parse_url(migrated_sqlite_url))
    with engine.connect() as writing, writing.begin(), pytest.raises(StoreUnavailable, match="locked"):
        compact(migrated_sqlite_url, now_ms=START_MS)
    engine.dispose()
    compact(migrated_sqlite_url, now_ms=START_MS)


def test_there_has_to_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no statestore at"):
        compact(f"sqlite:///{tmp_path}/none.db", now_ms=START_MS)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput, match="not in a file") as refused:
        compact("postgresql://nobody@nowhere/queue", now_ms=START_MS)
    assert "VACUUM FULL" in str(refused.value.hint)
