"""The dispatcher's clock on the virtual loop. Owns where virtual time lies on the calendar."""

from __future__ import annotations

from typing import Protocol

#: The moment at which every run starts: 2026-01-01 00:00 UTC.
EPOCH_MS = 1_767_225_600_000


class _Time(Protocol):
    @property
    def now_ms(self) -> int: ...


class VirtualClock:
    """`ports.clock.Clock`. `step_ms` is by how much the wall clock is off: a fault may set it."""

    def __init__(self, loop: _Time) -> None:
        self._loop = loop
        self.step_ms = 0

    def now(self) -> int:
        return EPOCH_MS + self._loop.now_ms + self.step_ms

    def monotonic(self) -> int:
        return self._loop.now_ms
