"""The HTTP server of all fakes."""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.fakes.server import Fate, Reply, Request, Server


def _handle(request: Request) -> Reply:
    fates = {"/drop": Fate.DROPPED, "/never": Fate.NEVER}
    late_ms = int(request.target.partition("/late/")[2] or 0)
    body = f"{request.method} {request.target} {request.headers.get('x-word')} {request.body.decode()}".encode()
    return Reply(body=body, fate=fates.get(request.target, Fate.SENT), late_ms=late_ms)


@pytest.fixture
def server() -> Iterator[Server]:
    """One that tells what it was asked."""
    served = Server(_handle)
    served.start()
    yield served
    served.stop()


def _connect(server: Server, timeout: float = 5) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=timeout)


def test_a_connection_is_kept_for_many_requests(server: Server) -> None:
    """The request arrives whole, and the next goes over the same connection."""
    connection = _connect(server)
    for word in ("a", "b"):
        connection.request("POST", "/x", "body" * 10_000, {"X-Word": word})
        kept = connection.sock
        assert connection.getresponse().read().decode() == f"POST /x {word} {'body' * 10_000}"
        assert connection.sock is kept
    connection.close()


def test_an_answer_can_be_dropped_or_never_come(server: Server) -> None:
    """The connection breaks, or stays open and silent."""
    connection = _connect(server)
    connection.request("GET", "/drop")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    waiting = _connect(server, timeout=0.2)
    waiting.request("GET", "/never")
    with pytest.raises(TimeoutError):
        waiting.getresponse()
    waiting.close()


def test_an_answer_may_not_be_there_yet() -> None:
    """The handler is asked again, with the same request, and others are answered meanwhile. Who has gone is not."""
    asked: list[Request] = []
    go = threading.Event()

    def handle(request: Request) -> Reply:
        if request.target == "/now":
            return Reply(body=b"now")
        asked.append(request)
        return Reply(body=b"then") if go.is_set() and len(asked) > 3 else Reply(fate=Fate.AGAIN, late_ms=50)

    served = Server(handle)
    served.start()
    waiting, other, gone = _connect(served), _connect(served), _connect(served)
    waiting.request("GET", "/then")
    other.request("GET", "/now")
    assert other.getresponse().read() == b"now"
    go.set()
    assert waiting.getresponse().read() == b"then"
    assert all(request is asked[0] for request in asked)
    go.clear()
    gone.request("GET", "/then")
    gone.close()
    before = len(asked)
    time.sleep(0.3)
    assert len(asked) <= before + 1, "but for what was under way"
    for connection in (waiting, other):
        connection.close()
    served.stop()


def test_a_late_answer_keeps_nobody_else_waiting(server: Server) -> None:
    """Lateness is of the answer alone."""
    latest, late, other = _connect(server), _connect(server), _connect(server)
    latest.request("GET", "/late/600000")
    late.request("GET", "/late/100")
    other.request("GET", "/x")
    other.getresponse().read()
    assert late.getresponse().read().startswith(b"GET /late")
    assert select.select([latest.sock], [], [], 0)[0] == []
    for connection in (latest, late, other):
        connection.close()


def test_what_is_no_http_is_hung_up_on(server: Server) -> None:
    """No thread waits for it."""
    with socket.create_connection(("127.0.0.1", int(urlsplit(server.url).port or 0)), timeout=5) as line:
        line.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        assert line.recv(100) == b""


def test_a_stopped_server_listens_no_more() -> None:
    """Tests leave nothing behind."""
    served = Server(_handle)
    served.start()
    connection = _connect(served)
    connection.connect()
    served.stop()
    with pytest.raises(OSError, match=r".*"):
        _connect(served).connect()
    connection.close()
