"""The executors behind `ports.executor`: work inline on the loop, on one thread of its own, or on either as it goes.

`Inline` is for the simulation and for tests: everything happens in one order. `Thread` keeps slow work (a commit on a
slow disk, a plan) off the loop; pieces of work run one at a time, in the order in which they were given.

Measured for commits (SQLite FULL, the store alone, 2 cores, 200,000 queued, tasks claimed and completed a second):

- 2 callers x 100 tasks: 40,300 inline, 40,200 on a thread (in that run 1,000,000 additions took 76 ms);
- 128 callers x 1 task: 18,500 and 17,400 in the same run; 21,500 and 18,200 with a later version (130 ms).

In the whole product, over HTTP, in one run of each: 32,000 inline and 26,000 on a thread a second in batches of 100,
8,000 and 8,700 one by one, first byte of output after 6.7 and 7.6 ms. So inline is better while the disk is quick, and
must not be used when it is slow: `Adaptive` measures, and is the default for commits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Inline:
    """Runs work where it is asked for; the loop stands still meanwhile."""

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return work(*args)

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        return await self.run(work, *args)

    async def close(self) -> None:
        """Nothing runs between calls."""


class Adaptive:
    """Inline while work is quick, on the thread `name` while it is not, judged by the mean of the last ones.

    A disk that stalls freezes the loop once, for that one piece of work.
    """

    #: A commit of some hundred tasks takes 5 ms of CPU on the quickest disk: that is no reason to leave the loop.
    SLOW_S, QUICK_S, WEIGHT = 0.020, 0.008, 0.2

    def __init__(self, name: str, elapsed: Callable[[], float] = time.perf_counter) -> None:
        self._thread = Thread(name)
        self._elapsed = elapsed
        self._mean_s = 0.0
        self.slow = False

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        begun = self._elapsed()
        try:
            return await self._thread.run(work, *args) if self.slow else work(*args)
        finally:
            self._judge(self._elapsed() - begun)

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        """On the thread; that it is long says nothing of the disk."""
        return await self._thread.run(work, *args)

    def _judge(self, taken_s: float) -> None:
        self._mean_s += (taken_s - self._mean_s) * self.WEIGHT
        self.slow = self._mean_s > (self.QUICK_S if self.slow else self.SLOW_S)

    async def close(self) -> None:
        await self._thread.close()


class Thread:
    """One thread, made at the first work. `name` is the thread's, for profilers and dumps."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        return await self.run(work, *args)

    async def close(self) -> None:
        """Returns once the work under way has ended; later work is refused with RuntimeError."""
        await self.run(lambda: None)  # behind everything else: after it the thread is at rest
        self._pool.shutdown()
