"""The executors behind `ports.executor`: work inline on the loop, or on one thread of its own.

`Inline` is for the simulation and for tests: everything happens in one order. `Thread` keeps slow work (a commit on a
slow disk, a plan) off the loop; pieces of work run one at a time, in the order in which they were given.

Measured for commits (SQLite FULL, the store alone, 2 cores, 200,000 queued, tasks claimed and completed a second):

- 2 callers x 100 tasks: 40,300 inline, 40,200 on a thread (in that run 1,000,000 additions took 76 ms);
- 128 callers x 1 task: 18,500 and 17,400 in the same run; 21,500 and 18,200 with a later version (130 ms).

A thread costs nothing at large batches and some 6-15 % at single ones, and a slow disk never freezes the loop: commits
belong on a `Thread`, except in the simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Inline:
    """Runs work where it is asked for; the loop stands still meanwhile."""

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return work(*args)

    async def close(self) -> None:
        """Nothing runs between calls."""


class Thread:
    """One thread, made at the first work. `name` is the thread's, for profilers and dumps."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def close(self) -> None:
        """Returns once the work under way has ended; later work is refused with RuntimeError."""
        await self.run(lambda: None)  # behind everything else: after it the thread is at rest
        self._pool.shutdown()
