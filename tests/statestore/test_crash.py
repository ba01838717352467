"""kill -9 in mid-traffic: everything that was acknowledged is there, and the lock died with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import Conflict
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.statestore import describe_owner
from cloud_dispatch.testing.store_builders import ManualClock, OpenStore
from tests.statestore.conftest import stores

ROOT = Path(__file__).parents[2]
# Two agents claim and complete while a client submits; every acknowledgement is a line, flushed after the answer.
TRAFFIC = """
import asyncio, sys
from cloud_dispatch.adapters.executors import Thread
from cloud_dispatch.statestore import open_store
from cloud_dispatch.testing.store_builders import Agent, ManualClock, instance, result, spec
from cloud_dispatch.adapters.entropy import SystemEntropy

def say(*words):
    print(*words, flush=True)

async def agent(store, name):
    own = instance(name, cpus=64)
    await store.adopt(own)
    one, results = Agent(store, own), []
    while True:
        done = await one.sync(*results, want=8)
        for token in done.settled:
            say("settled", token)
        for claim in done.claims:
            say("claimed", claim.task, claim.token)
        results = [result(claim) for claim in done.claims]

async def client(store):
    while True:
        for task in await store.submit([spec() for _ in range(10)]):
            say("submitted", task)

async def main():
    store = await open_store(sys.argv[1], clock=ManualClock(), entropy=SystemEntropy(), executor=Thread("commit"))
    say("open")
    await asyncio.gather(client(store), agent(store, "a"), agent(store, "b"))

asyncio.run(main())
"""


def start(url: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen([sys.executable, "-c", TRAFFIC, url], stdout=out, cwd=ROOT)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the traffic ended by itself"
        assert time.monotonic() < deadline, "the traffic never came so far"
        time.sleep(0.02)


async def killed(url: str, log: Path, lines: int) -> list[list[str]]:
    """Run the traffic until it has acknowledged so much, kill it, and return what it had acknowledged."""
    process = start(url, log)
    try:
        wait_for(lambda: log.read_bytes().count(b"\n") > lines, process)
        assert f"pid {process.pid} on " in (describe_owner(url) or "")
        with pytest.raises(Conflict, match=f"in use by pid {process.pid} on .* since"):
            async with stores(url) as open_one:
                await open_one(ManualClock())
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    text = log.read_text()
    return [line.split() for line in text[: text.rfind("\n")].split("\n")]


async def check_acknowledged(open_one: OpenStore, lines: list[list[str]]) -> None:
    store = await open_one(ManualClock())
    assert await store.check() == []
    settled = {int(words[1]) for words in lines if words[0] == "settled"}
    highest = 0
    for words in lines:
        if words[0] == "submitted":
            highest = max(highest, int(words[1]))
        if words[0] == "claimed":
            task, token = TaskId(int(words[1])), int(words[2])
            found = await store.task(task)
            if token in settled:
                assert found.state is TaskState.SUCCEEDED, f"the accepted result of task {task} is lost"
                assert [attempt.token for attempt in await store.attempts(task)] == [token]
            else:
                assert token in {found.lease and found.lease.token, *[a.token for a in await store.attempts(task)]}
    assert sum(store.task_counts().values()) >= highest > 0


@pytest.mark.process
async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, sqlite_url: str) -> None:
    """Killed in mid-traffic at three points: tasks, claims and results that were answered are there."""
    for round_number, lines in enumerate((50, 700, 1500)):
        url = sqlite_url.replace("store.db", f"store{round_number}.db")
        acknowledged = await killed(url, tmp_path / f"log{round_number}", lines)
        assert describe_owner(url) is None
        async with stores(url) as open_one:
            await check_acknowledged(open_one, acknowledged)


@pytest.mark.process
async def test_kill_9_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    """The same on PostgreSQL, where the lock is a session's."""
    acknowledged = await killed(postgres_url, tmp_path / "log", 400)
    deadline = time.monotonic() + 30
    while describe_owner(postgres_url) is not None:  # the server notices the dead session by itself
        assert time.monotonic() < deadline
        time.sleep(0.05)
    async with stores(postgres_url) as open_one:
        await check_acknowledged(open_one, acknowledged)


@pytest.fixture(params=["sqlite", "postgres"])
async def open_one(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, OpenStore]]:
    url = request.getfixturevalue(f"{request.param}_url")
    async with stores(url) as opens:
        yield url, opens


async def test_the_second_opener_is_refused_and_the_first_named(open_one: tuple[str, OpenStore]) -> None:
    """Also within one process; once the first has closed, the store is free."""
    url, opens = open_one
    first = await opens(ManualClock())
    with pytest.raises(Conflict, match=f"pid {os.getpid()} on .* since 2023-11-14 22:13:20 UTC"):
        await opens(ManualClock())
    assert "since" in (describe_owner(url) or "")
    assert await first.submit([]) == []
    await first.close()
    assert describe_owner(url) is None
    await opens(ManualClock())
