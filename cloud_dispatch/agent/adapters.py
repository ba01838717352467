"""The real clock, chance, names, threads and console of the VM. The only module of the agent that touches them."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Generator, List, Optional, Tuple, TypeVar  # noqa: UP035

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
#: Work that yields each pause that it has to make, in seconds, and gives what it comes to.
Steps = Generator[float, None, T]

_THREADS = 4
#: So many transfers of a VM go on at once: more of them would only share what its network gives, and each be too slow.
_MOST_TRANSFERS = 16
#: Where the table of processes is full a thread is asked for so often, with pauses of so many seconds: five minutes.
_START_TRIES = 300
_START_PAUSE_S = 1.0
#: Transfers that begin at once, and how long each counts as one that has only begun.
_TRANSFERS = 4
_TURN_S = 10.0


def say(text: str) -> None:
    """A line for the VM's console."""
    sys.stderr.write("cloud-dispatch agent: %s\n" % text)
    sys.stderr.flush()


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


def has_amd_gpus(devices: str = "/dev") -> bool:
    """Whether the VM's GPUs are AMD's, by the files of drivers below `devices`. Asked anew for each task: a driver may
    be loaded late."""
    return os.path.exists(os.path.join(devices, "kfd")) and not os.path.exists(os.path.join(devices, "nvidiactl"))


class Threads:
    """A bounded number of threads for blocking work on files. All are there from the beginning: a task may have filled
    the table of processes when one is needed, and an agent that has none ends everybody's tasks."""

    def __init__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor  # not at the top: the supervisor stays small

        self._pool = ThreadPoolExecutor(_THREADS, "files")
        meeting = threading.Barrier(_THREADS)  # which none leaves to serve another as long as one is missing
        try:
            for _ in range(_THREADS):
                self._pool.submit(meeting.wait)
        except RuntimeError:
            meeting.abort()  # else those that did start would wait for ever
            raise

    def run(self, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run `work(*args)` beside the event loop."""
        import asyncio

        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Take no more work; what runs is not waited for."""
        self._pool.shutdown(wait=False)


class Carriers:
    """Threads for work that waits for other machines. At most so many begin at once: what takes longer than its turn
    leaves its place to the next and goes on beside it, with so `many` under way. What was given up counts no
    more: nobody waits for it. Nor does what pauses; what goes on after a pause, since another machine was away, has no
    more than half of the places: such a one may take long to say nothing again."""

    def __init__(self, most: int = _TRANSFERS, turn_s: float = _TURN_S, many: int = _MOST_TRANSFERS) -> None:
        import asyncio

        self._free, self._under_way = asyncio.Semaphore(most), asyncio.Semaphore(many)
        self._again = asyncio.Semaphore(max(many // 2, 1))
        self._turn_s = turn_s

    async def carry(self, begin: Callable[[], Steps[T]]) -> T:
        """What the steps that `begin` gives come to or raise, each run as below."""
        import asyncio

        begun: List[Steps[T]] = []

        def step() -> Tuple[Optional[float], Any]:
            if not begun:
                begun.append(begin())
            try:
                return next(begun[0]), None
            except StopIteration as end:  # which a coroutine may not raise
                return None, end.value

        pause_s, value = await self.run(step)
        while pause_s is not None:
            await asyncio.sleep(pause_s)
            async with self._again:
                pause_s, value = await self.run(step)
        return value  # type: ignore[no-any-return]

    async def run(self, work: Callable[[], Any]) -> Any:
        """What `work` gives or raises, in a thread of its own; BlockingIOError where none can be had. Cancelled, it is
        given up: the thread comes to its end alone, and nothing waits for it, not even the end of the process."""
        import asyncio

        loop = asyncio.get_running_loop()
        async with self._under_way:
            await self._free.acquire()
            holding = contextlib.ExitStack()
            holding.callback(self._free.release)
            turn = loop.call_later(self._turn_s, holding.close)  # which has nothing to do the second time
            try:
                outcome: asyncio.Future[Callable[[], Any]] = loop.create_future()
                await _started(work, loop, outcome)
                told = await outcome
            finally:
                turn.cancel()
                holding.close()
            return told()


async def _started(
    work: Callable[[], Any], loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Callable[[], Any]]
) -> None:
    import asyncio

    for _ in range(_START_TRIES):
        with contextlib.suppress(RuntimeError):  # which is all that Python says of the kernel's refusal
            threading.Thread(target=_carry, args=(work, loop, outcome), name="transfer", daemon=True).start()
            return
        await asyncio.sleep(_START_PAUSE_S)
    raise BlockingIOError(errno.EAGAIN, "there was no room for a thread among the processes")


def _carry(
    work: Callable[[], Any], loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Callable[[], Any]]
) -> None:
    failure: Optional[BaseException] = None
    value = None
    try:
        value = work()
    except BaseException as error:
        failure = error

    def told() -> Any:
        if failure is not None:
            raise failure
        return value

    def tell() -> None:
        if not outcome.done():
            outcome.set_result(told)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(tell)
