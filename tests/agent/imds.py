"""A metadata service over real HTTP, as strict as EC2's: nothing without a token, 404 where there is no notice."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "/latest/api/token"
INTERRUPTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"


class MetadataService:
    """Start with `with MetadataService() as service`. `said` is what it says, by path."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.said: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.issued = 0
        self.connections = 0
        self.asked: list[tuple[str, str, int]] = []
        self.headers: list[dict[str, str]] = []
        self.mistakes: list[str] = []
        service = self

        class Handler(_Handler):
            metadata = service

        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.at = f"http://{address}:{self._server.server_address[1]}"

    def expire(self) -> None:
        """Every token that was given is void."""
        self.tokens.clear()

    def sources(self) -> list[dict[str, Any]]:
        """What EC2's driver says of notices, for this service."""
        token = {"url": self.at + TOKEN, "method": "PUT", "headers": {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}}
        header = {"X-aws-ec2-metadata-token": "{answer}"}
        return [
            {"steps": [token, {"url": self.at + INTERRUPTION, "headers": header}], "field": "time", "in_ms": 120_000},
            {"steps": [token, {"url": self.at + REBALANCE, "headers": header}], "advice": True},
        ]

    def __enter__(self) -> MetadataService:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    metadata: MetadataService

    def setup(self) -> None:
        super().setup()
        self.metadata.connections += 1

    def do_PUT(self) -> None:
        known = self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600" and self.headers["Content-Length"]
        if self.path != TOKEN or known != "0":
            self._say(400, "")
            return
        self.metadata.issued += 1
        token = f"token-{self.metadata.issued}=="
        self.metadata.tokens.add(token)
        self._say(200, token)

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] not in self.metadata.tokens:
            self._say(401, "")
        elif self.path in self.metadata.said:
            self._say(200, self.metadata.said[self.path])
        else:
            self._say(404, "<html>404 - Not Found</html>")

    def _say(self, status: int, text: str) -> None:
        self.metadata.asked.append((self.command, self.path, status))
        self.metadata.headers.append(dict(self.headers))
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None: ...
