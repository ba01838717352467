"""Serving: the address, and the graceful stop."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.api.admission import Admission
from cloud_dispatch.api.server import serve
from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.wire.messages import OutputFile
from tests.api.house import House, served


async def test_an_address_in_use_is_told_with_its_place(house: House) -> None:
    """The start fails with the setting to look at; nothing is left listening."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match="can't listen") as caught:
            await serve(house.api, listen, asyncio.Event(), Admission(64, 16, SystemClock()))
    assert caught.value.place == "dispatcher.listen"


@pytest.mark.parametrize("listen", ["", "7717", "host:", "host:x", "h:70000"])
async def test_what_is_no_address_is_refused(house: House, listen: str) -> None:
    """HOST:PORT or nothing."""
    with pytest.raises(InvalidInput):
        await serve(house.api, listen, asyncio.Event(), Admission(64, 16, SystemClock()))


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


async def test_head_and_body_of_an_answer_go_out_in_one_piece(house: House) -> None:
    """One write an answer: a client that waits for the first bytes has them all."""
    host, port = house.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(50):
        writer.write(b"GET /v1/agent.pyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read(65_536)).endswith(b"PK agent")
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_reads_slowly_is_waited_for(house: House) -> None:
    """A large output is read from disk only as fast as its reader takes it, and arrives whole."""
    agent = await house.agent()
    (task,) = await house.submit()
    await agent.sync(want=1)
    claim = agent.held[0]
    content = bytes(range(256)) * 131_072  # 32 MiB
    query = f"task={task}&token={claim.token}&path=big"
    put = await house.http.put(f"/v1/agent/outputs?{query}", content=content, headers=agent.headers)
    await agent.finish(claim, outputs=[OutputFile("big", "", len(content), put.json()["sha256"])])
    opened: list[int] = []
    open_output = house.services.outputs.open

    def noting(*where: Any) -> int:
        opened.append(open_output(*where))
        return opened[-1]

    house.services.outputs.open = noting  # type: ignore[method-assign]
    host, port = house.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=65_536)
    head = f"GET /v1/tasks/{task}/outputs/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Authorization: {house.op.headers['Authorization']}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.3)
    assert os.lseek(opened[0], 0, os.SEEK_CUR) < len(content) // 2
    assert await reader.read() == content
    writer.close()
    await writer.wait_closed()
