"""How late a loop wakes up who has asked for it. Owns the asking and the arithmetic."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import uvloop

T = TypeVar("T")
#: What is asked for: to be woken up so soon.
TICK_S = 0.001


def lateness(woken: Sequence[float]) -> list[float]:
    """How many seconds later than it had been asked for each wake-up was, ascending, given their moments."""
    return sorted(later - earlier - TICK_S for earlier, later in pairwise(woken))


def percentile(ascending: Sequence[float], percent: int) -> float:
    """So many percent are at most this."""
    return ascending[max(-(-len(ascending) * percent // 100) - 1, 0)]


def of_an_idle_loop(meanwhile: Callable[[], T]) -> tuple[T, list[float]]:
    """What `meanwhile` gives, which waits in a thread, and how late a loop was that had nothing else to do: what the
    machine itself contributes."""

    async def tick() -> tuple[T, list[float]]:
        task = asyncio.get_running_loop().run_in_executor(None, meanwhile)
        woken = [time.perf_counter()]
        while not task.done():
            await asyncio.sleep(TICK_S)
            woken.append(time.perf_counter())
        return await task, lateness(woken)

    return uvloop.run(tick())
