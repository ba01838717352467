"""What no HTTP client would send, byte by byte over a socket: it is answered or the connection closed within a bound,
nothing changes, nothing fails inside, and everybody else is served on."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator

import pytest

from cloud_dispatch.api.patience import PatientProtocol
from cloud_dispatch.api.worker import SCRIPTS_PATH
from cloud_dispatch.wire.messages import AGENT_PATH, BOOT_PATH, LOGS_PATH, OUTPUTS_PATH, REGISTER_PATH, SYNC_PATH
from tests.api.fortress import HANG_S, PATIENCE, Fortress


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PatientProtocol, "patience", PATIENCE)
        made = Fortress(tmp_path_factory.mktemp("fortress"))
        yield made
        made.close()


def post(path: str, token: str, *headers: str, body: bytes = b"", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def heard(sock: socket.socket, enough: int = 2**30) -> bytes:
    """What comes until the other side closes, or it is `enough`; TimeoutError where neither comes."""
    said = b""
    try:
        while len(said) < enough and (part := sock.recv(65_536)):
            said += part
    except ConnectionResetError:
        pass  # closed with some of ours unread
    return said


def statuses(said: bytes) -> list[int]:
    """The status of each answer in `said`."""
    return [int(line.split()[1]) for line in said.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def sized(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


CHUNKED = "Transfer-Encoding: chunked"
DEEP, WIDE = b"[" * 100_000, b'{"a":' * 10_000
HUGE = b'{"seq": ' + b"9" * 5000 + b', "incarnation": "one"}'
#: Heads that no client makes, and bodies that are not what their heads say. `%T` is a service token that is good.
GARBAGE: dict[str, bytes] = {
    "nothing that is HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "null bytes": b"\0" * 1000 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0",
    "no host": b"GET /v1/health HTTP/1.1\r\nConnection: close\r\n\r\n",
    "an old protocol": b"GET /v1/health HTTP/0.9\r\n\r\n",
    "a method that is none": b"BREW /v1/agent/sync HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\nSSH-2.0-x\r\n",
    "an upgrade": b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05he",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a full URL": b"GET http://[::1/v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a path of bytes": b"GET /v1/\xff\xfe/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "an escaped path of bytes": b"GET /v1/%ff%fe%00/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a header with a null byte": b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: a\0b\r\n\r\n",
    "a folded header": b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n x\r\nConnection: close\r\n\r\n",
    "a name with blanks": b"POST %S HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer %T\r\n\r\n",
    "two lengths": post("%S", "%T", "Content-Length: 2", "Content-Length: 40", body=b"{}" * 20),
    "a length and chunks": post("%S", "%T", "Content-Length: 4", CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n"),
    "an encoding twice": post("%S", "%T", "Transfer-Encoding: chunked, chunked", body=b"2\r\n{}\r\n0\r\n\r\n"),
    "an encoding that is none": post("%S", "%T", "Transfer-Encoding: gzip", body=b"{}"),
    "a negative length": post("%S", "%T", "Content-Length: -1", body=b"{}"),
    "a length of words": post("%S", "%T", "Content-Length: many", body=b"{}"),
    "a length beyond numbers": post("%S", "%T", f"Content-Length: {'9' * 40}", body=b"{}"),
    "a length beyond the bound": post("%S", "%T", "Content-Length: 999999999", body=b"{}"),
    "chunks that are none": post("%S", "%T", CHUNKED, body=b"zz\r\n{}\r\n0\r\n\r\n"),
    "a chunk of a negative size": post("%S", "%T", CHUNKED, body=b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk beyond numbers": post("%S", "%T", CHUNKED, body=b"f" * 40 + b"\r\n{}\r\n"),
    "more than was said": post("%S", "%T", "Content-Length: 2", body=b"[]" * 1000),
    "a trailing head": post("%S", "%T", CHUNKED, body=b"0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"),
    "a size of many words": post("%S", "%T", CHUNKED, body=b"2;" + b"x" * 900_000 + b"\r\n{}\r\n"),
    "a long path": b"GET /" + b"a" * 900_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a long header": b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 900_000 + b"\r\n\r\n",
    "many headers": b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    "two tokens": post("%S", "%T", "Authorization: Bearer x", sized(b"[]"), body=b"[]"),
    "a deep list": post("%S", "%T", sized(DEEP), body=DEEP),
    "a deep object": post("%S", "%T", sized(WIDE), body=WIDE),
    "a huge number": post("%S", "%T", sized(HUGE), body=HUGE),
    "no number": post("%S", "%T", sized(b'{"seq": NaN}'), body=b'{"seq": NaN}'),
    "infinity": post("%S", "%T", sized(b'{"seq": 1e999}'), body=b'{"seq": 1e999}'),
    "a half character": post("%S", "%T", sized(b'{"state": "\\ud800"}'), body=b'{"state": "\\ud800"}'),
    "no text": post("%S", "%T", sized(b'{"state": "\xff\xfe"}'), body=b'{"state": "\xff\xfe"}'),
    "a query of bytes": post("%L?task=\xff&token=%ff&offset=0", "%T", sized(b"x"), body=b"x"),
    "a query of null bytes": post("%O?task=1&token=1&path=a%00b", "%T", sized(b"x"), body=b"x", method="PUT"),
    "a query of many fields": post("%L?" + "a=b&" * 5000, "%T", sized(b"x"), body=b"x"),
    "a path that leaves": post("%O?task=1&token=1&path=../../x", "%T", sized(b"x"), body=b"x", method="PUT"),
    "requests behind garbage": post("%S", "%T", sized(b"{"), body=b"{") * 50 + b"\0\0\0\r\n\r\n",
}  # fmt: skip
GOOD_STATUSES = {200, 400, 401, 404, 405, 408, 409, 413, 422, 431}


def filled(request: bytes, fortress: Fortress) -> bytes:
    places = {b"%S": SYNC_PATH, b"%L": LOGS_PATH, b"%O": OUTPUTS_PATH, b"%T": fortress.mine.token}
    places[b"%K"] = str(fortress.mine.held[0].token)
    for place, text in places.items():
        request = request.replace(place, text.encode())
    return request


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_answered_or_cut_off_and_changes_nothing(fortress: Fortress, name: str) -> None:
    """No 5xx, no hanging connection, no change, no error inside; others are answered."""
    before = fortress.state()
    with fortress.connected() as sock:
        try:
            sock.sendall(filled(GARBAGE[name], fortress))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it had heard enough
        sock.settimeout(4)  # several times the bounds
        said = heard(sock, enough=1)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        answered = statuses(said + heard(sock))
    assert set(answered) <= GOOD_STATUSES, answered
    if 200 in answered:
        assert name in ("no host", "an upgrade", "an old protocol")
    fortress.settles(before)
    assert fortress.alive()
    assert fortress.troubles == []


def trickled(sock: socket.socket, begin: bytes, drop: bytes, pause_s: float, most_s: float) -> tuple[bytes, float]:
    """What is answered to `begin` and then a `drop` every `pause_s`, and after how long the connection was closed."""
    began = time.monotonic()
    said = b""
    sock.settimeout(pause_s)
    try:
        sock.sendall(begin)
        while time.monotonic() - began < most_s:
            try:
                part = sock.recv(65_536)
                if not part:
                    break
                said += part
            except TimeoutError:
                sock.sendall(drop)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return said, time.monotonic() - began


SLOW = {
    "silence": (b"", b""),
    "a head": (b"POST %S HTTP/1.1\r\nHost: x\r\n", b"X: y\r\n"),
    "a first line": (b"P", b"O"),
    "blank lines": (b"", b"\r\n"),
    "a body": (post("%S", "%T", "Content-Length: 60000"), b" "),
    "a body for a stranger": (post("%S", "nobody", "Content-Length: 60000"), b" "),
    "chunks without end": (post("%S", "%T", CHUNKED), b"1\r\n \r\n"),
    "an upload": (post("%O?task=1&token=%K&path=slow", "%T", "Content-Length: 60000", method="PUT"), b"x"),
    "blank lines behind an answer": (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n"),
}


REFUSED = {
    "no method": (b"BREW!! /x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request"),
    "a length of words": (post(SYNC_PATH, "nobody", "Content-Length: many"), 400, "request"),
    "a head that is whole and too long": (post("/v1/health", "x", f"X: {'a' * 65_536}"), 431, "head"),
    "a head without end": (b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000, 431, "head"),
    "half a head": (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n", 408, "request"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("before", [b"", post("/v1/health", "x", method="GET")], ids=["first", "later"])
def test_what_no_route_ever_sees_is_refused_as_everything_is(fortress: Fortress, name: str, before: bytes) -> None:
    """With a body of the form of all errors, once, with its place and what to do."""
    request, status, place = REFUSED[name]
    with fortress.connected() as sock:
        if before:
            sock.sendall(before)
            assert statuses(sock.recv(65_536)) == [200]
        sock.sendall(request)
        said = heard(sock)
    assert statuses(said) == [status]
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    answer = json.loads(body)
    assert (answer["code"], answer["place"]) == ("invalid-input", place)
    assert answer["message"]
    assert answer["hint"]


@pytest.mark.parametrize("name", SLOW)
def test_whoever_trickles_is_cut_off(fortress: Fortress, name: str) -> None:
    """A client that says a byte now and then holds its connection for a bounded time, whatever it said before."""
    before = fortress.state()
    begin, drop = (filled(part, fortress) for part in SLOW[name])
    with fortress.connected() as sock:
        said, took = trickled(sock, begin, drop, 0.1, 6)
    assert took < 5, said
    assert set(statuses(said)) <= GOOD_STATUSES
    fortress.settles(before)
    assert fortress.troubles == []


def test_chunks_that_never_end_are_refused_at_the_bound(fortress: Fortress) -> None:
    """A body that says no length is read up to its bound, as fast as it comes, and no further."""
    before = fortress.state()
    for path, token, method in (
        ("%S", "%T", "POST"),
        ("%S", "nobody", "POST"),
        ("%O?task=1&token=%K&path=x", "%T", "PUT"),
        ("%O?task=1&token=9&path=x", "%T", "PUT"),
    ):
        sent = 0
        with fortress.connected() as sock:
            try:
                sock.sendall(filled(post(path, token, CHUNKED, method=method), fortress))
                while sent < 50_000_000:
                    sock.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
                    sent += 4096
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert sent < 20_000_000, path
    fortress.settles(before)
    assert fortress.troubles == []


def test_many_who_trickle_do_not_keep_an_agent_waiting(fortress: Fortress) -> None:
    """Two hundred half requests at once: whoever is honest is answered at once, and they are gone after a while."""
    socks = [socket.create_connection((fortress.host, fortress.port), timeout=HANG_S) for _ in range(200)]
    try:
        for sock in socks:
            sock.sendall(b"POST /v1/agent/sync HTTP/1.1\r\nHost: x\r\nX: ")
        began = time.monotonic()
        assert fortress.alive()
        assert time.monotonic() - began < 2
        for sock in socks:
            assert set(statuses(heard(sock))) <= {408}
        assert time.monotonic() - began < 8
    finally:
        for sock in socks:
            sock.close()


def test_a_slow_but_steady_upload_is_taken(fortress: Fortress) -> None:
    """What goes on at the pace that is asked for is not cut off, however long it takes in all."""
    claim = fortress.mine.held[0]
    query = f"?task={claim.task}&token={claim.token}&path=steady"
    with fortress.connected() as sock:
        sock.sendall(post(OUTPUTS_PATH + query, fortress.mine.token, "Content-Length: 24000", method="PUT"))
        for _ in range(24):
            sock.sendall(b"x" * 1000)
            time.sleep(0.1)
        assert statuses(sock.recv(65_536)) == [200]


def test_the_routes_that_take_bodies_are_the_agents(fortress: Fortress) -> None:
    """The tables above name each of them."""
    assert {path for _, path in fortress.parts.app.worker.table} == {
        SYNC_PATH, REGISTER_PATH, BOOT_PATH, SCRIPTS_PATH, LOGS_PATH, OUTPUTS_PATH, AGENT_PATH
    }  # fmt: skip
