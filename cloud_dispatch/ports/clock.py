"""Time. Owns the one way in which the core learns it; waiting is `asyncio.sleep` on the loop that bootstrap chose."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic(self) -> int:
        """Milliseconds on a clock that never steps back; only differences mean anything."""
