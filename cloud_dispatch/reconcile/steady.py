"""Whether the clock may be believed where nothing can be taken back. Owns how far it may move, and for how long it has
to stay; must not know what hangs on it.

A clock that somebody sets, or that comes from a wrong server, is put right sooner or later. Until then it is told by
the time that has passed since: that of a machine which slept looks the same, and does no harm by waiting either.
"""

from __future__ import annotations

import structlog

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.ports.clock import Clock, ahead_ms

log = structlog.get_logger(__name__)
#: By so much it may move from look to look.
MOST_MOVED_MS = 3_600_000
#: Wherever it has been for so long, give or take as much, it is right: one of a machine that sleeps every night moves
#: every night, and is never for a day where it was.
SETTLED_MS = 86_400_000


class Steady:
    """The clock that it is made with is believed from then on: it is not known how it was before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._believed_ms = self._seen_ms = ahead_ms(clock)
        self._about_ms, self._since_ms = self._believed_ms, clock.monotonic()  # where it stays, and since when

    def look(self) -> bool:
        """Whether it has gone on as time has, or has done so again for long enough."""
        ahead, monotonic = ahead_ms(self._clock), self._clock.monotonic()
        if abs(ahead - self._seen_ms) > MOST_MOVED_MS:
            moved = format_duration(abs(ahead - self._seen_ms) // 1000 * 1000)
            log.warning("clock.moved", by=moved, back=ahead < self._seen_ms)
        self._seen_ms = ahead
        if abs(ahead - self._about_ms) > SETTLED_MS:
            self._about_ms, self._since_ms = ahead, monotonic
        if abs(ahead - self._believed_ms) <= MOST_MOVED_MS or monotonic - self._since_ms >= SETTLED_MS:
            self._believed_ms = self._about_ms = ahead
            self._since_ms = monotonic
            return True
        return False
