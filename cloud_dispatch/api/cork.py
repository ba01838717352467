"""One write a response. Owns the gathering of what uvicorn writes for one answer, its head and its body apart.

Two writes are two system calls and two packets, a third of what a sync costs besides the store.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: With this much gathered the write is made at once, so that the transport can tell a fast sender to pause.
_FULL = 16_384


class Cork:
    """A transport that gathers writes until the loop's next turn, in all else the one that it wraps."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._soon = asyncio.get_running_loop().call_soon
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, part: bytes) -> None:
        """Write `part` soon, after what was given before it."""
        if not self._parts:
            self._soon(self.flush)
        self._parts.append(part)
        self._size += len(part)
        if self._size >= _FULL:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            if not self._transport.is_closing():
                self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def write_through(self, answer: bytes) -> None:
        """Write `answer` now, after what was gathered."""
        if self._parts:
            self.flush()
        self._transport.write(answer)

    def close(self) -> None:
        """Close once everything is written."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class CorkedProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a corked transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, Cork(cast(asyncio.Transport, transport))))

    def on_response_complete(self) -> None:
        """An answer that is whole goes out now, not after whatever else this turn of the loop has to do."""
        cast(Any, self.transport).flush()
        super().on_response_complete()
