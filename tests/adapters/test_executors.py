"""Where work runs: inline while it is quick, on a thread while it is slow, and back."""

from __future__ import annotations

import threading

import pytest

from cloud_dispatch.adapters.executors import Adaptive


class Stopwatch:
    """Time that passes only in `work`."""

    def __init__(self) -> None:
        self.now = 0.0

    def work(self, takes_s: float) -> bool:
        """Whether it ran on the loop's own thread."""
        self.now += takes_s
        return threading.current_thread() is threading.main_thread()


async def test_slow_work_moves_to_the_thread_and_quick_work_comes_back() -> None:
    """One slow commit among quick ones changes nothing, many do; it takes as many quick ones to come back."""
    watch = Stopwatch()
    executor = Adaptive("commit", lambda: watch.now)
    assert await executor.run(watch.work, 0.08)
    assert await executor.run(watch.work, 0.0005)
    for _ in range(5):
        await executor.run(watch.work, 0.15)
    assert not await executor.run(watch.work, 0.15), "a slow disk froze the loop again"
    inline = [await executor.run(watch.work, 0.0005) for _ in range(60)]
    assert not inline[0]
    assert inline[-1]
    await executor.close()


async def test_errors_of_work_are_raised_wherever_it_ran() -> None:
    """Inline and on the thread."""

    def broken() -> None:
        raise ValueError("broken")

    executor = Adaptive("commit")
    for slow in (False, True):
        executor.slow = slow
        with pytest.raises(ValueError, match="broken"):
            await executor.run(broken)
    await executor.close()


async def test_long_work_is_done_on_the_thread_and_says_nothing_of_the_disk() -> None:
    """However quick the last pieces were; those after it are inline as before."""
    watch = Stopwatch()
    executor = Adaptive("commit", lambda: watch.now)
    assert await executor.run(watch.work, 0.0005)
    for _ in range(10):
        assert not await executor.run_long(watch.work, 0.5)
    assert await executor.run(watch.work, 0.0005)
    await executor.close()
