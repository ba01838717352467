"""Storing a file with the dispatcher: it is asked first, over real sockets."""

from __future__ import annotations

import datetime
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cloud_dispatch.adapters import certificates
from cloud_dispatch.agent import connections
from cloud_dispatch.agent.channel import Unreachable, tls_context
from cloud_dispatch.agent.deposit import Refused, put
from cloud_dispatch.agent.depot import Depot, Stop, TransferStopped

GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
STILL_THERE = b"HTTP/1.1 102 Processing\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
WORDS = b'{"code":"too-large","message":"a file has at most 1GiB","place":"body","hint":"store it elsewhere"}'
NO = b"HTTP/1.1 413 X\r\ncontent-type: application/json\r\nContent-Length: %d\r\n\r\n" % len(WORDS)
LARGE = 64 << 20


class Server:
    """Answers one connection by a script and keeps what it heard. A step is what it says, how many bytes of the body it
    waits for, or how many seconds it does nothing."""

    def __init__(self, steps: list[bytes | int | float], tls: ssl.SSLContext | None) -> None:
        self.head = b""
        self.body = 0
        self._steps, self._tls = steps, tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        self._thread.join(10)
        self._listening.close()

    def _serve(self) -> None:
        self._listening.settimeout(5)
        with closing(self._listening.accept()[0]) as plain:
            plain.settimeout(5)
            try:
                with self._tls.wrap_socket(plain, server_side=True) if self._tls else plain as wire:
                    self._talk(wire)
            except OSError:
                return  # the client has left

    def _talk(self, wire: socket.socket) -> None:
        while not self.head.endswith(b"\r\n\r\n"):
            byte = wire.recv(1)
            if not byte:
                return
            self.head += byte
        for step in self._steps:
            if isinstance(step, bytes):
                wire.sendall(step)
                continue
            if isinstance(step, float):
                time.sleep(step)
                continue
            until = self.body + step
            while self.body < until and (piece := wire.recv(1 << 16)):
                self.body += len(piece)


@contextmanager
def server(*steps: bytes | int | float, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    made = Server(list(steps), tls)
    try:
        yield made
    finally:
        made.close()


def store(to: Server, size: int, stop: Stop | None = None, content: bytes | None = None) -> None:
    depot = Depot(f"http://127.0.0.1:{to.port}/lab", lambda: "secret", None, "")
    put(depot, "/v1/x?path=a", io.BytesIO(bytes(size) if content is None else content), size, 5, stop or Stop())


def test_the_file_follows_the_word_to_go_on() -> None:
    """Asked first, then sent whole, and the answer to it counts."""
    with server(GO_ON, 3_000_000, DONE) as dispatcher:
        store(dispatcher, 3_000_000)
    lines = dispatcher.head.decode().split("\r\n")
    assert lines[0] == "PUT /lab/v1/x?path=a HTTP/1.1"
    assert {"Expect: 100-continue", "Content-Length: 3000000", "Authorization: Bearer secret"} <= set(lines)
    assert dispatcher.body == 3_000_000


def test_what_is_refused_is_not_sent_and_the_reason_is_heard() -> None:
    """The dispatcher's own words, though they come in pieces and it never reads a byte of the file."""
    said = r"^a file has at most 1GiB \(store it elsewhere\)$"
    pieces = (WORDS[at : at + 7] for at in range(0, len(WORDS), 7))
    with server(NO, *pieces) as dispatcher, pytest.raises(Refused, match=said) as caught:
        store(dispatcher, LARGE)
    assert caught.value.status == 413
    assert dispatcher.body == 0


@pytest.mark.parametrize("said", [DONE, b"HTTP/1.1 204 X\r\n\r\n", STILL_THERE * 50])
def test_nothing_is_stored_that_was_not_sent(said: bytes) -> None:
    """Whatever a server, or who stands between, says to the head alone."""
    with server(said) as dispatcher, pytest.raises(http.client.HTTPException, match="before it had the file"):
        store(dispatcher, 1000)
    assert dispatcher.body == 0


def test_the_word_to_go_on_may_come_after_others() -> None:
    """Which say only that somebody is there."""
    with server(b"HTTP/1.1 103 X\r\nLink: a\r\n\r\n", GO_ON, 10, DONE) as dispatcher:
        store(dispatcher, 10)
    assert dispatcher.body == 10


def test_an_answer_to_the_file_may_come_after_others() -> None:
    """Which say only that somebody is there: neither that it is stored nor that it is refused."""
    with server(GO_ON, 10, STILL_THERE, STILL_THERE, DONE) as dispatcher:
        store(dispatcher, 10)
    with server(GO_ON, 10, STILL_THERE, NO, WORDS) as dispatcher, pytest.raises(Refused) as caught:
        store(dispatcher, 10)
    assert caught.value.status == 413


@pytest.mark.parametrize("said", [STILL_THERE, STILL_THERE * 50])
def test_an_answer_to_the_file_that_never_comes_is_an_error(said: bytes) -> None:
    """Nobody knows whether it is stored."""
    with server(GO_ON, 10, said) as dispatcher, pytest.raises(http.client.HTTPException):
        store(dispatcher, 10)


def test_for_an_empty_file_nobody_is_asked() -> None:
    """Nothing comes after its head."""
    with server(DONE) as dispatcher:
        store(dispatcher, 0)
    assert b"Expect" not in dispatcher.head


def test_a_refusal_after_the_file_counts_as_well() -> None:
    """As of a disk that filled up meanwhile."""
    full = b"HTTP/1.1 507 X\r\nContent-Length: 4\r\n\r\nfull"
    said = r"^HTTP Error 507: Insufficient Storage$"
    with server(GO_ON, 10, full) as dispatcher, pytest.raises(Refused, match=said) as caught:
        store(dispatcher, 10)
    assert caught.value.status == 507


@pytest.mark.parametrize("said", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b""])
def test_what_is_no_answer_is_an_error_and_nothing_is_sent(said: bytes) -> None:
    """Whoever is at that port."""
    with server(said) as stranger, pytest.raises((http.client.HTTPException, OSError)):
        store(stranger, 10)
    assert stranger.body == 0


