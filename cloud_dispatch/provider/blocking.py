"""Threads for a driver whose SDK blocks. Owns a bounded pool, which belongs to one driver and ends with it.

A driver with such an SDK lives in a process host, so that what these threads compute does not slow the dispatcher's
loop; the pool is what lets many of its calls wait for their cloud at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from cloud_dispatch.provider.errors import Transient

T = TypeVar("T")
U = TypeVar("U")
#: Set once nobody waits for the work of this thread any more.
_GIVEN_UP: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)


def still_wanted() -> None:
    """Transient in a thread whose caller has given up. An SDK may spend minutes on credentials before it sends
    anything: a driver asks this right before a request leaves, so that none does of which others believe by then that
    it was never made, and where it would wait for long. What is being sent already is in doubt, as ever."""
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise Transient("not sent: its caller has given up")


class BlockingCalls:
    """At most `threads` pieces of work at once; others wait in the order in which they came.

    Who gives up waiting takes back what has not begun; what has begun runs on to where it asks whether it is
    `still_wanted`, and its answer is lost.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._name = name
        self._counting = threading.Lock()
        self._under_way = 0
        self._closed = False
        self._then: Callable[[], object] = lambda: None

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """What `work(*args)` gives or raises; Transient once the pool was closed, and where it has no thread for it."""
        if self._closed:
            raise Transient(f"{self._name}: the driver was closed")
        with self._counting:
            self._under_way += 1
        given_up = threading.Event()
        try:
            submitted = self._pool.submit(_carried_out, given_up, work, *args)
        except RuntimeError as error:  # the machine can't start another thread
            self._ended(None)
            raise Transient(f"{self._name}: {error}") from None
        submitted.add_done_callback(self._ended)
        try:
            return await asyncio.wrap_future(submitted)
        finally:
            given_up.set()

    def close(self, then: Callable[[], object] = lambda: None) -> None:
        """Take nothing more, and do not wait for what is under way: the last of it calls `then`, which closes what it
        uses. Closed before, what is under way would open it again, and leave it so."""
        with self._counting:
            if self._closed:
                return
            self._closed, self._then = True, then
            idle = not self._under_way
        self._pool.shutdown(wait=False, cancel_futures=True)
        if idle:
            then()

    def _ended(self, _: object) -> None:
        with self._counting:
            self._under_way -= 1
            last = self._closed and not self._under_way
        if last:
            self._then()


def _carried_out(given_up: threading.Event, work: Callable[..., T], *args: Any) -> T:
    _GIVEN_UP.set(given_up)
    return work(*args)


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """What two answer, once both have ended: where one fails, nothing of the other goes on with what the next call
    finds changed (credentials, for one)."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other
