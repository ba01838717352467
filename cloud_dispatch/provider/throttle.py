"""A wrapper that keeps to a provider's call limits. Owns a token bucket a call, and what it learns from being refused.

Each call has its own bucket, as clouds count them. A refusal halves its rate and stops it for as long as the provider
says; the rate comes back linearly. Who would wait too long, or stand in too long a queue, gets RateLimited with the
time after which it makes sense, and the provider is not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cloud_dispatch.provider.errors import RateLimited
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import LaunchResult, Provider

#: How long a call may wait for its turn: well below the deadlines of those who call.
MAX_WAIT_MS = 20_000
MAX_WAITING = 1_000
#: From nothing to the full rate, when nobody refuses.
RECOVERY_MS = 60_000
#: A bucket never gets slower than this part of its full rate.
SLOWEST = 64
#: Where a refusal does not say how long to wait.
PAUSE_MS = 1_000


class Bucket:
    """Turns at `per_s` a second, `burst` at once after a rest. Pure arithmetic: milliseconds go in, waits come out.

    A turn that was given is valid while `epoch` stays; a refusal takes back those that have not come yet.
    """

    def __init__(self, per_s: int, burst: int) -> None:
        self.epoch = 0
        self._full = per_s * 1000  # calls in a thousand seconds, so that a slow bucket is a whole number too
        self._burst = burst
        self._cut_to = self._full
        self._cut_ms: int | None = None
        self._next_us = 0  # when the next turn would come if there were no bursts

    def rate(self, now_ms: int) -> int:
        """Calls in a thousand seconds, now."""
        if self._cut_ms is None:
            return self._full
        return min(self._full, self._cut_to + self._full * max(now_ms - self._cut_ms, 0) // RECOVERY_MS)

    def wait_ms(self, now_ms: int) -> int:
        """How long somebody who came now would wait."""
        return max(-(-(self._next_us - (self._burst - 1) * self._interval_us(now_ms)) // 1000) - now_ms, 0)

    def take(self, now_ms: int) -> int:
        """Take the next turn; how long it is until then."""
        wait = self.wait_ms(now_ms)
        self._next_us = max(self._next_us, now_ms * 1000) + self._interval_us(now_ms)
        return wait

    def refused(self, sent_ms: int, now_ms: int, retry_after_ms: int) -> None:
        """A call that was sent at `sent_ms` was refused. Of many that were under way together, the first one halves."""
        if self._cut_ms is None or sent_ms > self._cut_ms:
            self._cut_to = max(self.rate(now_ms) // 2, self._full // SLOWEST, 1)
            self._cut_ms = now_ms
        self.epoch += 1
        again_us = (now_ms + (retry_after_ms or PAUSE_MS)) * 1000
        self._next_us = again_us + (self._burst - 1) * self._interval_us(now_ms)

    def _interval_us(self, now_ms: int) -> int:
        return 1_000_000_000 // self.rate(now_ms)


class Throttled(Wrapper):
    """`driver` at the pace that its traits state for each kind of call until it says otherwise.

    `monotonic` gives milliseconds. Calls of one kind go in the order in which they came; those that a refusal sends
    back to wait stand in line anew. Proofs of identity are looked at without a turn: that asks the cloud for next to
    nothing, and a stranger who brings many must not keep VMs waiting.
    """

    def __init__(
        self,
        driver: Provider,
        monotonic: Callable[[], int],
        *,
        max_wait_ms: int = MAX_WAIT_MS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        super().__init__(driver)
        self._monotonic = monotonic
        self._max_wait_ms = max_wait_ms
        self._max_waiting = max_waiting
        self._waiting = dict.fromkeys(Call, 0)
        paces = {name: self.traits.pace(name) for name in Call}
        self._buckets = {name: Bucket(pace.per_s, pace.burst) for name, pace in paces.items()}

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.IDENTIFY:
            return await self.pass_on(name, *args)
        await self._turn(name)
        sent = self._monotonic()
        try:
            answer = await self.pass_on(name, *args)
        except RateLimited as refusal:
            self._refused(name, sent, refusal)
            raise
        if isinstance(answer, LaunchResult) and isinstance(answer.shortfall, RateLimited):
            # Some of a launch's slots were refused, at once or once it was accepted: it is launches that were too many.
            self._refused(Call.LAUNCH, sent, answer.shortfall)
        return answer

    def _refused(self, name: Call, sent: int, refusal: RateLimited) -> None:
        self._buckets[name].refused(sent, self._monotonic(), refusal.retry_after_ms)

    async def _turn(self, name: Call) -> None:
        bucket = self._buckets[name]
        until = self._monotonic() + self._max_wait_ms
        epoch = -1
        while epoch != bucket.epoch:  # ends: every round waits for a turn that is before `until`
            now = self._monotonic()
            wait = bucket.wait_ms(now)
            if now + wait > until or (wait and self._waiting[name] >= self._max_waiting):
                raise RateLimited(
                    f"{name}: {self._waiting[name]} calls wait, the next turn is in {wait} ms",
                    code="throttled-here",
                    retry_after_ms=wait,
                )
            epoch = bucket.epoch
            bucket.take(now)
            if not wait:
                return
            self._waiting[name] += 1
            try:
                await asyncio.sleep(wait / 1000)
            finally:
                self._waiting[name] -= 1
