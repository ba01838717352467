"""Launches that a provider accepted before it carried them out. Owns asking until each has an answer, within a bound.

Volatile: after a restart the slots are in doubt, and found or proved absent like those of any launch without an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import LaunchResult, Operation
from cloud_dispatch.reconcile.context import Context

log = structlog.get_logger(__name__)
#: Questions to one provider at once.
AT_ONCE = 16
#: Never ask more often, whatever a driver says.
SHORTEST_POLL_MS = 100

#: Told what became of the operation's slots; None: nobody will ask any more.
Answered = Callable[[Operation, LaunchResult | None], Awaitable[None]]


@dataclass
class _Followed:
    profile: ProfileName
    operation: Operation
    answered: Answered
    at_ms: int
    until_ms: int


class Operations:
    """Each is asked for at its driver's pace, all of a profile in one call beside the loop. Monotonic milliseconds."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._followed: list[_Followed] = []

    def follow(self, profile: ProfileName, operation: Operation, answered: Answered, within_ms: int) -> None:
        """Have `answered` told, for at most `within_ms`."""
        now = self._c.clock.monotonic()
        self._followed.append(_Followed(profile, operation, answered, now + self._pace(profile), now + within_ms))

    def ask(self) -> None:
        """Start every question that is due. Of a profile that has left nothing is followed: nothing of it lives."""
        self._followed = [item for item in self._followed if item.profile in self._c.settings.providers]
        now = self._c.clock.monotonic()
        for profile in {item.profile: None for item in self._followed if item.at_ms <= now}:
            self._c.calls.start(f"operations:{profile}", self._ask_all(profile, now), profile)

    def next_due_ms(self) -> int | None:
        """Milliseconds until the next question, None when nothing is pending."""
        if not self._followed:
            return None
        return max(min(item.at_ms for item in self._followed) - self._c.clock.monotonic(), 0)

    def _pace(self, profile: ProfileName) -> int:
        return max(self._c.settings.providers[profile].traits.operation_poll_ms, SHORTEST_POLL_MS)

    async def _ask_all(self, profile: ProfileName, now: int) -> None:
        due = [item for item in self._followed if item.profile == profile and item.at_ms <= now]
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._ask(item) for item in due[start : start + AT_ONCE]))

    async def _ask(self, item: _Followed) -> None:
        provider = self._c.settings.providers[item.profile]
        item.at_ms = self._c.clock.monotonic() + self._pace(item.profile)
        try:
            async with asyncio.timeout(self._c.settings.timing.call_timeout_ms / 1000):
                result = await provider.resume(item.operation)
        except (ProviderError, TimeoutError) as error:
            log.warning("operation.not_answered", batch=item.operation.batch, error=repr(error))
            result = LaunchResult((), pending=(item.operation,))
        now = self._c.clock.monotonic()
        if result.pending == (item.operation,) and now < item.until_ms:
            return
        self._followed.remove(item)
        if now >= item.until_ms and result.pending:
            await item.answered(item.operation, None)
        else:
            await item.answered(item.operation, result)
