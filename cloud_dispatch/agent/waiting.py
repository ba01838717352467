"""Waiting for a bounded time. Owns what asyncio of before 3.12 does not give: a wait that always hears of its end."""

from __future__ import annotations

import asyncio
from typing import Awaitable, TypeVar  # noqa: UP035

T = TypeVar("T")


async def within(seconds: float, what: Awaitable[T]) -> T:
    """What `what` gives; asyncio.TimeoutError, and `what` cancelled, where that takes longer than `seconds`.

    Unlike `asyncio.wait_for` it is always over when it is cancelled: before Python 3.12 that one swallows a
    cancellation that comes in the moment in which `what` ends, so that who gave up goes on for ever. What `what` has
    given by then is lost with it.
    """
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # of which whoever was cancelled does not ask
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()
