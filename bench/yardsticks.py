"""What this machine can do right now, taken in the same run as every result and printed beside it.

Owns the four yardsticks of the benchmarks: ``loop``, ``fsync``, ``spawn`` and ``echo``. Machines are noisy (the same
disk gave 2 ms and 0.2 ms an hour apart), so a figure without its yardsticks means nothing.
"""

import http.client
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.processes import accepts_connections, free_port, running, wait_until

LOOP_ADDITIONS = 1_000_000
FSYNC_BYTES = 4096
FSYNC_SAMPLES = 200
SPAWN_SAMPLES = 200
ECHO_SAMPLES = 1_000
ECHO_WARM_UP = 200
ECHO_DOCUMENT = {"instance": "i-0123456789abcdef", "free": {"cpus": 1000, "memory": 1 << 30}, "results": [], "seq": 1}
# Ours where it is configured otherwise would make `echo` a yardstick of another server: keep in step with the API's.
SERVER_OPTIONS = ("--http", "httptools", "--no-access-log", "--log-level", "warning")


@dataclass(frozen=True)
class Yardsticks:
    """Seconds, each: ``loop`` once through the loop, the others the median of many."""

    loop: float
    fsync: float
    spawn: float
    echo: float

    def as_milliseconds(self) -> dict[str, float]:
        """The four by name, in milliseconds, for printing."""
        return {name: round(getattr(self, name) * 1e3, 4) for name in ("loop", "fsync", "spawn", "echo")}


def take(folder: Path) -> Yardsticks:
    """Take all four, in about two seconds. ``folder`` must lie on the disk that the benchmark's stores are on."""
    return Yardsticks(loop=loop(), fsync=fsync(folder), spawn=spawn(), echo=echo(folder))


def loop() -> float:
    """Seconds for a Python loop of 1,000,000 additions."""
    started = time.perf_counter()
    total = 0
    for number in range(LOOP_ADDITIONS):
        total += number
    return time.perf_counter() - started


def fsync(folder: Path) -> float:
    """Median seconds to append 4 KiB to a file in ``folder`` and fdatasync it."""
    path = folder / "fsync.yardstick"
    page = b"x" * FSYNC_BYTES
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def once() -> None:
        os.write(descriptor, page)
        os.fdatasync(descriptor)

    try:
        return _median_seconds(once, FSYNC_SAMPLES)
    finally:
        os.close(descriptor)
        path.unlink()


def spawn() -> float:
    """Median seconds to posix_spawn ``true`` and wait for it."""
    program = shutil.which("true") or "/bin/true"

    def once() -> None:
        os.waitpid(os.posix_spawn(program, [program], {}), 0)

    return _median_seconds(once, SPAWN_SAMPLES)


def echo(folder: Path) -> float:
    """Median seconds of a JSON echo over one keep-alive connection to uvicorn on the loopback interface."""
    port = free_port()
    log = folder / "echo.log"
    argv = [sys.executable, "-m", "uvicorn", "bench.echo_server:app", "--port", str(port), *SERVER_OPTIONS]
    with running(argv, log, cwd=Path(__file__).parent.parent) as server:
        wait_until(lambda: accepts_connections(port), "echo server", timeout_seconds=30, watch={log: server})
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {"Content-Type": "application/json"}

        def once() -> None:
            connection.request("POST", "/", json.dumps(ECHO_DOCUMENT), headers)
            answer = json.loads(connection.getresponse().read())
            assert answer == ECHO_DOCUMENT

        try:
            _median_seconds(once, ECHO_WARM_UP)
            return _median_seconds(once, ECHO_SAMPLES)
        finally:
            connection.close()


def _median_seconds(once: Callable[[], None], samples: int) -> float:
    taken = []
    for _ in range(samples):
        started = time.perf_counter()
        once()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
