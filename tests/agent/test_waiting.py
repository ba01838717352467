"""Waiting for a bounded time: whoever gives up is over, also in the very moment in which what it waits for ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import Any

import pytest

from cloud_dispatch.agent import notices
from cloud_dispatch.agent.channel import Channel, Endpoint
from cloud_dispatch.agent.identity import Config, NoticeSource, Step
from cloud_dispatch.agent.notices import Notices
from cloud_dispatch.agent.waiting import within


async def gives(value: str, after_s: float = 0.0) -> str:
    await asyncio.sleep(after_s)
    return value


async def test_what_is_in_time_is_given_and_what_is_not_is_cancelled() -> None:
    assert await within(5, gives("a")) == "a"
    late = asyncio.ensure_future(gives("b", 60))
    with pytest.raises(asyncio.TimeoutError):
        await within(0.01, late)
    assert late.cancelled()


async def test_a_failure_is_the_waiter_s() -> None:
    async def fails() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await within(5, fails())


@pytest.mark.parametrize("failing", [False, True])
async def test_a_cancellation_in_the_moment_of_the_end_is_not_swallowed(failing: bool) -> None:
    """`asyncio.wait_for` of Python 3.11 goes on here. Of a failure that nobody hears of nothing is said."""
    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    went_on = False

    async def ends() -> None:
        await asyncio.sleep(0.01)
        waiter.cancel()
        if failing:
            raise OSError("broken")

    async def waits() -> None:
        nonlocal went_on
        with contextlib.suppress(OSError):
            await within(5, ends())
        went_on = True

    waiter = asyncio.create_task(waits())
    await asyncio.wait({waiter})
    assert waiter.cancelled()
    assert not went_on
    gc.collect()
    assert said == []


class Service:
    """Takes connections, answers nothing, and counts who is still there."""

    def __init__(self) -> None:
        self.open = self.accepted = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.accepted += 1
        with contextlib.suppress(ConnectionError):
            await reader.read()
            while await reader.read():
                pass
        self.open -= 1
        writer.close()


def when_connected(monkeypatch: pytest.MonkeyPatch, act: Any, turns: int = 0) -> None:
    """Does `act` so many turns of the loop before it is told that a connection has been made."""
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def connecting(*args: Any, **more: Any) -> Any:
        made = await connect(*args, **more)
        act()
        for _ in range(turns):
            await asyncio.sleep(0)
        return made

    monkeypatch.setattr(loop, "create_connection", connecting)


async def test_a_request_given_up_while_its_connection_is_made_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the connection that nobody wants is closed."""
    service = Service()
    async with await asyncio.start_server(service.talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        channel = Channel(Endpoint.parse(f"http://127.0.0.1:{port}"), str)
        asking = asyncio.create_task(channel.request("POST", "/x", b""))
        when_connected(monkeypatch, asking.cancel)
        done, _ = await asyncio.wait({asking}, timeout=5)
        assert done
        assert asking.cancelled()
        async with asyncio.timeout(5):
            while not service.accepted or service.open:
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("turns", range(4))
async def test_a_service_that_is_reached_as_the_time_is_up_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """That the time was up was forgotten there: what the service did not say was waited for until the VM's end, no
    notice of a preemption was heard any more, and the agent's own end waited for it."""
    monkeypatch.setattr(notices, "PERIOD_S", 0.01)
    monkeypatch.setattr(notices, "_ANSWER_S", 0.2)
    service = Service()
    async with await asyncio.start_server(service.talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        source = NoticeSource([Step(f"http://127.0.0.1:{port}/x")])
        when_connected(monkeypatch, lambda: time.sleep(0.3), turns)  # the time is up as the connection is told of
        watching = asyncio.create_task(Notices(Config(notices=[source]), print, print).run())
        async with asyncio.timeout(20):
            while service.accepted < 4:
                await asyncio.sleep(0.01)
        watching.cancel()
        done, _ = await asyncio.wait({watching}, timeout=5)
        assert done
