"""The way of a call to the cloud and back. Owns delay, throttling and the faults of calls; what a call does is given.

A request that was sent arrives, whatever becomes of the caller: a cancelled call, or a dispatcher that died, takes
nothing back. So arrival and answer are timers of the loop, in a context of nobody's, and the caller only waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVar

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider import errors
from cloud_dispatch.simulation.clouds.faults import Fault, FaultBook, FaultKind
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Bucket
from cloud_dispatch.simulation.ports import SimClock, Stream, Streams

T = TypeVar("T")
_MICRO = 1_000_000
#: (type, zone, market) that a call is about, for the scope of faults.
Scope = tuple[str, str, Market | None]
ANYWHERE: Scope = ("", "", None)


class TokenBucket:
    """`burst` calls at once, then `per_second`; integer arithmetic in millionths of a call."""

    def __init__(self, bucket: Bucket, now: int) -> None:
        self._most = self._level = bucket.burst * _MICRO
        self._per_ms = round(bucket.per_second * _MICRO / 1000)
        self._at_ms = now

    def take(self, now: int) -> bool:
        """Whether one more call is admitted now."""
        self._level = min(self._level + max(now - self._at_ms, 0) * self._per_ms, self._most)
        self._at_ms = now
        if self._level < _MICRO:
            return False
        self._level -= _MICRO
        return True


class Gate:
    """All calls of one account, of whichever driver."""

    def __init__(self, clock: SimClock, streams: Streams, settings: AccountSettings, book: FaultBook) -> None:
        self._clock, self._streams, self._settings, self._book = clock, streams, settings, book
        self._buckets = {bucket.operation: TokenBucket(bucket, clock.now()) for bucket in settings.buckets}
        self._latency: dict[str, Stream] = {}
        #: Calls that arrived, by operation.
        self.arrived: dict[str, int] = {}

    def send(
        self, operation: str, work: Callable[[], T], *, scope: Scope = ANYWHERE, changes: bool = True
    ) -> asyncio.Future[T]:
        """Send the request: `work` runs in the cloud on arrival, the future gets what it returns or raises.

        `changes` is False for reads: they have one delay instead of two, and are never in doubt.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        way = self._delay(operation)
        loop.call_later(
            way / 1000, self._arrive, loop, answer, operation, work, scope, changes, context=Context()
        )  # fmt: skip
        return answer

    def _delay(self, operation: str) -> int:
        stream = self._latency.get(operation)
        if stream is None:
            stream = self._latency[operation] = self._streams.stream("latency", self._settings.name, operation)
        return self._settings.latency.draw(stream)

    def _arrive(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], operation: str, work: Callable[[], T],
        scope: Scope, changes: bool,
    ) -> None:  # fmt: skip
        now = self._clock.now()
        self.arrived[operation] = self.arrived.get(operation, 0) + 1
        way_back = self._delay(operation) if changes else 0
        refusal = self._refusal(operation, now, scope)
        if refusal is not None:
            self._reply(loop, answer, way_back, None, refusal)
            return
        value: T | None = None
        error: errors.ProviderError | None = None
        try:
            value = work()
        except errors.ProviderError as raised:
            error = raised
        except Exception as bug:
            _settle(answer, None, bug)
            return
        if self._struck(FaultKind.NO_ANSWER, operation, now, scope):
            return
        if self._struck(FaultKind.LOST_ANSWER, operation, now, scope):
            lost = f"the connection broke before {operation} was answered"
            error = errors.InDoubt(lost, code="ConnectionReset") if changes else errors.Transient(lost)
        slow = self._struck(FaultKind.SLOW, operation, now, scope)
        self._reply(loop, answer, way_back + (slow.amount if slow else 0), value, error)

    def _refusal(self, operation: str, now: int, scope: Scope) -> errors.ProviderError | None:
        bucket = self._buckets.get(operation)
        if bucket is not None and not bucket.take(now):
            return errors.RateLimited(
                f"too many {operation} calls", code="TooManyRequests", retry_after_ms=self._settings.retry_after_ms
            )
        fault = self._struck(FaultKind.ERROR, operation, now, scope)
        return None if fault is None else told(fault, f"{operation} refused")

    def _struck(self, kind: FaultKind, operation: str, now: int, scope: Scope) -> Fault | None:
        return self._book.take(kind, now, operation, *scope)

    def _reply(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], way_back: int, value: T | None,
        error: errors.ProviderError | None,
    ) -> None:  # fmt: skip
        if way_back:
            loop.call_later(way_back / 1000, _settle, answer, value, error, context=Context())
        else:
            _settle(answer, value, error)


def told(fault: Fault, message: str) -> errors.ProviderError:
    """The error that a fault names, a class of `provider.errors`."""
    kind = getattr(errors, fault.error)
    market = fault.market or ""
    error: errors.ProviderError = kind(
        f"{message}: {fault.code or fault.error}",
        code=fault.code,
        scope=errors.Scope(type=fault.type, zone=fault.zone, market=market),
        retry_after_ms=fault.retry_after_ms,
    )
    return error


def _settle(answer: asyncio.Future[T], value: T | None, error: Exception | None) -> None:
    if answer.done():
        return  # the caller has gone
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(value)  # type: ignore[arg-type]  # None only where T is None
