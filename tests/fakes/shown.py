"""Values of the fakes that change, and from when reads show it: eventual consistency, and what a stale read shows."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
#: How long what is over is kept for stale reads.
HORIZON_MS = 600_000


class Shown(Generic[T]):
    """A value that changes, with the moments from which reads show each change."""

    __slots__ = ("_changes",)

    def __init__(self, value: T, from_ms: int) -> None:
        self._changes = [(from_ms, value)]

    @property
    def true(self) -> T:
        """What it really is."""
        return self._changes[-1][1]

    def change(self, value: T, from_ms: int) -> None:
        """From now on it is this; reads show it from `from_ms`, and never before what came earlier."""
        latest = self._changes[-1][0]
        over = from_ms - HORIZON_MS
        while len(self._changes) > 1 and self._changes[1][0] < over:
            del self._changes[0]
        self._changes.append((max(from_ms, latest), value))

    def at(self, ms: int) -> T | None:
        """What a read shows that looks at this moment; None before there was anything."""
        for from_ms, value in reversed(self._changes):
            if from_ms <= ms:
                return value
        return None
