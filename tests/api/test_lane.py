"""The lane of syncs: the same answers as the general way gives, in order, whatever is sent around them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.api.lane import LaneProtocol, shape_of
from cloud_dispatch.api.services import Limits
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import SYNC_PATH, SyncRequest
from tests.api.house import Agent, House, served

PLAIN = {"Host": "x", "Content-Type": "application/json"}


def post(agent: Agent, body: bytes, path: str = SYNC_PATH, length: str = "", **headers: str) -> bytes:
    """A request as an agent's client writes it."""
    fields = {**PLAIN, "Authorization": agent.headers["Authorization"], **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body


def saying(agent: Agent, **said: object) -> bytes:
    """The body of the agent's next sync."""
    return codec.encode(agent.request(**said))


class Line:
    """One connection on which whole answers are read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(5):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            body = await self.reader.readexactly(int(fields["content-length"]))
        return int(head[0].split()[1]), fields, body

    async def ask(self, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0.001 if len(parts) > 1 else 0)
        return await self.answer()


@contextlib.asynccontextmanager
async def line(house: House) -> AsyncIterator[Line]:
    host, port = house.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a request that took the lane."""
    seen: list[int] = []
    answer = LaneProtocol._answer

    async def noting(self: LaneProtocol, authorization: bytes, body: bytes) -> None:
        seen.append(len(body))
        await answer(self, authorization, body)

    monkeypatch.setattr(LaneProtocol, "_answer", noting)
    return seen


async def test_an_agents_syncs_take_the_lane_and_odd_ones_do_not(house: House, taken: list[int]) -> None:
    """Plain ones in one piece do; with a header that could change the reading, or in pieces, they go the general way,
    and the answers are the same but for their seq."""
    agent = await house.agent()
    await house.submit(4)
    async with line(house) as wire:
        for number, headers in enumerate(({}, {"Connection": "keep-alive"}, {"Expect": "100-continues"}, {})):
            status, fields, body = await wire.ask(post(agent, saying(agent, want=1), **headers))
            reply = msgspec.json.decode(body)
            assert (status, fields["content-type"], len(reply["claims"])) == (200, "application/json", 1), number
            assert "date" in fields
            agent.held.clear()
    assert len(taken) == 2


async def test_every_split_of_a_request_is_understood(house: House) -> None:
    """Wherever TCP cuts it, a sync is answered once, and the next one on the connection too."""
    agent = await house.agent()
    whole = post(agent, saying(agent))
    async with line(house) as wire:
        for cut in range(1, len(whole)):
            request = post(agent, saying(agent))
            status, _, body = await wire.ask(request[:cut], request[cut:])
            assert (status, msgspec.json.decode(body)["seq"]) == (200, agent.seq), cut


async def test_answers_come_in_the_order_of_the_requests(house: House) -> None:
    """Syncs and other requests sent ahead, mixed on one connection, are answered one after another."""
    agent = await house.agent()
    other = b"GET /v1/agent.pyz HTTP/1.1\r\nHost: x\r\n\r\n"
    first, second, third = (saying(agent, wait_ms=50) for _ in range(3))
    async with line(house) as wire:
        wire.writer.write(post(agent, first) + other + post(agent, second))
        wire.writer.write(other + post(agent, third))
        bodies = [(await wire.answer())[2] for _ in range(5)]
    seqs = [msgspec.json.decode(body)["seq"] for body in bodies if body.startswith(b"{")]
    assert seqs == [msgspec.json.decode(body)["seq"] for body in (first, second, third)]
    assert [body.startswith(b"{") for body in bodies] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"state":"asleep"}', {}, 400),
        (b'{"seq":"x"}', {}, 400),
        (b"{}", {"Authorization": "Bearer nobody"}, 401),
    ],
)
async def test_errors_are_told_alike(
    house: House, taken: list[int], body: bytes, headers: dict[str, str], status: int
) -> None:
    """The lane's word for what is wrong is the general way's."""
    agent = await house.agent()
    async with line(house) as wire, line(house) as general:
        quick = await wire.ask(post(agent, body, **headers))
        slow = await general.ask(post(agent, body, **headers, Connection="keep-alive"))
    assert quick[0] == slow[0] == status
    assert quick[2] == slow[2]
    assert {**quick[1], "date": ""} == {**slow[1], "date": ""}
    assert len(taken) == 1


