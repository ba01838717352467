"""Takes connections, and sees them through TLS's handshake. Owns the listening socket while the dispatcher serves.

The server's own way to listen has no bound: handshakes come before any code of ours, and whoever leaves them half-way
uses up the descriptors, so that nobody else can come in and files can't be opened. Here each connection is counted as
soon as it is taken (`api.admission`), has so long for its handshake, and is dropped when what was sent to it is not
taken. Must not know HTTP or tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial

from cloud_dispatch.api.admission import Admission, Guest

HANDSHAKE_S = 10.0
#: What was sent is taken within that time, or the connection is dropped: its other end is gone, or does not read.
UNTAKEN_MS = 60_000
#: So many connections are taken before others have their turn.
_AT_ONCE = 64
#: Where the system has no descriptor left, or no memory, it is not asked again and again.
_PAUSE_S = 0.2


class Door:
    """Takes connections at `listener` from `open` to `close`; `make` gives the protocol that serves one."""

    def __init__(
        self,
        listener: socket.socket,
        admission: Admission,
        make: Callable[[Guest], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext] | None,
        *,
        handshake_s: float = HANDSHAKE_S,
        untaken_ms: int = UNTAKEN_MS,
    ) -> None:
        self._listener = listener
        self._admission = admission
        self._make = make
        self._tls = tls
        self._handshake_s = handshake_s if tls is not None else None
        self._untaken_ms = untaken_ms
        self._loop = asyncio.get_running_loop()
        self._welcomes: set[asyncio.Task[None]] = set()
        self._waiting: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Take connections from now on."""
        self._waiting = None
        self._loop.add_reader(self._listener, self._take)

    def close(self) -> None:
        """Take no more, and leave handshakes where they are."""
        self._loop.remove_reader(self._listener)
        if self._waiting is not None:
            self._waiting.cancel()
        for welcome in self._welcomes:
            welcome.cancel()

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener)
                self._waiting = self._loop.call_later(_PAUSE_S, self.open)
                return
            self._let_in(sock, address[0])

    def _let_in(self, sock: socket.socket, address: str) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # it has gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._untaken_ms)
        begun: list[asyncio.Task[None]] = []
        guest = self._admission.enter(address, lambda: [welcome.cancel() for welcome in begun])
        welcome = self._loop.create_task(self._welcome(sock, guest))
        begun.append(welcome)
        self._welcomes.add(welcome)
        welcome.add_done_callback(partial(self._welcomed, sock, guest))

    async def _welcome(self, sock: socket.socket, guest: Guest) -> None:
        await self._loop.connect_accepted_socket(
            lambda: self._make(guest), sock, ssl=self._tls and self._tls(), ssl_handshake_timeout=self._handshake_s
        )

    def _welcomed(self, sock: socket.socket, guest: Guest, welcome: asyncio.Task[None]) -> None:
        """From here on the protocol says when the connection is over; where there was no handshake, it is over now."""
        self._welcomes.discard(welcome)
        if welcome.cancelled() or isinstance(welcome.exception(), OSError):
            guest.left()
            sock.close()
        elif (error := welcome.exception()) is not None:
            guest.left()
            sock.close()
            raise error
