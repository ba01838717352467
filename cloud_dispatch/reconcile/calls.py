"""Provider calls under way. Owns that each runs beside the loop, once at a time for one purpose, and within a
bound for each provider."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)
MAX_AT_ONCE = 64


class Calls:
    """Background calls keyed by purpose: a second one under the same key is not started."""

    def __init__(self, limit: int = MAX_AT_ONCE) -> None:
        self._limit = limit
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def under_way(self, key: str) -> bool:
        return key in self._tasks

    def start(self, key: str, call: Coroutine[Any, Any, None], to: str) -> bool:
        """Run `call` beside the loop; False (and `call` is closed) when one under this key is still running. So many
        run at once as go `to` one provider: another's turns are not taken by those who wait for one that is down."""
        if key in self._tasks:
            call.close()
            return False
        task = asyncio.create_task(self._run(call, to), name=key)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done, call))
        return True

    async def _run(self, call: Coroutine[Any, Any, None], to: str) -> None:
        async with self._slots.setdefault(to, asyncio.Semaphore(self._limit)):
            await call

    def _ended(self, key: str, task: asyncio.Task[None], call: Coroutine[Any, Any, None]) -> None:
        self._tasks.pop(key, None)
        call.close()  # a call that was cancelled before it began is not left unawaited
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("call.crashed", key=key, error=repr(error), exc_info=error)

    async def settle(self) -> None:
        """Wait for everything that is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def cancel(self) -> None:
        """End everything that is under way; what was sent may still be carried out."""
        for task in list(self._tasks.values()):
            task.cancel()
        await self.settle()