async def test_a_sync_beyond_its_limit_is_refused(tmp_path: Path, taken: list[int]) -> None:
    """The limit on a sync's bytes holds in the lane, and the connection is closed after the refusal."""
    async with served(tmp_path, limits=Limits(sync_bytes=300)) as house:
        agent = await house.agent()
        async with line(house) as wire:
            assert (await wire.ask(post(agent, saying(agent))))[0] == 200
            status, fields, _ = await wire.ask(post(agent, saying(agent, detail="x" * 300)))
            assert (status, fields["connection"], await wire.reader.read()) == (413, "close", b"")
    assert len(taken) == 2


async def test_a_client_that_leaves_gives_up_its_poll(house: House, taken: list[int]) -> None:
    """A held sync of a closed connection takes no work any more."""
    agent = await house.agent()
    async with line(house) as wire:
        wire.writer.write(post(agent, saying(agent, want=1, wait_ms=20_000)))
        await house.until_held()
    async with asyncio.timeout(5):
        while len(house.api.sync.polls):
            await asyncio.sleep(0.005)
    await house.submit()
    assert (await agent.sync(want=1)).claims
    assert len(taken) == 1


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keep-alive limit holds for connections that only ever took the lane."""
    agent = await house.agent()
    closing = LaneProtocol.connection_made

    def briefly(self: LaneProtocol, transport: asyncio.BaseTransport) -> None:
        self.timeout_keep_alive = 0.2  # type: ignore[assignment]
        closing(self, transport)

    monkeypatch.setattr(LaneProtocol, "connection_made", briefly)
    async with line(house) as wire:
        for _ in range(8):
            assert (await wire.ask(post(agent, saying(agent))))[0] == 200
            await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            assert await wire.reader.read() == b""


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\n folded\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync?x=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX: a\0b\r\n\r\n{}",
    ],
)
def test_no_odd_head_takes_the_lane(head: bytes) -> None:
    """What could be read in two ways (two lengths, chunks, folding, bare line feeds) is not the lane's to read."""
    plain = b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    assert shape_of(plain.replace(b"/v1/agent/sync", SYNC_PATH.encode())) is not None
    assert shape_of(head.replace(b"/v1/agent/sync", SYNC_PATH.encode())) is None


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 30))
def test_a_shape_accepts_only_its_own_head(noise: bytes, at: int, drop: int) -> None:
    """Whatever is changed in a request, its body is taken only if head and length are still those of the shape."""
    request = b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nContent-Length: 4\r\n\r\n{  }" % (
        SYNC_PATH.encode()
    )
    shape = shape_of(request)
    assert shape is not None
    assert shape.body(request) == b"{  }"
    changed = request[:at] + noise + request[at + drop :]
    body = shape.body(changed)
    if body is not None:
        digits = changed[len(shape.before) : changed.index(b"\r", len(shape.before))]
        assert changed == shape.before + digits + shape.after + body
        assert int(digits) == len(body)


async def test_the_request_of_another_connection_is_not_confused(house: House) -> None:
    """Two agents with heads of the same length are told apart by their tokens, on connections and within one."""
    one, two = await house.agent(), await house.agent(incarnation="two")
    await house.submit(2)
    async with line(house) as wire:
        for agent in (one, two, one, two):
            status, _, body = await wire.ask(post(agent, codec.encode(SyncRequest(agent.incarnation, agent.seq + 1))))
            agent.seq += 1
            assert (status, msgspec.json.decode(body)["seq"]) == (200, agent.seq)
