"""Which failures prove that a request never left: as the libraries tell them of real connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session
from cryptography.hazmat.primitives import serialization

from cloud_dispatch.provider.unsent import never_sent
from tests.providers.gcp import scenes

Meet = Callable[[socket.socket], None]
_WAIT_S = 20


@contextlib.contextmanager
def server(meet: Meet) -> Iterator[int]:
    """A port where each connection is met by `meet` and closed."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                met, _ = listening.accept()
                with met, contextlib.suppress(OSError):
                    meet(met)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(_WAIT_S)


def read_and_close(met: socket.socket) -> None:
    met.recv(65536)


def read_and_reset(met: socket.socket) -> None:
    met.recv(65536)
    met.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half_an_answer(met: socket.socket) -> None:
    met.recv(65536)
    met.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")


def refuse_the_tunnel(met: socket.socket) -> None:
    met.recv(65536)
    met.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")


def speaking_tls(then: Meet, folder: Path) -> Meet:
    """One who speaks TLS with a certificate that nobody has signed, and then does `then`."""
    chain = folder / "chain.pem"
    key = scenes.signer("key-1").private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(key + scenes.certificate().encode())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)

    def meet(met: socket.socket) -> None:
        with context.wrap_socket(met, server_side=True) as wrapped:
            then(wrapped)

    return meet


def garbage(met: socket.socket) -> None:
    """What is no TLS, behind a request that came by TLS."""
    while not met.recv(65536).endswith(b"order"):
        pass
    assert isinstance(met, ssl.SSLSocket)
    with socket.socket(fileno=met.detach()) as plain:
        plain.sendall(b"x" * 64)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def by_requests(url: str, proxy: str = "", verify: bool = True) -> Exception:
    session = requests.Session()
    session.trust_env = False
    with session, pytest.raises(requests.RequestException) as told:
        session.post(url, data=b"order", timeout=(_WAIT_S, 0.5), verify=verify, proxies={"http": proxy, "https": proxy})
    return told.value


def by_botocore(url: str, proxy: str = "", verify: bool = True) -> Exception:
    proxies = {"http": proxy, "https": proxy} if proxy else {}
    session = URLLib3Session(verify=verify, proxies=proxies, timeout=(_WAIT_S, 0.5))
    with contextlib.closing(session), pytest.raises(Exception) as told:
        session.send(AWSRequest("POST", url, data=b"order").prepare())
    return told.value


LIBRARIES = pytest.mark.parametrize("ask", [by_requests, by_botocore])


@LIBRARIES
def test_without_a_connection_nothing_was_sent(ask: Callable[..., Exception]) -> None:
    """Nobody listens, there is no such name, or the proxy is not there."""
    assert never_sent(ask(f"http://127.0.0.1:{closed_port()}/"))
    assert never_sent(ask("http://nowhere.invalid/"))
    assert never_sent(ask("https://cloud.invalid/", proxy=f"http://127.0.0.1:{closed_port()}"))


@LIBRARIES
def test_a_proxy_that_opens_no_tunnel_has_passed_nothing_on(ask: Callable[..., Exception]) -> None:
    with server(refuse_the_tunnel) as port:
        assert never_sent(ask("https://cloud.invalid/", proxy=f"http://127.0.0.1:{port}"))


@LIBRARIES
def test_a_certificate_is_refused_before_anything_is_sent(ask: Callable[..., Exception], tmp_path: Path) -> None:
    with server(speaking_tls(read_and_close, tmp_path)) as port:
        assert never_sent(ask(f"https://127.0.0.1:{port}/"))


@LIBRARIES
@pytest.mark.parametrize("meet", [read_and_close, read_and_reset, half_an_answer, lambda met: met.recv(1)])
def test_behind_a_request_that_has_arrived_whatever_breaks_proves_nothing(
    ask: Callable[..., Exception], meet: Meet
) -> None:
    with server(meet) as port:
        assert not never_sent(ask(f"http://127.0.0.1:{port}/"))


@LIBRARIES
def test_an_answer_that_does_not_come_proves_nothing(ask: Callable[..., Exception]) -> None:
    over = threading.Event()

    def keep_quiet(met: socket.socket) -> None:
        met.recv(65536)
        over.wait(_WAIT_S)

    with server(keep_quiet) as port:
        found = ask(f"http://127.0.0.1:{port}/")
        over.set()
    assert not never_sent(found)


@LIBRARIES
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_tls_that_breaks_while_the_answer_is_read_proves_nothing(ask: Callable[..., Exception], tmp_path: Path) -> None:
    with server(speaking_tls(garbage, tmp_path)) as port:
        found = ask(f"https://127.0.0.1:{port}/", verify=False)
    assert "SSL" in str(found)
    assert not never_sent(found)


@LIBRARIES
@pytest.mark.parametrize("meet", [read_and_close, read_and_reset])
def test_a_proxy_that_has_read_the_request_and_goes_may_have_passed_it_on(
    ask: Callable[..., Exception], meet: Meet
) -> None:
    """The libraries call it a proxy that they could not connect to."""
    with server(meet) as port:
        found = ask("http://cloud.invalid/", proxy=f"http://127.0.0.1:{port}")
    assert "Proxy" in type(found).__name__
    assert not never_sent(found)


def test_the_proof_is_found_wherever_an_sdk_has_put_it() -> None:
    class ConnectTimeoutError(Exception):
        """As a library names it."""

    class Derived(ConnectTimeoutError):
        pass

    proof = Derived()
    wrapped, told, kept = Exception("x", proof), Exception(), Exception()
    told.__cause__ = wrapped
    kept.inner_exception = told  # type: ignore[attr-defined]
    assert never_sent(kept)
    assert not never_sent(Exception("ConnectTimeoutError"))


def test_a_chain_that_bites_its_tail_or_has_no_end_is_left() -> None:
    one, other = Exception(), Exception()
    one.__cause__, other.__cause__ = other, one
    assert not never_sent(one)
    deep = Exception()
    for _ in range(10_000):
        deep = Exception(deep)
    assert not never_sent(deep)
