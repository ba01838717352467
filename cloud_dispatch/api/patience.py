"""How long a client may take to say what it wants, and how much it may say before that. Owns these bounds on each
connection; uvicorn has none, so that whoever opens connections and trickles would hold them, and memory, for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from cloud_dispatch.api.cork import CorkedProtocol
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import ErrorReply


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds on one request. A head is whole within `head_s` and `head_bytes`; of a body that is being read
    `body_bytes` come in each `body_s`, unless it ends before; what frames it is never much more than itself, and of one
    that has its answer already no more than `unread_bytes` come."""

    head_s: float = 30.0
    head_bytes: int = 65_536
    body_s: float = 60.0
    body_bytes: int = 65_536
    unread_bytes: int = 16 * 2**20
    look_s: float = 5.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a request is told that no route ever sees."""

    status: HTTPStatus
    reply: ErrorReply


_LATE = _Refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    ErrorReply("invalid-input", "the request was not whole in time", "request", "send it without pauses"),
)
_LONG = _Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    ErrorReply("invalid-input", "the head of the request is too long", "head", "fewer headers, or a shorter URL"),
)
_MALFORMED = _Refusal(
    HTTPStatus.BAD_REQUEST, ErrorReply("invalid-input", "this is no HTTP request", "request", "HTTP/1.1 is spoken here")
)


class PatientProtocol(CorkedProtocol):
    """uvicorn's protocol for clients that may be hostile."""

    patience = Patience()

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self._reading = False  # a request has begun and is not whole
        self._heading = False  # its head is not
        self._since_s = 0.0
        self._fed = self._useful = self._window = self._unread = 0
        self._spoken = False
        self._look_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._look_timer = self.loop.call_later(self.patience.look_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        super().data_received(data)
        if self._reading and self._fed > self._allowed():
            self._refuse(_LONG)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn answers where its parser gives up, in the words of every other error."""
        if not self.transport.is_closing():
            self._refuse(_MALFORMED)

    # -- what uvicorn's parser tells
    def on_message_begin(self) -> None:
        self._spoken = self._reading = self._heading = True
        self._since_s = self.loop.time()
        self._fed = self._useful = self._window = self._unread = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self.patience.head_bytes:
            self._refuse(_LONG)
            raise ValueError("the head is too long")  # the parser goes no further
        self._heading = False
        self._since_s = self.loop.time()
        self._fed = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._useful += len(body)
        self._window += len(body)
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread += len(body)
            if self._unread > self.patience.unread_bytes:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._reading = False
        self._since_s = self.loop.time()
        self._fed = 0
        super().on_message_complete()

    # -- bounds
    def _allowed(self) -> int:
        """How many bytes may have come: of a head, or around a body, in chunks of a few bytes each at worst."""
        return self.patience.head_bytes + (0 if self._heading else 8 * self._useful + 65_536 * 4)

    def _look(self) -> None:
        """Once in a while: close what has taken too long."""
        if self.transport.is_closing():
            return
        patience, now = self.patience, self.loop.time()
        if self.flow.read_paused or not self._answered() or self._window >= patience.body_bytes:
            self._since_s, self._window = now, 0  # it waits for us, or it goes on well
        bound = patience.body_s if self._reading and not self._heading else patience.head_s
        if now - self._since_s > bound and (self._reading or self._fed or not self._spoken):
            self._refuse(_LATE)
            return
        self._look_timer = self.loop.call_later(patience.look_s, self._look)

    def _answered(self) -> bool:
        """Whether all that was asked before the request that is being read has its answer."""
        cycle: Any = self.cycle  # None until the first request
        return cycle is None or cycle.response_complete or (self._reading and not self._heading and not self.pipeline)

    def _refuse(self, why: _Refusal) -> None:
        """Say so, unless an answer is under way, and close."""
        cycle: Any = self.cycle
        if self._answered() and (self._heading or cycle is None or not cycle.response_started):
            body = codec.encode(why.reply)
            head = "HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write((head % (why.status, why.status.phrase, len(body))).encode() + body)
        self.transport.close()
