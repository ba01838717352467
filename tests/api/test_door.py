"""The door on real sockets: however many connect and whatever they leave undone, who is honest is served, and nothing
stays open for good."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cloud_dispatch.adapters.certificates import own
from cloud_dispatch.adapters.clock import SystemClock
from cloud_dispatch.api.admission import CALLERS, STRANGERS, Admission, Guest
from cloud_dispatch.api.door import Door
from tests.api.house import House, served
from tests.api.test_lane import Line, line, post, saying

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
MIB = bytes(2**20)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Both, as their transports have nothing in common: the dispatcher runs on uvloop."""
    return request.param  # type: ignore[no-any-return]


class Echo(asyncio.Protocol):
    """Sends back what comes; a MiB for each `M`."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.guest.show_out = transport.abort  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.replace(b"M", MIB))  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self.guest.left()


class Asked(socket.socket):
    """A listening socket that counts how often it is asked for a connection."""

    asked = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        return super().accept()


class Hall:
    """A door with its bounds, at `address`."""

    def __init__(self, folder: Path, strangers: int = 8, **more: float) -> None:
        self.bounds = Admission(4 * strangers, strangers, SystemClock())
        self.listener = Asked(fileno=socket.create_server(("127.0.0.1", 0), backlog=512).detach())
        self.listener.setblocking(False)
        self.address = self.listener.getsockname()
        made = own(folder, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(made.certificate, made.key)
        self.trust = ssl.create_default_context(cafile=folder / "ca.pem")
        self.door = Door(self.listener, self.bounds, Echo, lambda: tls, **more)  # type: ignore[arg-type]
        self.socks: list[socket.socket] = []
        self.troubles: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: self.troubles.append(str(said)))

    def half(self, count: int, said: bytes = HELLO) -> None:
        """So many that begin a handshake and leave it there."""
        for _ in range(count):
            sock = socket.create_connection(self.address, timeout=5)
            sock.sendall(said)
            self.socks.append(sock)

    async def says(self, word: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self.address, ssl=self.trust)
        writer.write(word)
        try:
            return await reader.readexactly(len(word))
        finally:
            writer.close()

    @property
    def strangers(self) -> int:
        return self.bounds.counts()[STRANGERS][0]


@contextlib.asynccontextmanager
async def hall(folder: Path, **more: float) -> AsyncIterator[Hall]:
    made = Hall(folder, **more)  # type: ignore[arg-type]
    made.door.open()
    try:
        yield made
    finally:
        made.door.close()
        made.listener.close()
        for sock in made.socks:
            sock.close()
    assert made.troubles == []


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def test_handshakes_that_are_left_half_way_keep_nobody_out(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """As many stay open as may, and who comes after them is served; no descriptor of the others is left."""

    async def besieged() -> None:
        async with hall(tmp_path) as made:
            before = descriptors()
            made.half(200)
            assert await made.says(b"hello") == b"hello"
            await until(lambda: descriptors() - before <= 200 + 2 * 8)  # 200 are this end's
            assert made.strangers <= 8

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(besieged())


def test_a_handshake_has_its_time(loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """Whoever says nothing, part of it, or what is no TLS at all is gone after that time, and was counted till then."""

    async def waited_for() -> None:
        async with hall(tmp_path, strangers=64, handshake_s=0.5) as made:
            before = descriptors()
            for said in (b"", HELLO, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256))):
                made.half(10, said)
            await until(lambda: made.strangers >= 20)
            await until(lambda: made.strangers == 0)
            await until(lambda: descriptors() <= before + 40 + 2)  # 40 are this end's, and a loop opens one of its own

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(waited_for())


def test_who_does_not_take_what_was_sent_is_dropped(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """One who reads on and on is not."""

    async def sent() -> None:
        async with hall(tmp_path, untaken_ms=1000) as made:
            reader, writer = await asyncio.open_connection(*made.address, ssl=made.trust, limit=2**24)
            _, sleeping = await asyncio.open_connection(*made.address, ssl=made.trust)
            assert made.strangers == 2
            sleeping.transport.pause_reading()  # type: ignore[attr-defined]
            sleeping.write(b"M" * 32)
            await until(lambda: made.strangers == 1)
            writer.write(b"M")
            assert await reader.readexactly(2**20) == MIB
            sleeping.transport.abort()
            writer.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(sent())


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """No file can be opened by this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_the_door_waits_and_the_loop_is_free(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """It is not asked without end, and those who wait are served once there are some."""

    async def starved() -> None:
        async with hall(tmp_path) as made:
            made.half(2)
            with no_more_files():
                await asyncio.sleep(0.5)
            assert made.listener.asked < 10
            assert await made.says(b"hello") == b"hello"

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(starved())


async def test_strangers_do_not_push_out_an_agent(tmp_path: Path) -> None:
    """Its connection is its own from the first good token on, by either way into the API, and stays."""
    async with served(tmp_path, connections=(64, 16)) as house:
        assert house.bounds is not None
        agent = await house.agent()
        operator = f"GET /v1/counts HTTP/1.1\r\nHost: x\r\nAuthorization: {house.op.headers['Authorization']}\r\n\r\n"
        async with line(house) as short, line(house) as general, line(house) as forged:
            assert (await short.ask(post(agent, saying(agent))))[0] == 200
            assert (await general.ask(operator.encode()))[0] == 200
            assert (await forged.ask(post(agent, b"{}", Authorization="Bearer cds2.x.99999999999999.y")))[0] == 401
            async with contextlib.AsyncExitStack() as flood:
                for _ in range(60):
                    await flood.enter_async_context(line(house))
                assert await forged.reader.read() == b""
                assert (await short.ask(post(agent, saying(agent))))[0] == 200
                assert (await general.ask(operator.encode()))[0] == 200
                assert house.bounds.counts()[STRANGERS][0] <= 16


async def test_a_hostile_vm_does_not_push_out_another(tmp_path: Path) -> None:
    """It has as many as may be, with its own token and its tasks'; the others have theirs and get more."""
    async with served(tmp_path, connections=(64, 16)) as house:
        good, bad = await house.agent(), await house.agent()
        await house.submit()
        await bad.sync(want=1)
        task = house.tokens.task(bad.held[0].task, bad.held[0].token, bad.instance)
        async with line(house) as kept, contextlib.AsyncExitStack() as crowd:
            assert (await kept.ask(post(good, saying(good))))[0] == 200
            opened: list[Line] = []
            for number in range(100):
                opened.append(await crowd.enter_async_context(line(house)))
                own_token = {} if number % 2 else {"Authorization": f"Bearer {task}"}
                await opened[-1].ask(post(bad, b"{}", **own_token))
            assert house.bounds is not None
            assert house.bounds.counts()[CALLERS][0] <= 48
            assert (await kept.ask(post(good, saying(good))))[0] == 200
            async with line(house) as another:
                assert (await another.ask(post(good, saying(good))))[0] == 200


async def test_a_token_that_is_no_more_makes_no_caller(house: House) -> None:
    """Neither that of an attempt that is over, nor one of another kind or form."""
    agent = await house.agent()
    await house.submit()
    await agent.sync(want=1)
    claim = agent.held[0]
    task = f"Bearer {house.tokens.task(claim.task, claim.token, agent.instance)}".encode()
    join = f"Bearer {house.tokens.join(await house.launch(), 1, 10**15)}".encode()
    past = f"Bearer {house.tokens.join(await house.launch(), 1, 1)}".encode()
    mine = f"instance {agent.instance}"
    assert house.api.caller(task) == mine
    assert house.api.caller(agent.headers["Authorization"].encode()) == mine
    assert house.api.caller(join).startswith("batch ")
    assert house.api.caller(house.op.headers["Authorization"].encode()) == "operator"
    await agent.finish(claim)
    for bad in (
        task,
        past,
        b"",
        b"Bearer ",
        b"Bearer \xff",
        b"Basic eDp5",
        b"Bearer cds2.a.b.c",
        b"Bearer cdt1.1.1.x.y",
    ):
        assert house.api.caller(bad) == "", bad
