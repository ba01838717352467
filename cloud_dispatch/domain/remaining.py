"""What is left of an instance's life. Owns whether work is begun there that could not be finished: it would be cut off
at the end, and begun anew elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple


class Remaining(NamedTuple):
    """How long work may take that begins now, milliseconds, and how long it might on another instance like this one,
    from when that has booted."""

    left_ms: int
    whole_ms: int

    def is_too_short_for(self, work_ms: int) -> bool:
        """Whether what is expected to take `work_ms` (0: unknown) is better begun elsewhere. What takes longer than a
        whole life is tried all the same: nothing else could run it either, and an expectation may be wrong."""
        return work_ms > 0 and self.left_ms < work_ms <= self.whole_ms

    def after(self, work_ms: int) -> Remaining:
        """What is left when so much has been done there."""
        return Remaining(self.left_ms - work_ms, self.whole_ms)
