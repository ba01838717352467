"""A short way for syncs, past the HTTP server. Owns which requests may take it and the order of a connection's answers.

A sync is by far the most frequent request, always of the same form, and parsing it in general, a scope, a cycle and a
dozen headers cost more than answering it (measured: a fifth of the CPU of a claim). So a request that is, to the byte,
a plain POST to the sync path, whole in one read, with nothing before it on its connection still unanswered, is answered
from here; everything else, anything odd in its head included, goes to uvicorn untouched. Both ways run the same route.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from cloud_dispatch.api.admission import Guest
from cloud_dispatch.api.cork import Cork
from cloud_dispatch.api.http import ClientGone, Header, describe_failure
from cloud_dispatch.api.patience import PatientProtocol
from cloud_dispatch.wire.messages import SYNC_PATH

#: Has what it is given called when the client has closed its connection, see `api.sync`.
Departure = Callable[[Callable[[], object]], Callable[[], object]]

_START: Final = b"POST %b HTTP/1.1\r\n" % SYNC_PATH.encode()
_END: Final = b"\r\n\r\n"
_MOST_HEAD: Final = 4096
_MOST_DIGITS: Final = 9
#: A client that sends more than this ahead of its answers is made to wait.
_MOST_AHEAD: Final = 65_536
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?[ \t]*")
#: Headers that change nothing about how a request is read. Any other sends it the general way.
_PLAIN = frozenset({b"host", b"authorization", b"content-type", b"content-length", b"accept", b"user-agent"})


class Shape:
    """The head of a connection's syncs around the digits of its Content-Length, and whom it speaks for."""

    __slots__ = ("after", "authorization", "before")

    def __init__(self, before: bytes, after: bytes, authorization: bytes) -> None:
        self.before = before
        self.after = after
        self.authorization = authorization

    def body(self, request: bytes) -> bytes | None:
        """The body of `request`; None unless it has this very head and is whole."""
        if not request.startswith(self.before):
            return None
        start = len(self.before)
        end = request.find(b"\r", start, start + _MOST_DIGITS + 1)
        digits = request[start:end]
        if end < 0 or not digits.isdigit() or not request.startswith(self.after, end):
            return None
        body = request[end + len(self.after) :]
        return body if len(body) == int(digits) else None


