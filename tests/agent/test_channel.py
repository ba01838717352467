"""The agent's connection: a newer request takes the place of one that is still out, however that one was given up."""

from __future__ import annotations

import asyncio

from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable


async def test_a_newer_request_is_not_queued_behind_one_that_is_still_out() -> None:
    """The server holds the first for ever and would answer what follows on the same connection after it. The first's
    cancellation is left out here on purpose."""

    async def hold_or_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/held" not in head:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(hold_or_answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    channel = Channel(Endpoint.parse(f"http://127.0.0.1:{port}"), lambda: "token")
    held = asyncio.create_task(channel.request("POST", "/held", b""))
    await asyncio.sleep(0.05)
    status, body = await asyncio.wait_for(channel.request("POST", "/newer", b""), 5)
    assert (status, body) == (200, b"ok")
    (ended,) = await asyncio.gather(held, return_exceptions=True)
    assert isinstance(ended, Unreachable)
    channel.close()
    server.close()
    await server.wait_closed()
