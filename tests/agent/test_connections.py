"""How slow an other machine may be, over answers that take no time."""

from __future__ import annotations

import http.client
import io
from typing import Any

import pytest

from cloud_dispatch.agent import connections


class Said(io.RawIOBase):
    """What an other machine says, a piece each 50 s."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.now_ms = list(pieces), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.now_ms += 50_000
        piece = self.pieces.pop(0) if self.pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


@pytest.mark.parametrize("said", [15, 16])
def test_who_says_in_time_that_it_is_there_still_is_not_slow(said: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen times, in twelve minutes; then the answer has to come."""
    wire = Said(*[b"HTTP/1.1 102 Processing\r\n\r\n"] * said, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.setattr(connections, "now_ms", lambda: wire.now_ms)
    answer = connections.Answer(wire)
    if said < connections.MOST_HEADS:
        answer.begin()
        assert (answer.status, wire.now_ms) == (200, 800_000)
    else:
        with pytest.raises(http.client.HTTPException, match="it answered 102 and nothing more"):
            answer.begin()
