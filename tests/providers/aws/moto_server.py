"""moto's server, a process of its own: real boto3 speaks to it over HTTP."""

from __future__ import annotations

import gzip
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from bench.processes import free_port
from tests.providers.aws.scenes import REGION

_START_S = 60
#: The newest images of the region as moto has them. It has 1,291 with the others, and makes all of them anew after each
#: reset, which takes it 0.15 s.
_IMAGES = f"ec2/resources/latest_amis/{REGION}.json.gz"


@contextmanager
def serving(certificate: Path | None = None, key: Path | None = None) -> Iterator[str]:
    """Its URL, while it runs; over TLS with a certificate."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    if certificate:
        command += ["-s", "-c", str(certificate), "-k", str(key)]
    with tempfile.NamedTemporaryFile(suffix=".json") as images:
        images.write(gzip.decompress((files("moto") / _IMAGES).read_bytes()))
        images.flush()
        told = {**os.environ, "MOTO_AMIS_PATH": images.name}
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=told)
        url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        try:
            _wait(url, server, ssl.create_default_context(cafile=certificate) if certificate else None)
            yield url
        finally:
            server.kill()
            server.wait()


def reset(url: str) -> None:
    """Forget everything that was made."""
    with urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST"), timeout=30):
        pass


def _wait(url: str, server: subprocess.Popen[bytes], trusted: ssl.SSLContext | None) -> None:
    for _ in range(_START_S * 10):
        assert server.poll() is None, "moto's server has ended"
        try:
            with urllib.request.urlopen(f"{url}/moto-api/", timeout=5, context=trusted):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("moto's server does not answer")
