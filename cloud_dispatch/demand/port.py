"""The demand port: who wants capacity, and how they say so. Owns the protocol and what a source's silence means.

A source speaks of shapes of tasks (`DemandItem`) or of a number of instances of a pool (`TargetItem`, which also says
whether lowering it may drain). Sources know nothing of each other: shapes add up, of targets the highest counts. A
source that can't answer raises `Unavailable`; wrapped in `Expiring` its last answer holds for a while, then it is
taken to want nothing. Must not know any particular source.
"""

from __future__ import annotations

from typing import Protocol

from cloud_dispatch.domain.errors import Unavailable
from cloud_dispatch.planner.snapshot import DemandItem, TargetItem

Wanted = DemandItem | TargetItem


class DemandSource(Protocol):
    @property
    def name(self) -> str:
        """Short and stable; unique among the sources of a dispatcher."""

    def demand(self, now: int) -> tuple[Wanted, ...]:
        """All that the source wants at `now` (ms), from memory: it is asked in every pass. `Unavailable` when it can't
        say; an empty answer means that it wants nothing."""


class Expiring:
    """A source whose last answer holds for `ttl_ms` after it fell silent, and then expires.

    Meant for sources outside this process: one that is down for a moment must not have its instances drained, one that
    is down for good must not keep them for ever, and neither may stop the other sources from being served.
    """

    def __init__(self, source: DemandSource, ttl_ms: int) -> None:
        if ttl_ms < 0:
            raise ValueError(f"ttl_ms must not be negative, got {ttl_ms}")
        self._source = source
        self._ttl_ms = ttl_ms
        self._last: tuple[Wanted, ...] = ()
        self._heard_ms: int | None = None
        #: Why the source is silent, "" while it answers.
        self.silence = ""

    @property
    def name(self) -> str:
        return self._source.name

    def demand(self, now: int) -> tuple[Wanted, ...]:
        """The source's answer, or its last one while that is at most `ttl_ms` old; never raises `Unavailable`."""
        try:
            self._last = self._source.demand(now)
        except Unavailable as error:
            self.silence = str(error) or type(error).__name__
            if self._heard_ms is None or now - self._heard_ms > self._ttl_ms:
                self._last = ()
        else:
            self._heard_ms = now
            self.silence = ""
        return self._last
