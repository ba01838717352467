"""How the progress of every peer is measured in the same way: each no-op task appends one byte to a file.

The append costs a task about a microsecond. The file's size is the number of tasks that ran, and looking at it costs
the peer nothing, unlike polling its broker.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.processes import BenchmarkFailed

PATH_VARIABLE = "BENCH_TICKS"
START_SECONDS = 60.0
DRAIN_SECONDS = 200.0
INTERVAL_SECONDS = 0.005
WARM_UP_FRACTION = 0.05

_descriptor: int | None = None


def tick() -> None:
    """Count one task; called inside a peer's worker."""
    global _descriptor  # one open file a worker process, opened after its fork
    if _descriptor is None:
        _descriptor = os.open(os.environ[PATH_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_descriptor, b".")


def drain_rate(path: Path, tasks: int, settled: Callable[[], bool]) -> float:
    """Tasks a second from the moment the workers are warm (5 % done) until all ``tasks`` are done and ``settled()``.

    ``settled`` asks the peer's own broker whether nothing is left there: a task that ran but is not yet acknowledged
    is not done. Raises BenchmarkFailed if the workers don't start, don't finish, or run a task twice.
    """
    warm_at = max(1, int(tasks * WARM_UP_FRACTION))
    warm_count, warm_time = _wait_for(path, warm_at, START_SECONDS)
    _wait_for(path, tasks, DRAIN_SECONDS)
    deadline = time.perf_counter() + DRAIN_SECONDS
    while not settled():
        if time.perf_counter() > deadline:
            raise BenchmarkFailed("all tasks ran, but the peer's broker still holds some of them")
        time.sleep(INTERVAL_SECONDS)
    seconds = time.perf_counter() - warm_time
    ran = path.stat().st_size
    if ran != tasks:
        raise BenchmarkFailed(f"{tasks} tasks were queued and {ran} ran")
    return (tasks - warm_count) / seconds


def _wait_for(path: Path, count: int, timeout_seconds: float) -> tuple[int, float]:
    deadline = time.perf_counter() + timeout_seconds
    while True:
        seen, now = (path.stat().st_size if path.exists() else 0), time.perf_counter()
        if seen >= count:
            return seen, now
        if now > deadline:
            raise BenchmarkFailed(f"only {seen} of {count} tasks ran within {timeout_seconds:g} s")
        time.sleep(INTERVAL_SECONDS)
