"""Children of a benchmark end with it."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from bench import processes
from bench.processes import BenchmarkFailed, free_port, running, wait_until
from tests.procfs import alive

STUBBORN_PARENT = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_whole_process_group_is_gone_after_running(tmp_path: Path) -> None:
    """A grandchild that ignores SIGTERM does not outlive the block."""
    log = tmp_path / "log"
    with running([sys.executable, "-c", STUBBORN_PARENT], log) as process:
        wait_until(lambda: log.stat().st_size > 0, "grandchild", timeout_seconds=20, watch={log: process})
        grandchild = int(log.read_text())
        assert alive(grandchild)
    deadline = time.monotonic() + 10
    while alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(grandchild)
    assert process.returncode is not None


def test_waiting_for_a_child_that_died_fails_with_its_output(tmp_path: Path) -> None:
    """The error says what was waited for and what the child said, without waiting for the timeout."""
    log = tmp_path / "log"
    argv = [sys.executable, "-c", "raise SystemExit('no such broker')"]
    with running(argv, log) as process, pytest.raises(BenchmarkFailed, match=r"(?s)broker to listen.*no such broker"):
        wait_until(lambda: False, "broker to listen", timeout_seconds=60, watch={log: process})


def test_environment_of_a_child_is_ours_and_what_was_added(tmp_path: Path) -> None:
    """`env` adds to the environment instead of replacing it."""
    log = tmp_path / "log"
    argv = [sys.executable, "-c", "import os; print(os.environ['ADDED'], os.environ['PATH'])"]
    with running(argv, log, env={"ADDED": "yes"}) as process:
        process.wait(20)
    assert log.read_text().split() == ["yes", os.environ["PATH"]]


def test_a_free_port_is_not_one_that_the_system_gives_away() -> None:
    """Found in a whole run: an outgoing connection had the port before the server that it was chosen for listened."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 <= free_port() < first for _ in range(200))


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port := free_port()))
        monkeypatch.setattr(processes, "_PORTS", range(port, port + 1))
        with pytest.raises(BenchmarkFailed, match="are taken"):
            free_port()
    assert free_port() == port
