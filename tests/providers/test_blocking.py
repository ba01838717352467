"""Threads for drivers whose SDK blocks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cloud_dispatch.provider.blocking import BlockingCalls, both, still_wanted
from cloud_dispatch.provider.errors import Transient


async def test_the_loop_goes_on_while_work_blocks() -> None:
    """Work waits for something that only the loop can do; what it raises reaches the caller."""
    calls, go = BlockingCalls("test", 2), threading.Event()
    waiting = asyncio.create_task(calls.run(go.wait, 10))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    go.set()
    assert await waiting
    with pytest.raises(ZeroDivisionError):
        await calls.run(lambda: 1 // 0)
    calls.close()


async def test_no_more_than_its_threads_at_once_and_who_gives_up_takes_back_what_has_not_begun() -> None:
    """The third piece of work waits for a thread, and never begins when nobody waits for it any more."""
    calls, go, begun = BlockingCalls("test", 2), threading.Event(), []

    def work(number: int) -> None:
        begun.append(number)
        go.wait(10)

    tasks = [asyncio.create_task(calls.run(work, number)) for number in range(3)]
    while len(begun) < 2:
        await asyncio.sleep(0.01)
    tasks[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    go.set()
    await asyncio.gather(*tasks[:2])
    assert sorted(begun) == [0, 1]
    calls.close()


async def test_work_can_tell_that_nobody_waits_for_it_any_more() -> None:
    """It is no longer to be sent; the thread's next work is, and what no caller waits for at all is not asked."""
    calls, begun, go = BlockingCalls("test", 1), threading.Event(), threading.Event()
    sent: list[str] = []

    def send(name: str) -> None:
        begun.set()
        go.wait(10)
        still_wanted()
        sent.append(name)

    call = asyncio.create_task(calls.run(send, "given up"))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    await calls.run(send, "wanted")
    assert sent == ["wanted"]
    still_wanted()
    calls.close()


async def test_a_closed_pool_says_so_and_does_not_wait() -> None:
    """Closing leaves what blocks alone; later calls are Transient errors."""
    calls, go = BlockingCalls("test", 1), threading.Event()
    under_way = asyncio.create_task(calls.run(go.wait, 10))
    await asyncio.sleep(0.01)
    calls.close()
    with pytest.raises(Transient):
        await calls.run(go.set)
    go.set()
    assert await under_way


async def test_a_machine_without_another_thread_is_an_error_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not begin is not waited for by whoever closes the driver."""
    calls, closed = BlockingCalls("test", 1), list[bool]()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Transient, match="can't start new thread"):
        await calls.run(int)
    calls.close(lambda: closed.append(True))
    assert closed == [True]


async def test_what_calls_use_is_closed_when_the_last_one_has_ended() -> None:
    """At once where none is under way; once, however often the driver is closed; and what has not begun never does."""
    closed: list[int] = []
    idle = BlockingCalls("test", 1)
    assert await idle.run(lambda: 1) == 1
    idle.close(lambda: closed.append(1))
    idle.close(lambda: closed.append(1))
    assert closed == [1]

    calls, go = BlockingCalls("test", 1), threading.Event()
    under_way = asyncio.create_task(calls.run(go.wait, 10))
    waiting = asyncio.create_task(calls.run(closed.append, 3))
    await asyncio.sleep(0.05)
    calls.close(lambda: closed.append(2))
    assert closed == [1]
    go.set()
    assert await under_way
    with pytest.raises(asyncio.CancelledError):
        await waiting
    while len(closed) < 2:
        await asyncio.sleep(0.01)
    assert closed == [1, 2]


async def test_of_two_calls_neither_goes_on_when_their_answer_is_there() -> None:
    """Whichever fails, and whichever is later: the error comes when both have ended."""
    calls, go = BlockingCalls("test", 2), threading.Event()

    def fail() -> None:
        raise Transient("refused")

    for first, second in ((fail, go.wait), (go.wait, fail)):
        go.clear()
        asked = asyncio.create_task(both(calls.run(first), calls.run(second)))
        await asyncio.sleep(0.05)
        assert not asked.done()
        go.set()
        with pytest.raises(Transient, match="refused"):
            await asked
    assert await both(calls.run(lambda: 1), calls.run(lambda: "two")) == (1, "two")
    calls.close()
