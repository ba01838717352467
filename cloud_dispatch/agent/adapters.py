"""The real clock, chance, names and threads of the VM. The only module of the agent that touches them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import asyncio

_THREADS = 4


def now_ms() -> int:
    """Milliseconds of the clock that runs on while the VM is suspended: a lease ends in real time."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since the epoch, as far as the VM knows."""
    return time.time_ns() // 1_000_000


def pause(seconds: float) -> None:
    """Sleep, for those without an event loop."""
    time.sleep(seconds)


def fraction() -> float:
    """A number in [0, 1) that spreads the retries of many agents."""
    return int.from_bytes(os.urandom(4), "little") / (1 << 32)


def new_name() -> str:
    """A name that no other incarnation has."""
    return os.urandom(8).hex()


class Threads:
    """A bounded number of threads for blocking work on files and the slow ends of transfers."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor  # not at the top: the supervisor stays small

        self._pool = ThreadPoolExecutor(_THREADS, "transfer")

    def run(self, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run `work(*args)` beside the event loop."""
        import asyncio

        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Take no more work; what runs is not waited for."""
        self._pool.shutdown(wait=False)
