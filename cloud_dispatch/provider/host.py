"""Where a driver runs. Owns the choice, and two of the hosts: inline on the caller's loop, and in a thread of its own.

A driver may block (an SDK parsing a page of a thousand VMs, a pass over /proc) and must not stall the dispatcher's loop
by it. A host is a Provider itself: callers do not see where the driver lives. Knows the SPI only.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from cloud_dispatch.provider.errors import Transient
from cloud_dispatch.provider.funnel import Call, Funnel
from cloud_dispatch.provider.process_host import ProcessHost
from cloud_dispatch.provider.registry import LoadedPlugin
from cloud_dispatch.provider.spi import Host, Plugin, ProfileContext, Provider

_T = TypeVar("_T")
#: How long a driver may take to be made, and to let go of its connections.
_CREATE_S = 60.0
_CLOSE_S = 5.0
_JOIN_S = 0.5


def hosted(plugin: LoadedPlugin, context: ProfileContext) -> Provider:
    """A driver of `plugin` where it wants to run. Unavailable, with what to install, where its SDK is missing."""
    match plugin.host:
        case Host.INLINE:
            return inline(plugin, context)
        case Host.THREAD:
            return ThreadHost(plugin, context)
        case Host.PROCESS:
            try:
                return ProcessHost(plugin.target, context)
            except ImportError as error:
                raise plugin.missing(error) from error


def inline(plugin: Plugin, context: ProfileContext) -> Provider:
    """A driver on the caller's own loop: for simulation, tests, and drivers that never block."""
    return plugin.create(context)


class ThreadHost(Funnel):
    """A driver whose every call runs on an event loop in one thread of its own.

    A call that is cancelled here is cancelled there, at its next await; one that blocks runs on, alone. The thread
    can't keep the process alive.
    """

    def __init__(self, plugin: Plugin, context: ProfileContext) -> None:
        """Makes the driver in its thread; raises what its making raises."""
        self._name = f"provider-{context.profile}"
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
        self._thread.start()
        try:
            self._driver = self._submit(_make(plugin, context)).result(_CREATE_S)
        except BaseException:
            self._stop()
            raise
        self.traits = self._driver.traits

    async def close(self) -> None:
        """Let the driver close, for a bounded time, and end its thread; calls after it are Transient errors."""
        if self._closed:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._ask(self._driver.close)
        self._stop()

    async def call(self, name: Call, *args: Any) -> Any:
        return await self._ask(getattr(self._driver, name), *args)

    async def _ask(self, method: Callable[..., Coroutine[Any, Any, _T]], *args: Any) -> _T:
        if self._closed:
            raise Transient(f"{self._name}: the driver was closed")
        return await asyncio.wrap_future(self._submit(method(*args)))

    def _submit(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            if pending:
                self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.close()

    def _stop(self) -> None:
        """Ask the thread to end; one that is blocked ends when its call does, or with the process."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)


async def _make(plugin: Plugin, context: ProfileContext) -> Provider:
    return plugin.create(context)