def test_a_file_that_became_shorter_is_an_error() -> None:
    """Not an answer that never comes."""
    with server(GO_ON, 5) as dispatcher, pytest.raises(OSError, match="shorter"):
        store(dispatcher, 10, content=bytes(5))


def test_a_file_that_is_hardly_taken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long somebody goes on to take a little of it."""
    monkeypatch.setattr(connections, "WINDOW_MS", 300)
    monkeypatch.setattr(connections, "LEAST_RATE", 1 << 40)
    takes: list[int | float] = [1 << 20, 0.1] * 16
    with server(GO_ON, *takes, DONE) as dispatcher, pytest.raises(OSError, match=r"^too slow: \d+ bytes in \d+ s"):
        store(dispatcher, LARGE)


@pytest.mark.parametrize("before", [(), (GO_ON, 10)])
def test_an_answer_that_trickles_is_an_error(
    monkeypatch: pytest.MonkeyPatch, before: tuple[bytes | int | float, ...]
) -> None:
    """Each byte of its head comes in time, and the end of it never."""
    monkeypatch.setattr(connections, "WINDOW_MS", 300)
    trickle = [b"HTTP/1.1 200 OK\r\nX: ", *([0.02, b"x"] * 500)]
    with server(*before, *trickle) as dispatcher, pytest.raises(OSError, match="too slow"):
        store(dispatcher, 10)


def test_a_killed_attempt_sends_no_more() -> None:
    """Between two blocks."""

    class Third(Stop):
        asked = 0

        def check(self) -> None:
            self.asked += 1
            if self.asked == 4:  # the first was for the connection
                self.set()
            super().check()

    with server(GO_ON, LARGE, DONE) as dispatcher, pytest.raises(TransferStopped):
        store(dispatcher, LARGE, Third())
    assert dispatcher.body <= 2 << 20


def test_an_impostor_hears_nothing(tmp_path: Path) -> None:
    """Its certificate is not the pinned one: no token, no name, no byte of the file; the right one gets all."""
    made = certificates.own(tmp_path, ("127.0.0.1",), datetime.datetime.now(datetime.UTC))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.certificate, made.key)
    right = made.fingerprint
    for fingerprint in ("00" * 32, right):
        with server(GO_ON, 10, DONE, tls=tls) as other:
            url = f"https://127.0.0.1:{other.port}"
            depot = Depot(url, lambda: "secret", tls_context("", fingerprint), fingerprint)
            if fingerprint == right:
                put(depot, "/x", io.BytesIO(bytes(10)), 10, 5, Stop())
            else:
                with pytest.raises(Unreachable, match="fingerprint"):
                    put(depot, "/x", io.BytesIO(bytes(10)), 10, 5, Stop())
        assert (b"secret" in other.head, other.body) == ((True, 10) if fingerprint == right else (False, 0))
