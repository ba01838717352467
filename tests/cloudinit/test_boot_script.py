"""boot.py as the boot script runs it: by which ways it reaches the dispatcher, and whom it trusts there."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_dispatch.adapters.certificates import Certificate, own
from cloud_dispatch.cloudinit.render import render
from tests.adapters.test_certificates import NOW

AGENT = b"not much of an agent\r\n\r\n" * 5_000
ASKED = "/v1/agent.pyz?sha256=" + hashlib.sha256(AGENT).hexdigest()


class Server(ThreadingHTTPServer):
    """A dispatcher that has the agent, over TLS if it has a certificate. `heard` has what it was asked."""

    def __init__(self, made: Certificate | None = None, host: str = "127.0.0.1") -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.heard: list[str] = []
        super().__init__((host, 0), Dispatcher)
        if made is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(made.certificate, made.key)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        place = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if made is None else 'https'}://{place}:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """Clients that turn away are what is tested."""


class Dispatcher(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.heard.append(f"{self.command} {self.path} {self.headers['Host']}")
        self.send_response(200 if self.path.endswith(ASKED) else 401)
        self.end_headers()
        self.wfile.write(AGENT)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_CONNECT(self) -> None:
        """As a proxy: bytes go both ways until one side has enough."""
        assert isinstance(self.server, Server)
        self.server.heard.append(f"{self.command} {self.path}")
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as other:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=pump, args=(other, self.connection))
            back.start()
            pump(self.connection, other)
            back.join()
        self.close_connection = True

    def log_message(self, *_: Any) -> None: ...


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[tuple[Server, threading.Thread]] = []

    def start(*given: Any) -> Server:
        server = Server(*given)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def boot(
    folder: Path, url: str, fingerprint: str = "", words: tuple[str, ...] = ("fetch", "agent.json", "vm-1"), **more: Any
) -> subprocess.CompletedProcess[str]:
    """boot.py once, each of its tries without a pause."""
    given = {"url": url, "join_token": "join-token", "pool": "p", "fingerprint": fingerprint, "service": "", **more}
    digest = {"agent_sha256": hashlib.sha256(AGENT).hexdigest()}
    for file in yaml.safe_load(render("agent", given | digest))["write_files"]:
        (folder / os.path.basename(file["path"])).write_text(
            file["content"].replace("TRIES, LIMIT, WAIT = 40", "TRIES, LIMIT, WAIT = 2")
        )
    environment = {"PATH": os.environ["PATH"], **{f"{k}_proxy": v for k, v in more.get("proxies", {}).items()}}
    return subprocess.run(
        [sys.executable, "-S", "-I", "boot.py", *words], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_agent_comes_from_an_address_of_either_kind(
    host: str, serve: Callable[..., Server], tmp_path: Path
) -> None:
    """With what stands before the paths in the URL, and the VM's own words in its configuration."""
    try:
        server = serve(None, host)
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    done = boot(tmp_path, server.url + "/behind/")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "agent.pyz").read_bytes() == AGENT
    assert server.heard == [f"GET /behind{ASKED} {server.url.partition('//')[2]}"]
    config = json.loads((tmp_path / "agent.json").read_text())
    assert (config["vm"], config["work_dir"]) == ("vm-1", str(tmp_path))


def test_the_proof_comes_with_the_agent_where_nothing_is_prepared_in_between(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """In the same start of Python; where it can't be had that is told from an agent that can't. A VM that prepares
    something first proves itself after it, when the proof is fresh."""
    steps = [{"file": str(tmp_path / "identity")}]
    (tmp_path / "identity").write_text("it is I")
    url = serve(None).url
    assert boot(tmp_path, url, proof=steps).returncode == 0
    assert json.loads((tmp_path / "agent.json").read_text())["proof"] == "it is I"
    (tmp_path / "identity").unlink()
    assert boot(tmp_path, url, proof=steps).returncode == 3
    later = boot(tmp_path, url, proof=steps, scripts=[{"name": "a.sh", "content": "#!/bin/sh\n"}])
    assert later.returncode == 0
    assert "proof" not in json.loads((tmp_path / "agent.json").read_text())


def test_what_is_pinned_is_trusted_and_nothing_else(serve: Callable[..., Server], tmp_path: Path) -> None:
    """By its fingerprint in either way of writing. A stranger, and one that no pin names, is told nothing."""
    made = own(tmp_path / "tls", ["elsewhere"], NOW)
    server = serve(made)
    pin = made.fingerprint.upper()
    assert boot(tmp_path, server.url, ":".join(map("".join, zip(pin[::2], pin[1::2], strict=True)))).returncode == 0
    assert len(server.heard) == 1
    for fingerprint, complaint in (
        ("ab" * 32, "shows another certificate: " + made.fingerprint),
        ("", "CERTIFICATE_VERIFY_FAILED"),
    ):
        done = boot(tmp_path, server.url, fingerprint)
        assert done.returncode == 1
        assert done.stderr.count(complaint) == 2
        assert len(server.heard) == 1


def test_a_proxy_is_used_unless_the_dispatcher_is_excepted(serve: Callable[..., Server], tmp_path: Path) -> None:
    """In the clear the proxy asks itself; TLS goes through it, and the pin is the dispatcher's. A user in its address
    changes nothing."""
    made = own(tmp_path / "tls", ["127.0.0.1"], NOW)
    proxy, plain, secure = serve(), serve(), serve(made)
    proxies = {"http": proxy.url, "https": proxy.url + "/"}
    assert boot(tmp_path, plain.url, proxies=proxies).returncode == 0
    assert boot(tmp_path, secure.url, made.fingerprint, proxies=proxies).returncode == 0
    place = secure.url.removeprefix("https://")
    assert proxy.heard == [
        f"GET {plain.url}{ASKED} {plain.url.removeprefix('http://')}", f"CONNECT {place}",
    ]  # fmt: skip
    assert plain.heard == []
    assert secure.heard == [f"GET {ASKED} {place}"]
    assert boot(tmp_path, plain.url, proxies={**proxies, "no": "127.0.0.1"}).returncode == 0
    assert len(plain.heard) == 1
    assert len(proxy.heard) == 2
    named = {"http": proxy.url.replace("//", "//bob@"), "https": proxy.url.replace("//", "//bob@") + "/"}
    assert boot(tmp_path, plain.url, proxies=named).returncode == 0
    assert boot(tmp_path, secure.url, made.fingerprint, proxies=named).returncode == 0
    assert proxy.heard[:2] == proxy.heard[2:]
    refused = boot(tmp_path, secure.url, "ab" * 32, proxies=proxies)
    assert "shows another certificate" in refused.stderr
    assert len(secure.heard) == 2


def test_what_does_not_speak_http_is_one_line_a_try(tmp_path: Path) -> None:
    """Neither silence nor noise is more than a failed try."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for said in (b"", b"noise\r\n\r\n"):
                link, _ = listener.accept()
                with link:
                    link.recv(4096)
                    link.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        done = boot(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert done.returncode == 1
    assert done.stderr.count("\n") == done.stderr.count("cloud-dispatch: fetching the agent, try ") == 2


def test_a_refusal_is_told_once(serve: Callable[..., Server], tmp_path: Path) -> None:
    """401 does not get better: no second try."""
    server = serve()
    done = boot(tmp_path, server.url, words=("report", "agent.json", "vm-1", "drivers", "5"))
    assert done.returncode == 1
    assert "telling the dispatcher, try 1 of 5: HTTP/1.0 401 Unauthorized" in done.stderr
    assert len(server.heard) == 1
