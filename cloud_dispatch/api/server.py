"""Serving the app with uvicorn inside the running loop. Owns the address and the graceful stop; knows no route.

The composition root chooses the loop (uvloop) and handles signals; uvicorn is kept from both, and from the socket,
which is `api.door`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from cloud_dispatch.api.admission import Admission, Guest
from cloud_dispatch.api.app import Api
from cloud_dispatch.api.door import Door
from cloud_dispatch.api.lane import LaneProtocol
from cloud_dispatch.domain.errors import InvalidInput, Unavailable

_BACKLOG = 2048
_KEEP_ALIVE_S = 75


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the composition root's."""
        yield


async def serve(
    app: Api,
    listen: str,
    stop: asyncio.Event,
    admission: Admission,
    *,
    ready: Callable[[str, int], None] | None = None,
    grace_ms: int = 5_000,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> None:
    """Serve `app` at `listen` (HOST:PORT, port 0 for any) until `stop` is set; then finish what is under way, for at
    most `grace_ms`. Over TLS with the context that `tls` gives for each connection. `admission` says how many
    connections there may be.

    `ready(host, port)` is called once connections are taken. Unavailable when the address can't be had.
    """
    listener = _bind(listen)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="error",  # requests that are none are answered; to log each would let anybody fill the disk
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, -(-grace_ms // 1000)),
    )
    config.load()

    def made(guest: Guest) -> LaneProtocol:
        return LaneProtocol(app, guest, config=config, server_state=server.server_state, app_state={})

    door = Door(listener, admission, made, tls)

    def started() -> None:
        door.open()
        if ready is not None:
            ready(*listener.getsockname()[:2])

    server = _Server(config, started)
    running = asyncio.create_task(server.serve(sockets=[]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        app.close()
        door.close()
        server.should_exit = True
        with contextlib.closing(listener):
            await running


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(f"{listen!r} is no HOST:PORT", place="dispatcher.listen", hint='e.g. "127.0.0.1:7717"')
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio turns Nagle's algorithm off: it would cost 40 ms an answer on some clients.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        hint = "does another dispatcher or service listen there? see dispatcher.listen in the configuration"
        raise Unavailable(f"can't listen at {listen}: {error.strerror}", place="dispatcher.listen", hint=hint) from None
    listener.setblocking(False)
    return listener
