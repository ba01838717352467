"""A small HTTP/1.1 client over asyncio. Owns one keep-alive connection to the dispatcher and its TLS; retries nothing.

Only what the dispatcher speaks: answers with a Content-Length or chunked, no redirects, no compression.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple  # noqa: UP035
from urllib.parse import urlsplit

from cloud_dispatch.agent.waiting import within

#: A longer head or body is not an answer of ours.
MOST_HEAD = 65_536
MOST_BODY = 67_108_864


class Unreachable(OSError):
    """No usable answer: refused, cut off, too slow, or not HTTP. The request may have been served."""


@dataclass(frozen=True)
class Endpoint:
    """Where the dispatcher is and how it proves itself: by a CA, by the sha256 of its certificate, or by the system."""

    host: str
    port: int
    tls: Optional[ssl.SSLContext]
    fingerprint: str
    prefix: str

    @classmethod
    def parse(cls, url: str, ca_file: str = "", fingerprint: str = "") -> Endpoint:
        """From `http[s]://host[:port][/prefix]`; ValueError if it is not one."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("%r is not the URL of a dispatcher (expected http://host:port or https://host:port)" % url)
        pin = fingerprint.replace(":", "").lower()
        tls = tls_context(ca_file, pin) if parts.scheme == "https" else None
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls, pin, parts.path.rstrip("/"))


def tls_context(ca_file: str, fingerprint: str) -> ssl.SSLContext:
    """A verifying context; with a fingerprint the pin alone is checked, by `check_pin` on each connection."""
    if not fingerprint:
        return ssl.create_default_context(cafile=ca_file or None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's CAs, which take long to read
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def check_pin(certificate: Optional[bytes], fingerprint: str) -> None:
    """Unreachable if `certificate` (DER) is not the pinned one."""
    seen = hashlib.sha256(certificate or b"").hexdigest()
    if not hmac.compare_digest(seen, fingerprint):
        raise Unreachable("the dispatcher's certificate has fingerprint %s, expected %s" % (seen, fingerprint))


class _Wire(asyncio.Protocol):
    """One connection: at most one request at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.answer: Optional[asyncio.Future[Tuple[int, bytes]]] = None
        self.closed = False
        self._seen = bytearray()
        self._status = 0
        self._length = -1  # of the body; -1: head not read yet, -2: chunked
        self._close_after = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, head: bytes, body: bytes) -> asyncio.Future[Tuple[int, bytes]]:
        self.answer = asyncio.get_running_loop().create_future()
        self._seen.clear()
        self._length = -1
        self.transport.write(head + body)
        return self.answer

    def data_received(self, chunk: bytes) -> None:
        self._seen += chunk
        try:
            self._parse()
        except ValueError as error:
            self._fail(Unreachable("not an HTTP answer: %s" % error))

    def _parse(self) -> None:
        if self._length == -1:
            end = self._seen.find(b"\r\n\r\n")
            if end < 0:
                if len(self._seen) > MOST_HEAD:
                    raise ValueError("its head is too long")
                return
            self._read_head(bytes(self._seen[:end]))
            del self._seen[: end + 4]
        if self._length == -2:
            body = _dechunk(self._seen)
            if body is not None:
                self._done(body)
        elif len(self._seen) >= self._length:
            self._done(bytes(self._seen[: self._length]))

    def _read_head(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self._status = int(lines[0].split(" ", 2)[1])
        fields = dict(_field(line) for line in lines[1:])
        self._close_after = fields.get("connection", "").lower() == "close"
        self._length = -2 if "chunked" in fields.get("transfer-encoding", "") else int(fields.get("content-length", 0))
        if self._length > MOST_BODY:
            raise ValueError("its body has %d bytes" % self._length)

    def _done(self, body: bytes) -> None:
        answer, self.answer = self.answer, None
        if self._close_after or answer is None:
            self.abort()
        if answer is not None and not answer.done():
            answer.set_result((self._status, body))

    def _fail(self, error: Exception) -> None:
        answer, self.answer = self.answer, None
        self.abort()
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.closed = True
        self._fail(Unreachable("connection closed: %s" % (exc or "by the dispatcher")))

    def abort(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.abort()


def _field(line: str) -> Tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _dechunk(seen: bytearray) -> Optional[bytes]:
    """The body of a chunked answer, or None while it is incomplete; ValueError if it is none."""
    parts: List[bytes] = []
    at = 0
    while True:
        end = seen.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(bytes(seen[at:end]).split(b";")[0], 16)
        if len(seen) < end + 2 + size + 2:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(bytes(seen[end + 2 : end + 2 + size]))
        at = end + 2 + size + 2


class Channel:
    """A connection to the dispatcher that is made when needed and kept. One request at a time."""

    def __init__(self, endpoint: Endpoint, token: Callable[[], str], connect_s: float = 10.0) -> None:
        """`token` gives the bearer token of the moment."""
        self._endpoint = endpoint
        self._token = token
        self._connect_s = connect_s
        self._wire: Optional[_Wire] = None
        self._host = "Host: %s:%d\r\nAuthorization: Bearer " % (endpoint.host, endpoint.port)

    async def request(
        self, method: str, path: str, body: bytes, kind: str = "application/json", bearer: str = ""
    ) -> Tuple[int, bytes]:
        """Status and body of the answer; with another `bearer` token than the channel's, if one is given. As
        `exchange` otherwise."""
        head = "%s %s%s HTTP/1.1\r\n%s%s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (
            method, self._endpoint.prefix, path, self._host, bearer or self._token(), kind, len(body),
        )  # fmt: skip
        return await self.exchange(head, body)

    async def exchange(self, head: str, body: bytes = b"") -> Tuple[int, bytes]:
        """What is answered to a request of just this head. Unreachable when nothing is; cancelling it closes the
        connection.

        A request made while another is out takes its place: that one's connection is closed.
        """
        wire = self._wire
        if wire is not None and wire.answer is not None:
            self.close()
        if self._wire is None or self._wire.closed:
            self._wire = await self._connect()
        wire = self._wire
        try:
            return await wire.send(head.encode("latin-1"), body)
        except asyncio.CancelledError:
            wire.abort()
            raise

    async def _connect(self) -> _Wire:
        endpoint = self._endpoint
        loop = asyncio.get_running_loop()
        wire = _Wire()
        making = loop.create_connection(lambda: wire, endpoint.host, endpoint.port, ssl=endpoint.tls)
        try:
            await within(self._connect_s, making)
            if endpoint.tls is not None and endpoint.fingerprint:
                seen = wire.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                check_pin(seen, endpoint.fingerprint)
        except (Unreachable, asyncio.CancelledError):
            wire.abort()
            raise
        except (OSError, asyncio.TimeoutError, RuntimeError) as error:  # the last: no thread to look the name up
            place = "%s:%d" % (endpoint.host, endpoint.port)
            raise Unreachable("can't connect to %s: %s" % (place, str(error) or "timed out")) from None
        return wire

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._wire is not None:
            self._wire.abort()
            self._wire = None
