"""The HTTP connections of transfers. Owns whom they trust, that they end when their attempt is to stop, and how slow
they may be: a machine that trickles bytes makes progress for ever.

Those to the dispatcher go through no proxy, and may be bound to the fingerprint of its certificate.
"""

from __future__ import annotations

import http.client
import io
import urllib.request
from socket import SocketIO
from typing import Any, List, Optional  # noqa: UP035

from cloud_dispatch.agent.adapters import now_ms
from cloud_dispatch.agent.channel import check_pin
from cloud_dispatch.agent.depot import Depot, Stop

#: What a transfer waits for another machine is measured, so long at a time; so many bytes a second must move in that.
WINDOW_MS = 120_000
LEAST_RATE = 1_000
#: A server may say that it is still there, but not for ever.
MOST_HEADS = 16
_INTERIM = range(100, 200)
_SWITCHED = 101


class Speed:
    """How much one direction of a connection moves while it is waited for. The time in between, as for the disk, is not
    counted."""

    def __init__(self) -> None:
        self._waited_ms = 0
        self._moved = 0

    def moved(self, count: int, waited_ms: int) -> None:
        """So many bytes took so long; OSError if it goes too slowly."""
        self._moved += count
        self._waited_ms += waited_ms
        if self._waited_ms < WINDOW_MS:
            return
        if self._moved * 1000 < LEAST_RATE * self._waited_ms:
            raise OSError(
                "too slow: %d bytes in %d s, at least %d a second are needed"
                % (self._moved, self._waited_ms // 1000, LEAST_RATE)
            )
        self._moved = self._waited_ms = 0


class Incoming(io.RawIOBase):
    """What comes over a connection, not too slowly."""

    def __init__(self, wire: SocketIO) -> None:
        self._wire = wire
        self._speed = Speed()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        began_ms = now_ms()
        count = self._wire.readinto(buffer)
        self._speed.moved(count or 0, now_ms() - began_ms)
        return count

    def begin_anew(self) -> None:
        """What was waited for until now counts no more."""
        self._speed = Speed()

    def close(self) -> None:
        self._wire.close()
        super().close()


class Answer(http.client.HTTPResponse):
    """The answer that counts: whoever is asked may say before it that it is still there (RFC 9110, 15.2)."""

    def __init__(self, sock: Any, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self._incoming = Incoming(self.fp.detach())  # type: ignore[arg-type]
        self.fp = io.BufferedReader(self._incoming)

    def begin(self) -> None:
        for _ in range(MOST_HEADS):
            super().begin()
            if self.status not in _INTERIM or self.status == _SWITCHED:
                return
            self.headers = None  # type: ignore[assignment]  # what says that a head was read
            self._incoming.begin_anew()  # who speaks in time is not slow; `MOST_HEADS` bounds what is only said
        raise http.client.HTTPException("it answered %d and nothing more" % self.status)


class Plain(http.client.HTTPConnection):
    """Ends with `stop`, and where it goes too slowly."""

    response_class = Answer
    stop: Stop

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._speed = Speed()

    def connect(self) -> None:
        super().connect()
        self.stop.watch(self.sock)

    def send(self, data: Any) -> None:
        began_ms = now_ms()
        super().send(data)
        self._speed.moved(len(data), now_ms() - began_ms)


class Encrypted(http.client.HTTPSConnection, Plain):
    """The same below TLS: watched before anything is said of it. Unreachable if a pin is not the other's."""

    fingerprint = ""

    def connect(self) -> None:
        super().connect()
        if self.fingerprint:
            check_pin(self.sock.getpeercert(binary_form=True), self.fingerprint)


def to_depot(depot: Depot, host: str, port: Optional[int], timeout_s: float, stop: Stop) -> Plain:
    """One to the dispatcher, not made yet."""
    connection = Plain(host, port, timeout=timeout_s) if depot.tls is None else _pinned(depot, host, port, timeout_s)
    connection.stop = stop
    return connection


def opener(stop: Stop, depot: Optional[Depot]) -> urllib.request.OpenerDirector:
    """For URLs of anybody's; of the dispatcher's with `depot`."""

    def plain(host: str, **given: Any) -> Plain:
        connection = Plain(host, timeout=given["timeout"])
        connection.stop = stop
        return connection

    def encrypted(host: str, **given: Any) -> Plain:
        if depot is None or depot.tls is None:
            connection = Encrypted(host, timeout=given["timeout"])
        else:
            connection = _pinned(depot, host, None, given["timeout"])
        connection.stop = stop
        return connection

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(plain, req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(encrypted, req)

    handlers: List[Any] = [Http(), Https()]
    if depot is not None:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _pinned(depot: Depot, host: str, port: Optional[int], timeout_s: float) -> Encrypted:
    connection = Encrypted(host, port, context=depot.tls, timeout=timeout_s)
    connection.fingerprint = depot.fingerprint
    return connection
