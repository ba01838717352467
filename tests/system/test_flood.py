"""Strangers who connect without end, to a real dispatcher with TLS that may open few files: real agents work on, new
VMs come in, and nothing is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.house import CONFIG, House

pytestmark = pytest.mark.process
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
FILES = 1024


class FewFiles(House):
    """A dispatcher that the system lets have few files open."""

    def command(self, *words: str) -> list[str]:
        return ["sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", *super().command(*words)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = FewFiles(tmp_path, config=CONFIG.replace("tls = false\n", ""))
    house.url = house.url.replace("http:", "https:")
    house.trust = house.state / "tls" / "ca.pem"
    try:
        yield house
    finally:
        house.clean_up()


class Flood:
    """Two thousand connections that are left in their handshake, from the address that VMs have too, and hundreds more
    a second from another; each is kept for good."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._socks: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Flood:
        for _ in range(2000):
            self._one("127.0.0.1")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for sock in self._socks:
            sock.close()

    def _run(self) -> None:
        while not self._over.wait(0.005) and len(self._socks) < 8000:
            self._one("127.0.0.2")

    def _one(self, address: str) -> None:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=10, source_address=(address, 0))
        self._socks.append(sock)
        try:
            sock.sendall(HELLO)
        except OSError:
            return  # it was shown out


def test_strangers_who_connect_without_end_keep_nobody_out(house: House) -> None:
    """What runs goes on and tells all that it prints, a VM that boots comes in, operators are answered; `health` and
    the metrics say what goes on, and what the strangers held is given back."""
    house.up()
    counted = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 1; done"
    (first,) = house.submit({"command": counted, "cpus": 2})
    house.until(lambda: house.task(first)["state"] == "running", 30, "the first task runs")
    with Flood(house.port):
        (second,) = house.submit({"command": "echo here", "cpus": 2})
        for number in (first, second):
            task = house.until_ended(number)
            assert (task["state"], task["attempts"]) == ("succeeded", 1)
        assert len(house.instances(past=True)) == 2
        assert house.logs(first).split() == [b"%d" % number for number in range(1, 9)]
        assert house.logs(second) == b"here\n"
        health = house.ask("GET", "/v1/health").json()
        assert health["status"] == "degraded"
        assert "without a token" in health["problems"][0]
    metrics = house.ask("GET", "/v1/metrics").text
    samples = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("cloud_dispatch_conn"))
    assert float(samples['cloud_dispatch_connections_cut_off_total{of="strangers"}']) > 1900
    assert float(samples['cloud_dispatch_connections_cut_off_total{of="callers"}']) == 0
    assert 0 < float(samples['cloud_dispatch_connections{of="callers"}']) < 10
    assert "api.failed" not in house.log.read_text()
    assert "dispatcher.few-files" in house.log.read_text()
    deadline = time.monotonic() + 20
    while 'of="strangers"} 0.0' not in (text := house.ask("GET", "/v1/metrics").text):
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
