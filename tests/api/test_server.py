"""Serving: the address, and the graceful stop."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from cloud_dispatch.api.server import serve
from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from tests.api.house import House, served


async def test_an_address_in_use_is_told_with_its_place(house: House) -> None:
    """The start fails with the setting to look at; nothing is left listening."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match="can't listen") as caught:
            await serve(house.api, listen, asyncio.Event())
    assert caught.value.place == "dispatcher.listen"


@pytest.mark.parametrize("listen", ["", "7717", "host:", "host:x", "h:70000"])
async def test_what_is_no_address_is_refused(house: House, listen: str) -> None:
    """HOST:PORT or nothing."""
    with pytest.raises(InvalidInput):
        await serve(house.api, listen, asyncio.Event())


async def test_a_stop_answers_those_who_wait_and_closes_the_door(tmp_path: Path) -> None:
    """A held sync and a log follower get their answers; then connections are refused."""
    async with served(tmp_path) as house:
        agent = await house.agent()
        (task,) = await house.submit()
        await agent.sync(want=1)
        waiting = asyncio.create_task(agent.sync(wait_ms=15_000))
        following = asyncio.create_task(house.op.get(f"/v1/tasks/{task}/logs", params={"wait_ms": 20_000}))
        await house.until_held()
        await asyncio.sleep(0.05)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert (await waiting).claims == []
    assert (await following).status_code == 200
    host, port = house.url.removeprefix("http://").split(":")
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), timeout=1)
