"""Logs: chunks in at offsets, bytes out to followers."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import cast

import pytest

from cloud_dispatch.api import worker
from cloud_dispatch.api.http import Gap, TooLarge
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.wire.messages import LOGS_PATH, HeldClaim
from tests.api.house import Agent, AheadClock, House, error_of
from tests.virtual_time import standing_still

T, K = TaskId(1), FencingToken(2)


async def running(house: House) -> tuple[Agent, HeldClaim]:
    """An agent that holds one claim."""
    agent = await house.agent()
    await house.submit()
    await agent.sync(want=1)
    return agent, agent.held[0]


async def send(house: House, agent: Agent, claim: HeldClaim, offset: int, chunk: bytes) -> tuple[int, object]:
    query = {"task": claim.task, "token": claim.token, "offset": offset}
    response = await house.http.post(LOGS_PATH, params=query, content=chunk, headers=agent.headers)
    return response.status_code, response.json()


async def test_chunks_are_appended_at_their_offsets_and_twice_is_once(house: House) -> None:
    """A repeated or overlapping chunk adds only what is new; the answer says where the next one starts."""
    agent, claim = await running(house)
    assert await send(house, agent, claim, 0, b"hello ") == (200, {"offset": 6})
    assert await send(house, agent, claim, 0, b"hello ") == (200, {"offset": 6})
    assert await send(house, agent, claim, 3, b"lo world") == (200, {"offset": 11})
    reply = await house.op.get(f"/v1/tasks/{claim.task}/logs")
    assert reply.content == b"hello world"
    assert reply.headers["x-offset"] == "11"
    assert reply.headers["x-attempt"] == str(claim.token)
    assert "x-complete" not in reply.headers


async def test_a_gap_is_refused_with_the_offset_to_continue_at(house: House) -> None:
    """Bytes are never skipped: 409 and the size that is stored."""
    agent, claim = await running(house)
    await send(house, agent, claim, 0, b"abc")
    query = {"task": claim.task, "token": claim.token, "offset": 9}
    response = await house.http.post(LOGS_PATH, params=query, content=b"x", headers=agent.headers)
    assert error_of(response) == (409, "gap", "offset")
    assert response.headers["x-offset"] == "3"
    assert await send(house, agent, claim, 0, b"") == (200, {"offset": 3}), "who has not seen the header asks so"


async def test_a_chunk_that_is_refused_leaves_no_file(tmp_path: Path) -> None:
    """Neither past the end of a log that is not there yet, nor past the bound."""
    logs = LogStore(tmp_path / "logs", 100)
    for offset in (7, 10_000):
        with pytest.raises((Gap, TooLarge)):
            logs.append(T, K, offset, b"x")
    assert not (tmp_path / "logs").exists()


async def test_only_the_holder_of_the_claim_writes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another instance, another token, and what comes long after the end, are stale."""
    agent, claim = await running(house)
    other = await house.agent()
    assert (await send(house, other, claim, 0, b"x"))[0] == 409
    assert (await send(house, agent, HeldClaim(claim.task, claim.token + 1), 0, b"x"))[0] == 409
    await agent.finish(claim)
    monkeypatch.setattr(worker, "_LOG_GRACE_MS", -60_000)
    status, body = await send(house, agent, claim, 0, b"x")
    assert (status, body["code"]) == (409, "stale-lease")  # type: ignore[index]


async def test_an_attempt_that_ended_a_moment_ago_may_finish_its_log(house: House) -> None:
    """Chunks may come after the result, all of them if the dispatcher was away, and touch its own file only."""
    agent, claim = await running(house)
    await agent.finish(claim)
    assert (await send(house, agent, claim, 0, b"first "))[0] == 200
    assert (await send(house, agent, claim, 6, b"last"))[0] == 200
    other = await house.agent()
    assert (await send(house, other, claim, 10, b"x"))[0] == 409


async def test_an_attempt_whose_end_is_told_late_may_finish_its_log(house: House) -> None:
    """The moment that counts is when the dispatcher heard of it: before, there was nobody to send a log to."""
    agent, claim = await running(house)
    cast(AheadClock, house.services.clock).ahead_ms += 600_000
    await agent.finish(claim, ago_ms=590_000)
    (attempt,) = await house.store.attempts(TaskId(claim.task))
    assert attempt.told_ms - attempt.ended_ms == 590_000
    assert (await send(house, agent, claim, 0, b"all of it"))[0] == 200


