"""Stores one file with the dispatcher, which is asked before anything of it is sent. Owns that conversation; retries
nothing.

A server that refuses amid a body closes the connection, and its answer is lost with what was still on its way: the
task's user would read of a broken pipe. So the request's head goes ahead (RFC 9110, 10.1.1, `Expect: 100-continue`),
and a file that is refused costs neither its transfer nor the reason.
"""

from __future__ import annotations

import http.client
import urllib.error
from typing import Protocol, Tuple  # noqa: UP035
from urllib.parse import urlsplit

from cloud_dispatch.agent.connections import MOST_HEADS, Incoming, to_depot
from cloud_dispatch.agent.depot import Depot, Stop
from cloud_dispatch.wire.codec import decode
from cloud_dispatch.wire.messages import ErrorReply

#: What the other side has to take within the time that it has for an answer.
_BLOCK = 1 << 16
#: A longer line is none of an answer's head.
_LINE_BYTES = 8192
#: Most that is read of what the dispatcher says of an error.
_SAID_BYTES = 4096
_GO_ON = 100
_OK = 200
_NOT_OK = 300


class Readable(Protocol):
    """What is read of a file."""

    def read(self, count: int = ..., /) -> bytes: ...


class Refused(OSError):
    """The dispatcher's answer was `status`; the text is its own."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def put(depot: Depot, path: str, file: Readable, size: int, timeout_s: float, stop: Stop) -> None:
    """Store the `size` bytes of `file` at `path`, unless it is to `stop`.

    Refused for an answer that is not 2xx; Unreachable for one who does not prove to be the dispatcher, and is told
    nothing; OSError or HTTPException where there is no answer, or one that nobody can give, or the file has become
    shorter.
    """
    parts = urlsplit(depot.url)
    connection = to_depot(depot, parts.hostname or "", parts.port, timeout_s, stop)
    try:
        connection.connect()
        connection.putrequest("PUT", parts.path.rstrip("/") + path)
        connection.putheader("Authorization", "Bearer " + depot.token())
        connection.putheader("Content-Type", "application/octet-stream")
        connection.putheader("Content-Length", str(size))
        if size:
            connection.putheader("Expect", "100-continue")
        connection.endheaders()
        if size:
            _ask(connection)
            _send(connection, file, size, stop)
        answer = connection.getresponse()
        if not _OK <= answer.status < _NOT_OK:
            raise Refused(answer.status, _words(answer.status, answer.read(_SAID_BYTES)))
    finally:
        stop.unwatch()
        connection.close()


def _ask(connection: http.client.HTTPConnection) -> None:
    """Returns where the body may come. Who says that all is well without it has not stored it."""
    for _ in range(MOST_HEADS):
        status, said = _early(connection)
        if status == _GO_ON:
            return
        if status >= _NOT_OK:
            raise Refused(status, _words(status, said))
        if status >= _OK:
            break
    raise http.client.HTTPException("it answered %d before it had the file" % status)


def _early(connection: http.client.HTTPConnection) -> Tuple[int, bytes]:
    """An answer to the head alone, which may be one of several. Read byte by byte, so that nothing is taken of what
    `getresponse` will read."""
    with Incoming(connection.sock.makefile("rb", buffering=0)) as wire:
        line = wire.readline(_LINE_BYTES).split(None, 2)
        if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
            raise http.client.BadStatusLine(repr(line))
        headers = http.client.parse_headers(wire)
        if int(line[1]) < _OK:
            return int(line[1]), b""
        length = headers.get("Content-Length", "")
        return int(line[1]), _whole(wire, min(int(length), _SAID_BYTES) if length.isdigit() else 0)


def _whole(wire: Incoming, size: int) -> bytes:
    """`size` bytes, or what comes until the other side closes: an unbuffered one reads what is there."""
    found = b""
    while len(found) < size:
        more = wire.read(size - len(found))
        if not more:
            break
        found += more
    return found


def _send(connection: http.client.HTTPConnection, file: Readable, size: int, stop: Stop) -> None:
    left = size
    while left:
        stop.check()
        block = file.read(min(left, _BLOCK))
        if not block:
            raise OSError("it has become shorter while it was sent")
        connection.send(block)
        left -= len(block)


def refusal(error: urllib.error.HTTPError) -> Refused:
    """What the dispatcher says of a file that it does not give: which task lacks it, say."""
    with error:
        return Refused(error.code, _words(error.code, error.read(_SAID_BYTES)))


def _words(status: int, body: bytes) -> str:
    """What an answer says of an error; its status where that can't be read."""
    try:
        said = decode(ErrorReply, body)
    except ValueError:
        said = ErrorReply()
    if not said.message:
        return "HTTP Error %d: %s" % (status, http.client.responses.get(status, ""))
    return "%s (%s)" % (said.message, said.hint) if said.hint else said.message
