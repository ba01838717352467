"""A Key Vault under its own name: TLS by a CA of its own, reached through a proxy, since nobody here answers for names
of Azure. Answers one secret as documented, to whoever has a token of the fake authority for vaults."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fakes.server import Reply, Request, Server

HOST = "queue-vault.vault.azure.net"
SECRET = f"https://{HOST}/secrets/db"
_JSON = "application/json; charset=utf-8"


def said(status: int, document: Any) -> Reply:
    return Reply(status, json.dumps(document).encode(), _JSON)


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What the vault shows, and the file of what to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca, private = folder / "vault.pem", folder / "vault.key"
    ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca, private)
    return context, ca


class Vault:
    """`admits` judges a token."""

    def __init__(self, folder: Path, admits: Callable[[str], bool]) -> None:
        context, self.ca = certificate(folder)
        self.answer: Reply | None = None
        self._admits = admits
        self._server = Server(self._handle, tls=context)
        self._server.start()
        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), _proxy_to(int(self._server.url.rpartition(":")[2])))
        self._proxy.daemon_threads = True
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    @property
    def proxy(self) -> str:
        return f"http://127.0.0.1:{self._proxy.server_address[1]}"

    def stop(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._server.stop()

    def _handle(self, request: Request) -> Reply:
        if self.answer is not None:
            return self.answer
        if not self._admits(request.headers.get("authorization", "").removeprefix("Bearer ")):
            return said(401, {"error": {"code": "Unauthorized", "message": "AKV10000: Request is missing a token."}})
        if (request.method, request.target) != ("GET", "/secrets/db?api-version=7.4"):
            text = "A secret with (name/id) other was not found in this key vault."
            return said(404, {"error": {"code": "SecretNotFound", "message": text}})
        return said(200, {"value": "hunter2", "id": f"{SECRET}/0123", "attributes": {"enabled": True}})


def _proxy_to(port: int) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            assert self.path == f"{HOST}:443", self.path
            with socket.create_connection(("127.0.0.1", port)) as inside:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_pass, args=(inside, self.connection), daemon=True)
                back.start()
                _pass(self.connection, inside)
                back.join(5)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Proxy


def _pass(out: socket.socket, into: socket.socket) -> None:
    try:
        while body := out.recv(65_536):
            into.sendall(body)
        into.shutdown(socket.SHUT_WR)
    except OSError:
        pass
