"""HTTP/1.1 for the fakes: one loop in one thread, connections kept alive. Owns bytes; knows nothing of any cloud.

A handler decides at once what becomes of a request; being late, hanging up or never answering is done here, without a
thread that waits.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import httptools

_TICK_S = 0.02
#: What the loop needs to close connections for good: TLS passes it on from layer to layer.
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Request:
    """Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Fate(Enum):
    """What becomes of an answer."""

    SENT = "sent"
    DROPPED = "dropped"  # the connection is closed instead
    NEVER = "never"  # the connection stays open and silent
    AGAIN = "again"  # there is none yet: the handler is asked again, with the same request, after `late_ms`


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and what becomes of it."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/xml;charset=UTF-8"
    headers: tuple[tuple[str, str], ...] = ()
    fate: Fate = Fate.SENT
    late_ms: int = 0


Handler = Callable[[Request], Reply]


@dataclass(eq=False)
class _Connection(asyncio.Protocol):
    """One client. The next request is only taken up when the one before has been answered."""

    handler: Handler
    everyone: set[_Connection]
    transport: asyncio.Transport | None = None
    headers: dict[str, str] = field(default_factory=dict)
    target: bytes = b""
    body: list[bytes] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    busy: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.everyone.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            if self.transport is not None:
                self.transport.abort()

    # called by the parser
    def on_message_begin(self) -> None:
        self.headers, self.target, self.body = {}, b"", []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.headers.get("expect", "").lower() == "100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        method = self.parser.get_method().decode()
        self.waiting.append(Request(method, self.target.decode("latin-1"), self.headers, b"".join(self.body)))
        self._next()

    def _next(self) -> None:
        if self.busy or not self.waiting:
            return
        self.busy = True
        self._ask(self.waiting.pop(0))

    def _ask(self, request: Request) -> None:
        if self.transport is None:
            return  # the caller has gone
        reply = self.handler(request)
        if reply.fate is Fate.NEVER:
            return
        if reply.fate is Fate.AGAIN:
            asyncio.get_running_loop().call_later(reply.late_ms / 1000, self._ask, request)
            return
        if reply.late_ms:
            asyncio.get_running_loop().call_later(reply.late_ms / 1000, self._answer, reply)
        else:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        transport, self.busy = self.transport, False
        if transport is None:
            return  # the caller has gone
        if reply.fate is Fate.DROPPED:
            transport.abort()
            return
        lines = [
            f"HTTP/1.1 {reply.status} {'OK' if reply.status < 400 else 'Error'}",
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(reply.body)}",
            *(f"{name}: {value}" for name, value in reply.headers),
        ]
        transport.write("\r\n".join((*lines, "\r\n")).encode("latin-1") + reply.body)
        self._next()


class Server:
    """Serves a handler on this machine until it is stopped. `tick` is called every few milliseconds in the loop."""

    def __init__(
        self, handler: Handler, *, port: int = 0, tick: Callable[[], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._handler, self._tick, self._tls = handler, tick, tls
        self._port = port
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fake-cloud", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when it listens."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Close every connection and end the thread."""
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        everyone: set[_Connection] = set()
        server = await self._loop.create_server(
            lambda: _Connection(self._handler, everyone), "127.0.0.1", self._port, backlog=1024, ssl=self._tls
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        while not self._ended.is_set():
            if self._tick is not None:
                self._tick()
            try:
                await asyncio.wait_for(self._ended.wait(), _TICK_S)
            except TimeoutError:
                pass
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        for _ in range(_ROUNDS):  # what was just accepted gets its transport, which a closed server would refuse it
            await asyncio.sleep(0)
        server.close()
        for connection in list(everyone):
            if connection.transport is not None:
                connection.transport.abort()
        for transport in list(getattr(self._loop, "_transports", {}).values()):
            transport.abort()  # TLS that is still being set up or taken down is nobody's connection
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
