"""Clocks on the virtual loop. Owns where virtual time lies on the calendar."""

from __future__ import annotations

from typing import Protocol

#: The moment at which a run starts unless its scenario says how much later: 2026-01-01 00:00 UTC.
EPOCH_MS = 1_767_225_600_000


class _Time(Protocol):
    @property
    def now_ms(self) -> int: ...


class VirtualClock:
    """`ports.clock.Clock`. `begins_ms`: how long after `EPOCH_MS` the run starts. `step_ms` is by how much the wall
    clock is off: a fault may set it."""

    def __init__(self, loop: _Time, begins_ms: int = 0) -> None:
        self._loop = loop
        self._epoch_ms = EPOCH_MS + begins_ms
        self.step_ms = 0

    def now(self) -> int:
        return self._epoch_ms + self._loop.now_ms + self.step_ms

    def monotonic(self) -> int:
        return self._loop.now_ms
