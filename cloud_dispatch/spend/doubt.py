"""When nobody knows what was spent. Owns which windows count as spent then, and how often a doubt that lasts is noted.

A statestore that came back from a backup lacks what was spent since; one that took the place of another, or finds VMs
that another one made, never had it. Whatever budget there is may have been spent to its limit.
"""

from __future__ import annotations

from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.spend import clocks
from cloud_dispatch.spend.windows import Span

#: A doubt that lasts, since VMs that nobody counts go on billing, is noted anew so often, milliseconds.
AGAIN_MS = 600_000
#: For so long after the last note something may be billed that nobody remembers: what is seen until the next one would
#: be made, and a VM that has ended, to the end of its minimum.
_REACH_MS = AGAIN_MS + HOUR_MS + clocks.CLOCKS_MS


def reach(noted_ms: int) -> Span:
    """Windows that this touches count as spent, for a doubt that was noted at `noted_ms` (epoch milliseconds)."""
    return Span(noted_ms - clocks.CLOCKS_MS, noted_ms + _REACH_MS)


def is_due(noted_ms: int | None, now_ms: int) -> bool:
    """Whether a doubt that there is now has to be noted; `noted_ms` when it was for the last time. Also after a clock
    that was ahead then."""
    return noted_ms is None or not noted_ms <= now_ms < noted_ms + AGAIN_MS
