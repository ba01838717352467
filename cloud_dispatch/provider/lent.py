"""A wrapper around a driver that may be let go while it is at work. Owns that it is closed when its calls have ended: a
launch that is cut off would leave nobody who knows whether there is a VM."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Provider

#: The longest call, of a price service with many pages, takes no longer.
PATIENCE_S = 660.0


class Lent(Wrapper):
    """`driver`, whose `close` waits for the calls that are under way."""

    def __init__(self, driver: Provider) -> None:
        super().__init__(driver)
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(self, name: Call, *args: Any) -> Any:
        self._under_way += 1
        self._idle.clear()
        try:
            return await self.pass_on(name, *args)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def close(self) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._idle.wait()
        finally:
            await super().close()
