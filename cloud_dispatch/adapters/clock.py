"""The system's clocks behind `ports.clock`."""

from __future__ import annotations

import time


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000_000