async def test_a_log_is_bounded(house: House) -> None:
    """Past the bound a chunk is refused whole, and the rest of the log stays."""
    agent, claim = await running(house)
    assert (await send(house, agent, claim, 0, b"x" * 100_000))[0] == 200
    status, body = await send(house, agent, claim, 100_000, b"x" * 5_000)
    assert (status, body["code"]) == (413, "too-large")  # type: ignore[index]
    assert house.services.logs.size(TaskId(claim.task), FencingToken(claim.token)) == 100_000


async def test_a_follower_gets_new_bytes_as_they_come_and_learns_of_the_end(house: House) -> None:
    """A long poll ends with the first byte after its offset, and at once when the task ended."""
    agent, claim = await running(house)
    url = f"/v1/tasks/{claim.task}/logs"
    waiting = asyncio.create_task(house.op.get(url, params={"offset": 0, "wait_ms": 20_000}))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    with standing_still():
        await send(house, agent, claim, 0, b"line\n")
        reply = await waiting
    assert (reply.content, reply.headers["x-offset"]) == (b"line\n", "5")
    waiting = asyncio.create_task(house.op.get(url, params={"offset": 5, "wait_ms": 20_000}))
    await asyncio.sleep(0.1)
    with standing_still():
        await agent.finish(claim)
        reply = await waiting
    assert (reply.content, reply.headers["x-complete"]) == (b"", "1")


async def test_a_follower_may_start_before_the_task_does(house: House) -> None:
    """Following a queued task waits for its first attempt."""
    (task,) = await house.submit()
    waiting = asyncio.create_task(house.op.get(f"/v1/tasks/{task}/logs", params={"wait_ms": 20_000}))
    await asyncio.sleep(0.05)
    agent = await house.agent()
    await agent.sync(want=1)
    await send(house, agent, agent.held[0], 0, b"at last")
    assert (await asyncio.wait_for(waiting, 3)).content == b"at last"


async def test_logs_of_attempts_are_kept_apart(house: House) -> None:
    """Each attempt has its own log, found by its number or its token; without a choice the current one is read."""
    agent, first = await running(house)
    await send(house, agent, first, 0, b"first")
    await agent.finish(first, "preempted")
    await agent.sync(want=1)
    second = agent.held[0]
    await send(house, agent, second, 0, b"second")
    url = f"/v1/tasks/{first.task}/logs"
    assert (await house.op.get(url)).content == b"second"
    for ended in (False, True):
        for number, claim, content in ((1, first, b"first"), (2, second, b"second")):
            for chosen in (number, claim.token):
                reply = await house.op.get(url, params={"attempt": chosen})
                assert (reply.content, reply.headers["x-attempt"]) == (content, str(claim.token)), (chosen, ended)
        for unknown in (3, 999):
            assert error_of(await house.op.get(url, params={"attempt": unknown}))[0] == 404
        if not ended:
            await agent.finish(second)


async def test_an_offset_of_the_attempt_before_leads_to_the_beginning_of_this_one(house: House) -> None:
    """At once, while it runs and once it has ended, which is no complete log then; an attempt that was named has its
    own offsets."""
    agent, first = await running(house)
    await send(house, agent, first, 0, b"a long first attempt")
    await agent.finish(first, "preempted")
    await agent.sync(want=1)
    second = agent.held[0]
    url = f"/v1/tasks/{first.task}/logs"
    query = {"offset": 20, "wait_ms": 20_000}
    for content in (b"", b"second"):
        await send(house, agent, second, 0, content)
        reply = await asyncio.wait_for(house.op.get(url, params=query), 10)
        assert (reply.content, reply.headers["x-offset"]) == (b"", "0")
        assert reply.headers["x-attempt"] == str(second.token)
    named = await house.op.get(url, params={"offset": 20, "attempt": second.token})
    assert (named.content, named.headers["x-offset"]) == (b"", "20")
    await agent.finish(second)
    reply = await house.op.get(url, params=query)
    assert (reply.headers["x-offset"], "x-complete" in reply.headers) == ("0", False)
    reply = await house.op.get(url, params={"offset": reply.headers["x-offset"], "wait_ms": 20_000})
    assert (reply.content, reply.headers["x-complete"]) == (b"second", "1")


