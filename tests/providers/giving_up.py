"""A call whose caller gives up while the SDK is still at its credentials."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from cloud_dispatch.provider.blocking import BlockingCalls


class Slow:
    """What stands in the way of a request: it takes until it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, *_: Any, **__: Any) -> None:
        self.begun.set()
        self.go.wait(30)


async def given_up(asking: Coroutine[Any, Any, Any], slow: Slow, threads: BlockingCalls) -> None:
    """Ask, give up once the thread is held by `slow`, let it go on, and wait until it has ended."""
    call = asyncio.create_task(asking)
    while not slow.begun.is_set():
        assert not call.done()
        await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    slow.go.set()
    while threads._under_way:
        await asyncio.sleep(0.01)
