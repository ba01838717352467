"""Amounts by window of one kind. Owns the sum of what many commitments book, each from its first window to its last.

A commitment books the same into all whole windows between its first and its last where windows are of one length: such
a run costs as much as two entries, however long it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping

from cloud_dispatch.spend.windows import Window, span_at

#: Windows of these kinds all have one length.
EVEN = frozenset({Window.HOUR, Window.DAY})


class Booked:
    """See the module. Windows are named by their start, epoch milliseconds."""

    __slots__ = ("_ends", "_single", "_steps", "_sums", "window")

    def __init__(self, window: Window) -> None:
        self.window = window
        self._single: defaultdict[int, int] = defaultdict(int)
        self._steps: defaultdict[int, int] = defaultdict(int)  # by how much the sum of all runs changes at a window
        self._sums: list[int] = []  # of the steps, in order of `_ends`; empty: to be worked out
        self._ends: list[int] = []

    def merge(self, single: Mapping[int, int], steps: Mapping[int, int]) -> None:
        """Amounts in single windows, and by how much that of every window changes from one on. What comes to nothing
        is not kept: of claims that come and go for a year there would be every window, to be gone through each time."""
        _add(self._single, single)
        if steps:
            _add(self._steps, steps)
            self._sums.clear()

    def at(self, start_ms: int) -> int:
        """What is booked in the window."""
        single = self._single.get(start_ms, 0)
        if not self._steps:
            return single
        if not self._sums:
            self._ends = sorted(self._steps)
            total = 0
            for moment in self._ends:
                total += self._steps[moment]
                self._sums.append(total)
        before = bisect_right(self._ends, start_ms)
        return single + (self._sums[before - 1] if before else 0)

    def turning_points(self, now_ms: int) -> Iterator[int]:
        """The present window and all later ones in which more may be booked than in the one before."""
        present = span_at(self.window, now_ms).start_ms
        yield from sorted({present, *self._single, *(step for step, by in self._steps.items() if by > 0)})


def _add(own: defaultdict[int, int], more: Mapping[int, int]) -> None:
    for start_ms, amount in more.items():
        own[start_ms] += amount
        if not own[start_ms]:
            del own[start_ms]
