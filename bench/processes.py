"""Child processes that are certain to end: every server and worker of a benchmark runs inside ``running``.

Owns starting, waiting for readiness and ending. Knows nothing about what it runs.
"""

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GRACE_SECONDS = 10.0
LOG_TAIL_BYTES = 2_000
_PORTS, _PORT_TRIES = range(15_000, 32_000), 100


class BenchmarkFailed(Exception):
    """A benchmark could not be measured, or measured something that is not true; the message says what to do."""


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago, and that the system gives to nobody by itself:
    outgoing connections have the ports from 32,768 on, and took one before its server listened."""
    for _ in range(_PORT_TRIES):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise BenchmarkFailed(f"{_PORT_TRIES} ports are taken, of {_PORTS.start} to {_PORTS.stop}")


def tail(path: Path) -> str:
    """The last lines of a log, for an error message; empty if there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return log.read().decode(errors="replace").strip()


def end(process: subprocess.Popen[Any], grace_seconds: float = GRACE_SECONDS) -> None:
    """End a process and its group: SIGTERM, up to ``grace_seconds``, then SIGKILL. Safe to call twice."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)  # what the leader left behind, and the leader if it would not go
    except ProcessLookupError:
        pass
    process.wait()


@contextmanager
def running(
    argv: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``argv`` in a process group of its own, its output in ``log``; the whole group is gone at exit.

    ``env`` is added to this process's environment.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def wait_until(
    true: Callable[[], bool],
    what: str,
    *,
    timeout_seconds: float,
    interval_seconds: float = 0.01,
    watch: Mapping[Path, subprocess.Popen[bytes]] | None = None,
) -> None:
    """Poll until ``true()``. BenchmarkFailed after the timeout or when one of ``watch`` (log -> process) ends."""
    deadline = time.monotonic() + timeout_seconds
    while not true():
        for log, process in (watch or {}).items():
            if process.poll() is not None:
                raise BenchmarkFailed(f"while waiting for {what}: exit code {process.returncode}\n{tail(log)}")
        if time.monotonic() > deadline:
            logs = "\n".join(tail(log) for log in (watch or {}))
            raise BenchmarkFailed(f"no {what} within {timeout_seconds:g} s\n{logs}")
        time.sleep(interval_seconds)


def accepts_connections(port: int) -> bool:
    """Whether something listens on this port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