async def test_at_most_a_mebibyte_a_reply(house: House) -> None:
    """A long log is read in pieces; only the last one is complete."""
    agent, claim = await running(house)
    house.services.logs._limit = 3 << 20
    whole = os.urandom((1 << 20) + 17)
    await send(house, agent, claim, 0, whole)
    await agent.finish(claim)
    url = f"/v1/tasks/{claim.task}/logs"
    one = await house.op.get(url)
    assert len(one.content) == 1 << 20
    assert "x-complete" not in one.headers
    two = await house.op.get(url, params={"offset": one.headers["x-offset"]})
    assert one.content + two.content == whole
    assert two.headers["x-complete"] == "1"


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of which only half could be written is taken back whole; it can be sent again later."""
    logs = LogStore(tmp_path, 10_000)
    logs.append(T, K, 0, b"before")
    write = os.pwrite
    calls = 0

    def full(file: int, chunk: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, chunk[:3], offset)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            logs.append(T, K, 6, b"after")
    assert logs.read(T, K, 0) == b"before"
    assert logs.append(T, K, 6, b"after") == 11


async def test_a_full_disk_is_507_with_a_clear_error(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent learns that it should try again, the operator what to do."""
    agent, claim = await running(house)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        status, body = await send(house, agent, claim, 0, b"x")
    assert (status, body["code"]) == (507, "store-unavailable")  # type: ignore[index]
    assert "free space" in body["hint"]  # type: ignore[index]


async def test_a_log_that_was_deleted_is_told_from_one_that_never_was(house: House) -> None:
    """Also after a restart. Who printed nothing since logs were deleted last has an empty log, and so has everybody
    where none was."""
    clock, logs = cast(AheadClock, house.services.clock), house.services.logs
    agent, old = await running(house)
    await send(house, agent, old, 0, b"old")
    await agent.finish(old)
    silent = await house.done(agent)
    for task, content in ((old.task, b"old"), (silent, b"")):
        reply = await house.op.get(f"/v1/tasks/{task}/logs")
        assert (reply.content, reply.headers["x-complete"]) == (content, "1")
    assert not logs.prune(clock.now() - 60_000, lambda *_: False)
    assert (await house.op.get(f"/v1/tasks/{silent}/logs")).status_code == 200, "nothing was old enough"
    clock.ahead_ms += 600_000
    late = await house.done(agent)
    (waits,) = await house.submit()
    assert not logs.prune(clock.now() - 300_000, lambda *_: False)
    again = LogStore(logs._root, 1000)
    assert again.gone(TaskId(old.task), FencingToken(old.token), clock.now() - 600_000)
    for query in ({}, {"attempt": 1}, {"offset": 3}):
        answer = await house.op.get(f"/v1/tasks/{old.task}/logs", params=query)
        assert error_of(answer) == (404, "not-found", "attempt")
        assert "no longer kept" in answer.text
    for task in (late, waits):
        reply = await house.op.get(f"/v1/tasks/{task}/logs")
        assert (reply.status_code, reply.content) == (200, b"")


def test_old_logs_are_pruned_a_bounded_number_a_call(tmp_path: Path) -> None:
    """Only what was last written before the moment goes; successive calls get through everything."""
    logs = LogStore(tmp_path, 1000)
    for task in range(10):
        logs.append(TaskId(task), K, 0, b"x")
        if task < 7:
            os.utime(tmp_path / "0" / f"{task}.2.log", (1, 1))
    for others in (True, True, False):
        before = len(list(tmp_path.rglob("*.log")))
        assert logs.prune(2_000_000, lambda *_: False, batch=4) is others
        assert before - len(list(tmp_path.rglob("*.log"))) <= 4
    assert sorted(path.name for path in tmp_path.rglob("*.log")) == ["7.2.log", "8.2.log", "9.2.log"]
