"""The clocks of the fakes: the machine's, and one that a test sets."""

from __future__ import annotations

import time
from typing import Protocol

EPOCH_MS = 1_790_000_000_000


class Clock(Protocol):
    """Epoch milliseconds."""

    def now(self) -> int: ...


class RealClock:
    """The machine's."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class SetClock:
    """Stands still until it is moved."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._now_ms = now_ms

    def now(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move on; never back."""
        if ms < 0:
            raise ValueError("a clock does not go back")
        self._now_ms += ms
