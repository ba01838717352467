"""Answers that are good for a while. Owns how long, and that many who ask at once cost one question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from cloud_dispatch.provider.errors import ProviderError, RateLimited, Transient

T = TypeVar("T")
#: After a question that failed, the old answer is given for so long before it is asked again.
_PAUSE_MS = 60_000


class Kept(Generic[T]):
    """What `ask` answered, for `good_ms`, which may depend on the answer. Where asking again fails for a passing reason
    the old answer stands, as old as it is: whoever needs to know its age keeps it in the answer. `now` gives
    milliseconds."""

    def __init__(
        self, ask: Callable[[], Awaitable[T]], good_ms: int | Callable[[T], int], now: Callable[[], int]
    ) -> None:
        self._ask = ask
        self._good_ms = good_ms
        self._now = now
        self._lock = asyncio.Lock()
        self._known: tuple[T] | None = None
        self._until_ms = 0

    async def get(self) -> T:
        """The answer; raises what asking raised where there is none."""
        async with self._lock:
            if self._known is not None and self._now() < self._until_ms:
                return self._known[0]
            try:
                answer = await self._ask()
                self._known = (answer,)
                self._until_ms = self._now() + (
                    self._good_ms if isinstance(self._good_ms, int) else self._good_ms(answer)
                )
            except (Transient, RateLimited):
                if self._known is None:
                    raise
                self._until_ms = self._now() + _PAUSE_MS
            except ProviderError:
                self._known = None
                raise
            return self._known[0]
