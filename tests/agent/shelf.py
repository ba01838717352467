"""A place for files: a real HTTP server that serves and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Shelf(ThreadingHTTPServer):
    """Serves and keeps files; `cut` cuts the next answers short, `refuse` answers 503."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ShelfHandler)
        self.files: dict[str, bytes] = {}
        self.cut = 0
        self.refuse = 0
        self.requests = 0
        self.bearers: list[str | None] = []  # of each GET
        self.elsewhere = ""  # where GETs are sent on to
        self.words = b""  # said of what is not there
        self.meanwhile: Callable[[], None] = lambda: None  # done when a file has come, before it is answered

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _ShelfHandler(BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        self.server.requests += 1
        self.server.bearers.append(self.headers.get("Authorization"))
        if self.server.elsewhere:
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere + self.path)
            self.end_headers()
            return
        body = self.server.files.get(self.path)
        if body is None and self.server.words:
            self.send_response(404)
            self.end_headers()
            self.wfile.write(self.server.words)
            return
        if body is None or self.server.refuse > 0:
            self.server.refuse -= 1
            self.send_error(404 if body is None else 503)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.cut > 0:
            self.server.cut -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests += 1
        self.server.meanwhile()
        if self.server.refuse > 0:
            self.server.refuse -= 1
            self.send_error(503)
            return
        self.server.files[self.path] = body
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def opened() -> Iterator[Shelf]:
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
