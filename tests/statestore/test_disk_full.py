"""A full disk: a clear error, nothing lost, and work goes on once there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cloud_dispatch.domain.errors import StoreUnavailable, Unavailable
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.statestore import backup
from cloud_dispatch.testing.store_builders import Agent, ManualClock, instance, result, spec
from tests.small_disk import fill, mounted
from tests.statestore.conftest import stores


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small") as folder:
        yield folder


async def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """What was acknowledged stays, what was refused left nothing behind, and freeing space is all it takes."""
    url = f"sqlite:///{small_disk}/store.db"
    async with stores(url) as open_one:
        store = await open_one(ManualClock())
        await store.adopt(own := instance(cpus=1000, memory=2**50))
        accepted = list(await store.submit([spec() for _ in range(50)]))
        agent = Agent(store, own)
        claims = await agent.claim(20)
        ballast = small_disk / "ballast"
        fill(ballast)
        before = (store.task_counts(), store.leases_of(own.id))
        with capture_logs() as logs:
            for _ in range(200):
                try:
                    accepted += await store.submit([spec(f"{'long ' * 40}{n}") for n in range(50)])
                except StoreUnavailable as error:
                    refused = error
                    break
                before = (store.task_counts(), store.leases_of(own.id))
            assert "the disk of the statestore is full" in refused.message
            assert " has 0 MiB free" in refused.message
            assert "nothing was lost" in refused.hint
            await store.try_writing()
            assert store.trouble() == refused.message
            assert (store.task_counts(), store.leases_of(own.id)) == before
            big = [store.submit([spec("x" * 300_000)]) for _ in range(3)]
            answers = await asyncio.gather(*big, agent.sync(), return_exceptions=True)
            assert [type(answer) for answer in answers[:3]] == [StoreUnavailable] * 3
            assert not isinstance(answers[3], BaseException)
            ballast.unlink()
            await store.try_writing()
            assert store.trouble() == ""
        told = [one["event"] for one in logs]
        assert (told.count("store.commits_again"), told[-1]) == (1, "store.commits_again")
        assert 1 <= told.count("store.commit_failed") < 4, "said once, and anew where fewer bytes are free"
        done = await agent.sync(*[result(claim) for claim in claims])
        assert len(done.settled) == 20
        accepted += await store.submit([spec()])
        assert await store.check() == []
        await store.close()
        again = await open_one(ManualClock())
        assert sum(again.task_counts().values()) == len(accepted) == len(set(accepted))
        assert again.task_counts()[TaskState.SUCCEEDED] == 20
        assert await again.check() == []


async def test_a_full_disk_of_the_copy_is_not_said_of_the_statestore(small_disk: Path, tmp_path: Path) -> None:
    """Nothing is left of the copy, and the store is on another disk, which has room."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with stores(url) as open_one:
        store = await open_one(ManualClock())
        await store.submit([spec("x" * 300_000)])
        await store.close()
    fill(small_disk / "ballast")
    with pytest.raises(Unavailable, match=f"the disk of {small_disk} is full") as refused:
        backup(url, small_disk / "copy.sqlite")
    assert not isinstance(refused.value, StoreUnavailable)
    assert [one.name for one in small_disk.iterdir()] == ["ballast"]
