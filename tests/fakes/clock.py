"""The clocks of the fakes: the machine's, and one that a test sets."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Epoch milliseconds."""

    def now(self) -> int: ...


class RealClock:
    """The machine's."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class SetClock:
    """Stands still until it is moved. It starts at the machine's time: SDKs compare expiries with that."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms or RealClock().now()

    def now(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move on; never back."""
        if ms < 0:
            raise ValueError("a clock does not go back")
        self._now_ms += ms
