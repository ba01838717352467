"""The agent's HTTP client against raw sockets: what it accepts as an answer, and whom it trusts."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cloud_dispatch.adapters import certificates
from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def exchange(serve: Serve, requests: int = 1, **tls: str) -> list[tuple[int, bytes]]:
    """The answers to `requests` requests over one channel to a server that does `serve` a connection."""
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls["cert"], tls["key"])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}/base/"
    channel = Channel(Endpoint.parse(url, tls.get("ca", ""), tls.get("pin", "")), lambda: "secret")
    try:
        asked = [await asyncio.wait_for(channel.request("POST", "/p", b"body"), 5) for _ in range(requests)]
    finally:
        channel.close()
        server.close()
        await server.wait_closed()
    return asked


def saying(*pieces: bytes, close: bool = False) -> Serve:
    """Answers every request with `pieces`, sent one by one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\nbody")
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.005)
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


async def test_a_request_is_whole_and_carries_the_token() -> None:
    """Method, prefix, host, bearer and length, in one write."""
    seen = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.extend(await reader.readuntil(b"\r\n\r\nbody"))
        writer.write(OK)
        writer.close()

    assert await exchange(serve) == [(200, b"hi")]
    text = seen.decode()
    assert text.startswith("POST /base/p HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "Authorization: Bearer secret\r\n" in text
    assert "Content-Length: 4\r\n" in text


@pytest.mark.parametrize(
    "pieces",
    [
        (OK,),
        tuple(bytes([byte]) for byte in OK),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n", b"1\r\ni\r\n0\r\n\r\n"),
    ],
)
async def test_an_answer_may_come_in_any_pieces(pieces: tuple[bytes, ...]) -> None:
    """By length or chunked; the connection serves the next request."""
    assert await exchange(saying(*pieces), requests=3) == [(200, b"hi")] * 3


async def test_a_connection_that_the_dispatcher_closed_is_made_again() -> None:
    """Between requests that is no failure."""
    answer = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    assert await exchange(saying(answer, close=True), requests=3) == [(503, b"")] * 3


@pytest.mark.parametrize("answer", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 two\r\n\r\n", b"x" * 70_000, b""])
async def test_what_is_not_an_answer_is_unreachable(answer: bytes) -> None:
    """Not HTTP, an endless head, or nothing before the end."""
    with pytest.raises(Unreachable):
        await exchange(saying(answer, close=True))


async def test_nobody_there_is_unreachable() -> None:
    """With the place in the message."""
    with pytest.raises(Unreachable, match=r"can't connect to 127\.0\.0\.1:9:"):
        await Channel(Endpoint.parse("http://127.0.0.1:9"), lambda: "t").request("GET", "/", b"")


async def test_a_cancelled_request_closes_its_connection() -> None:
    """The dispatcher sees that its answer is not wanted any more."""
    begun, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                begun.set()
        except ConnectionError:
            pass
        gone.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    channel = Channel(Endpoint.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), lambda: "t")
    asking = asyncio.create_task(channel.request("POST", "/", b""))
    await begun.wait()
    asking.cancel()
    await asyncio.wait_for(gone.wait(), 2)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("url", ["", "ftp://h", "http://", "host:80"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """With the form that is expected."""
    with pytest.raises(ValueError, match="expected http"):
        Endpoint.parse(url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A self-signed certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True, timeout=30)
    return {"cert": cert, "key": key}


def fingerprint(cert: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(Path(cert).read_text())).hexdigest()


async def test_a_certificate_of_the_given_authority_is_trusted(certificate: dict[str, str]) -> None:
    """And no other."""
    assert await exchange(saying(OK), ca=certificate["cert"], **certificate) == [(200, b"hi")]
    with pytest.raises(Unreachable, match=r"can't connect"):
        await exchange(saying(OK), **certificate)


async def test_a_pinned_certificate_is_trusted_and_another_is_not(certificate: dict[str, str]) -> None:
    """The pin alone decides; it may be written with colons. Nothing is sent to another."""
    pin = fingerprint(certificate["cert"])
    colons = ":".join(pin[at : at + 2] for at in range(0, 64, 2)).upper()
    assert await exchange(saying(OK), pin=colons, **certificate) == [(200, b"hi")]
    with pytest.raises(Unreachable, match="has fingerprint"):
        await exchange(saying(OK), pin="0" * 64, **certificate)


async def test_a_pinned_certificate_is_trusted_after_its_end(tmp_path: Path) -> None:
    """It is made anew by a start without VMs alone: those that live are not lost by its end, which others heed."""
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=11 * 365)
    made = certificates.own(tmp_path, ("127.0.0.1", "localhost"), long_ago)
    files = {"cert": str(made.certificate), "key": str(made.key)}
    assert await exchange(saying(OK), pin=made.fingerprint, **files) == [(200, b"hi")]
    with pytest.raises(Unreachable, match=r"can't connect"):
        await exchange(saying(OK), ca=str(made.ca), **files)
