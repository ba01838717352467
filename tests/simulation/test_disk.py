"""The disk of a run: what is committed outlasts everybody who had it open, what is not never was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloud_dispatch import statestore
from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.domain.task import TaskSpec
from cloud_dispatch.simulation import disk as disk_module
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.disk import Disk
from cloud_dispatch.simulation.entropy import SeededEntropy, SeededStreams
from cloud_dispatch.statestore import SqlStore
from cloud_dispatch.statestore.engine import make_engine, parse_url
from cloud_dispatch.statestore.loading import tokens_by
from cloud_dispatch.statestore.schema import counters, facts
from cloud_dispatch.testing.store_builders import ManualClock


@pytest.fixture
def disk() -> Iterator[Disk]:
    with closing(Disk()) as made:
        made.format()
        yield made


async def opened(disk: Disk) -> SqlStore:
    clock, entropy = ManualClock(), SeededEntropy(SeededStreams(1))
    return await statestore.open_store(disk.url, clock=clock, entropy=entropy, executor=Inline())


def test_what_is_committed_outlasts_who_had_it_open(disk: Disk) -> None:
    async def live() -> None:
        first = await opened(disk)
        await first.submit([TaskSpec(argv=("true",))])
        with pytest.raises(Conflict, match="is in use by pid"):
            await opened(disk)
        await first.close()
        second = await opened(disk)
        assert (second.id, sum(second.task_counts().values())) == (first.id, 1)
        await second.close()

    asyncio.run(live())


def test_a_transaction_of_the_dead_never_was(disk: Disk) -> None:
    """A connection that is lost in the middle takes its lock and its writes along."""
    engine = make_engine(parse_url(disk.url))
    dead = engine.connect()
    dead.begin()
    dead.execute(sa.insert(facts).values(name="unsaid", value="x"))
    dead.invalidate()
    with engine.begin() as living:
        assert not living.scalar(sa.select(sa.func.count()).select_from(facts).where(facts.c.name == "unsaid"))
        living.execute(sa.insert(facts).values(name="said", value="x"))
    with engine.begin() as living:
        assert living.scalar(sa.select(sa.func.count()).select_from(facts).where(facts.c.name == "said")) == 1
    engine.dispose()


def test_a_copy_is_of_the_store_in_use_and_a_restore_replaces_it(disk: Disk) -> None:
    async def live() -> None:
        store = await opened(disk)
        await store.submit([TaskSpec(argv=("true",))])
        copy = disk.copy()
        await store.submit([TaskSpec(argv=("false",))] * 2)
        with pytest.raises(Conflict, match="is in use by pid"):
            disk.restore(copy, EPOCH_MS)
        await store.close()
        disk.restore(copy, EPOCH_MS)
        again = await opened(disk)
        assert sum(again.task_counts().values()) == 1
        await again.close()

    asyncio.run(live())
    engine = make_engine(parse_url(disk.url))
    with engine.begin() as connection:
        first = connection.scalar(sa.select(counters.c.value).where(counters.c.name == "token"))
    assert first >= tokens_by(EPOCH_MS)
    engine.dispose()


def test_pages_are_the_larger_ones_also_after_a_restore(disk: Disk) -> None:
    """With SQLite's usual ones commits of a long run took half as long again."""

    async def live() -> None:
        await (await opened(disk)).close()

    asyncio.run(live())
    disk.restore(disk.copy(), EPOCH_MS)
    assert disk._keeper.execute("PRAGMA page_size").fetchone() == (8_192,)
    assert disk._keeper.execute("PRAGMA integrity_check").fetchone() == ("ok",)


_KILLED = """
import os, signal
from pathlib import Path
from cloud_dispatch.simulation import disk

disk._MEMORY = Path("memory").resolve()
kept = disk.Disk()
kept.format()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_goes_with_the_next_ones_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of who lives nothing goes, nor what another version, which locks nothing, may still use."""
    memory = tmp_path / "memory"
    unlocked = memory / "cloud-dispatch-simulation-unlocked"
    unlocked.mkdir(parents=True)
    monkeypatch.setattr(disk_module, "_MEMORY", memory)
    with closing(Disk()) as living:
        subprocess.run([sys.executable, "-c", _KILLED], cwd=tmp_path, check=False, timeout=60)
        (left,) = set(memory.iterdir()) - {living.folder, unlocked}
        assert (left / "store.sqlite").exists()
        disk_module._sweep.cache_clear()  # as a new process would
        with closing(Disk()) as following:
            assert set(memory.iterdir()) == {living.folder, following.folder, unlocked}
    assert set(memory.iterdir()) == {unlocked}
