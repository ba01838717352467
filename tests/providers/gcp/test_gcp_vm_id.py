"""A VM says who it is in the driver's words, by a command of its boot script."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading

import pytest

from cloud_dispatch_gcp import VM_ID

ANSWERS = {"zone": "projects/123456789012/zones/us-central1-a", "name": "b00000000001-3"}


class Metadata(http.server.BaseHTTPRequestHandler):
    """As strict as Google's."""

    def do_GET(self) -> None:
        good = self.headers["Metadata-Flavor"] == "Google"
        body = ANSWERS.get(self.path.rpartition("/")[2], "").encode() if good else b""
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"], ids=["plain", "with a proxy"])
def test_a_vm_knows_its_zone_and_name(proxy: str) -> None:
    """As `vm=$(...)` runs it, whatever proxy there is for others."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = VM_ID.replace("http://169.254.169.254", f"http://127.0.0.1:{server.server_port}")
        script = f'python="{sys.executable}"\nvm=$({here})\nprintf %s "$vm"\n'
        environment = {"http_proxy": proxy} if proxy else {}
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
        server.shutdown()
    assert done.stdout == "us-central1-a/b00000000001-3", done.stderr
