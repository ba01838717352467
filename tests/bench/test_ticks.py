"""How the progress of peers is counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.ticks import PATH_VARIABLE, drain_rate
from bench.processes import BenchmarkFailed


def run_tasks(ticks: Path, count: int) -> None:
    """Run `count` no-op tasks in a worker process."""
    code = f"from bench.peers.ticks import tick\nfor _ in range({count}): tick()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, PATH_VARIABLE: str(ticks)}, check=True, timeout=30)


def test_tasks_of_several_worker_processes_are_all_counted(tmp_path: Path) -> None:
    """Two processes append to one file; the drain ends when both are through and the broker is empty."""
    ticks = tmp_path / "ticks"
    run_tasks(ticks, 40)
    run_tasks(ticks, 60)
    left = [2, 1, 0]
    assert drain_rate(ticks, 100, lambda: left.pop(0) == 0) >= 0
    assert left == []


def test_task_that_ran_twice_fails_the_measurement(tmp_path: Path) -> None:
    """A peer that runs tasks again would look faster than it is."""
    ticks = tmp_path / "ticks"
    run_tasks(ticks, 101)
    with pytest.raises(BenchmarkFailed, match="100 tasks were queued and 101 ran"):
        drain_rate(ticks, 100, lambda: True)
