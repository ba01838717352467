"""The virtual-time loop: order, jumps, and what it says when nobody can go on."""

from __future__ import annotations

import asyncio
import time

import pytest

from cloud_dispatch.simulation import loop as virtual
from cloud_dispatch.simulation.loop import Deadlock, Group, Livelock, VirtualLoop


def test_a_day_passes_at_once_and_to_the_millisecond() -> None:
    """Sleeping costs no real time; virtual time is what was slept."""

    async def main(loop: VirtualLoop) -> int:
        for _ in range(24):
            await asyncio.sleep(3600)
        return loop.now_ms

    begun = time.perf_counter()
    assert virtual.run(main) == 86_400_000
    assert time.perf_counter() - begun < 2


def test_timers_of_one_moment_fire_in_the_order_in_which_they_were_set() -> None:
    """Ties never depend on the heap."""
    fired: list[int] = []

    async def main(loop: VirtualLoop) -> None:
        for number in range(50):
            loop.call_later(0.5, fired.append, number)
        loop.call_later(0.1, fired.append, -1)
        await asyncio.sleep(1)

    virtual.run(main)
    assert fired == [-1, *range(50)]


def test_a_wait_is_rounded_up_to_a_millisecond() -> None:
    """Half a millisecond is one, and a tenth of a second is not a hundred and one milliseconds."""

    async def main(loop: VirtualLoop) -> list[int]:
        moments = []
        for seconds in (0.0005, 0.1, 0.2, 0.3):
            await asyncio.sleep(seconds)
            moments.append(loop.now_ms)
        return moments

    assert virtual.run(main) == [1, 101, 301, 601]


def test_a_cancelled_timer_takes_no_time() -> None:
    """Nobody waits for what was called off, however much of it there is."""

    async def main(loop: VirtualLoop) -> int:
        for _ in range(5_000):
            loop.call_later(1000, print).cancel()
        await asyncio.sleep(0.001)
        return loop.now_ms

    assert virtual.run(main) == 1


def test_timers_that_were_called_off_are_forgotten_and_the_others_stay_in_order() -> None:
    """An agent moves its timer with every answer: what it called off must not fill the memory of a long run."""
    fired: list[int] = []

    async def main(loop: VirtualLoop) -> int:
        for number in range(50_000):
            timer = loop.at_ms(1_000_000 - number % 7, fired.append, number)
            if number % 500:
                timer.cancel()
        kept = len(loop._keys) + len(loop._waiting)
        await asyncio.sleep(2_000)
        return kept

    assert virtual.run(main) < 10_000
    assert fired == sorted(range(0, 50_000, 500), key=lambda number: (-(number % 7), number))


def test_a_deadlock_names_who_waits_and_where() -> None:
    """Two tasks that wait for each other end the run with their names and places."""

    async def wait_for(event: asyncio.Event) -> None:
        await event.wait()

    async def main(loop: VirtualLoop) -> None:
        one, two = asyncio.Event(), asyncio.Event()
        await asyncio.gather(
            loop.create_task(wait_for(one), name="first"), loop.create_task(wait_for(two), name="second")
        )

    with pytest.raises(Deadlock, match=r"first at .*wait.*; second at .*wait"):
        virtual.run(main)


def test_a_livelock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that never lets time pass ends the run."""
    monkeypatch.setattr(virtual, "MAX_STEPS_A_MOMENT", 1_000)

    async def main(loop: VirtualLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="1000 steps at 0 ms"):
        virtual.run(main)


def test_threads_are_refused() -> None:
    """What would leave the loop fails loudly."""

    async def main(loop: VirtualLoop) -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        virtual.run(main)


def test_what_a_group_starts_belongs_to_it() -> None:
    """Tasks of tasks are found with their group, those of others are not."""

    async def child() -> None:
        await asyncio.sleep(10)

    async def parent() -> None:
        await asyncio.gather(child(), child())

    async def main(loop: VirtualLoop) -> tuple[int, int]:
        mine, others = Group("mine"), Group("others")
        loop.start(parent(), mine)
        loop.start(child(), others)
        await asyncio.sleep(1)
        return len(mine.tasks), len(others.tasks)

    assert virtual.run(main) == (3, 1)


def test_a_trap_comes_before_each_step_of_its_group_only() -> None:
    """The hook of crash points sees every step of the watched group and no other."""
    seen: list[int] = []

    async def steps(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def main(loop: VirtualLoop) -> None:
        mine = Group("mine")
        loop.watched, loop.trap = mine, lambda: seen.append(loop.steps)
        loop.start(steps(10), mine)
        await steps(100)

    virtual.run(main)
    assert 10 <= len(seen) <= 12