def shape_of(request: bytes) -> Shape | None:
    """The shape of a request that may take the lane; None for every other."""
    end = request.find(_END, 0, _MOST_HEAD)
    if end < 0 or not request.startswith(_START):
        return None
    seen: dict[bytes, bytes] = {}
    cut = (0, 0)
    at = len(_START)
    for line in request[at:end].split(b"\r\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        name, value = match[1].lower(), match[2] or b""
        if name not in _PLAIN or name in seen:
            return None
        seen[name] = value
        if name == b"content-length":
            cut = (at + match.start(2), at + match.end(2))
        at += len(line) + 2
    if not seen.get(b"content-length", b"").isdigit() or b"host" not in seen:
        return None
    return Shape(request[: cut[0]], request[cut[1] : end + len(_END)], seen.get(b"authorization", b""))


class Served(Protocol):
    """What of the app is asked past the server."""

    def caller(self, authorization: bytes) -> str: ...

    @property
    def worker(self) -> HasSync: ...


class HasSync(Protocol):
    def sync_answer(self, authorization: bytes, body: bytes, departure: Departure) -> Awaitable[bytes]: ...


class LaneProtocol(PatientProtocol):
    """uvicorn's protocol with the lane before it. It tells its guest's caller and end."""

    def __init__(self, app: Served, guest: Guest, **rest: Any) -> None:
        super().__init__(**rest)
        self._route = app.worker.sync_answer
        self._caller = app.caller
        self._guest = guest
        self._shown = b""  # as an Authorization header, last
        self._shape: Shape | None = None
        self._under_way: asyncio.Task[None] | None = None
        self._ahead: list[bytes] = []
        self._gone: Callable[[], object] | None = None
        self._lost = self._closing = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._answered_s = 0.0
        self._default_headers: Sequence[Header] | None = None
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._guest.show_out = self.transport.abort

    def data_received(self, data: bytes) -> None:
        if self._under_way is not None:
            self._wait_for_the_answer(data)
            return
        shape = self._shape
        body = None if shape is None else shape.body(data)
        if body is None and data.startswith(_START):
            shape = self._shape = shape_of(data)
            body = None if shape is None else shape.body(data)
        # With a request of the general way unanswered, or half read, the lane would overtake it.
        if body is None or shape is None or self._general_way_busy():
            self._general_way(data)
            return
        self._unset_keepalive_if_required()
        self._spoken = True
        self._introduce(shape.authorization)
        task = self._under_way = self.loop.create_task(self._answer(shape.authorization, body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._guest.left()
        if self._gone is not None:
            self._gone()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close once what is under way is answered."""
        if self._under_way is None:
            super().shutdown()
        self._closing = True

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._introduce(next((value for name, value in self.headers if name == b"authorization"), b""))

    def _introduce(self, authorization: bytes) -> None:
        """Whose connection this is follows from the first good token on it, and from another that comes later."""
        if authorization and authorization != self._shown:
            self._shown = authorization
            caller = self._caller(authorization)
            if caller:
                self._guest.speaks_for(caller)

    # -- one sync
    async def _answer(self, authorization: bytes, body: bytes) -> None:
        try:
            status, answer, headers = 200, await self._route(authorization, body, self._departure), ()
        except ClientGone:
            return
        except Exception as error:
            status, answer, headers = describe_failure(error, SYNC_PATH)  # type: ignore[assignment]
        if self._lost:
            return
        close = self._closing or (b"connection", b"close") in headers
        self._write(status, answer, headers, close=close)
        self._under_way = None
        if close:
            self.transport.close()
            return
        self._answered_s = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)
        if self._ahead:
            self._take_what_waited()

    def _write(self, status: int, body: bytes, headers: Sequence[Header], *, close: bool) -> None:
        if self.server_state.default_headers is not self._default_headers:  # uvicorn makes them anew every second
            self._default_headers = self.server_state.default_headers
            self._head = b"".join(b"%b: %b\r\n" % pair for pair in self._default_headers)
        self.server_state.total_requests += 1
        if status == 200 and not close:
            head = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            self._direct(head % (self._head, len(body)) + body)
            return
        lines = [*headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if close and (b"connection", b"close") not in headers:
            lines.append((b"connection", b"close"))
        first = b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
        self._direct(first + self._head + b"".join(b"%b: %b\r\n" % pair for pair in lines) + b"\r\n" + body)

    def _direct(self, answer: bytes) -> None:
        transport = self.transport
        if isinstance(transport, Cork):
            transport.write_through(answer)
        else:
            transport.write(answer)

    def _departure(self, gone: Callable[[], object]) -> Callable[[], object]:
        if self._lost:
            gone()
        self._gone = gone
        return self._stay

    def _stay(self) -> None:
        self._gone = None

    # -- the connection
    def _general_way(self, data: bytes) -> None:
        self._shape = None if self._general_way_busy() else self._shape
        super().data_received(data)

    def _general_way_busy(self) -> bool:
        """Whether uvicorn has a request of this connection that is not wholly read and answered."""
        cycle: Any = self.cycle  # None until the first request, whatever uvicorn's annotation says
        return self._reading or not (cycle is None or cycle.response_complete)

    def _wait_for_the_answer(self, data: bytes) -> None:
        self._ahead.append(data)
        if sum(map(len, self._ahead)) > _MOST_AHEAD:
            self.flow.pause_reading()

    def _take_what_waited(self) -> None:
        data, self._ahead = b"".join(self._ahead), []
        self.flow.resume_reading()
        self.data_received(data)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        general = self._general_way_busy() or self.timeout_keep_alive_task is not None
        left = self.timeout_keep_alive - (self.loop.time() - self._answered_s)
        if self._under_way is not None:
            left = self.timeout_keep_alive
        if general:
            return  # uvicorn's own timer closes it, or the lane's next answer arms this one again
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._close_if_idle)
        elif not self.transport.is_closing():
            self.transport.close()
