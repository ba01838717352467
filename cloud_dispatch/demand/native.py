"""The native queue as a source of demand. Owns how the store's waiting shapes become demand; knows no single task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cloud_dispatch.planner.snapshot import DemandItem
from cloud_dispatch.ports.store import ShapeDemand

NAME = "queue"


class WaitingShapes(Protocol):
    """The part of the store that this source asks."""

    def waiting(self) -> Sequence[ShapeDemand]: ...


class NativeQueue:
    """Tasks that were submitted here. Costs in proportion to the number of shapes that wait, and of payers with a limit
    that wait for each."""

    name = NAME

    def __init__(self, store: WaitingShapes) -> None:
        self._store = store

    def demand(self, now: int) -> tuple[DemandItem, ...]:
        """One item a shape, and one more for each payer with a limit; `now` changes nothing, the queue is as it is."""
        return tuple(item_of(shape) for shape in self._store.waiting() if shape.count > 0)


def item_of(waiting: ShapeDemand) -> DemandItem:
    """`waiting` as demand. Its expected runtime is the mean of the known ones (at least 1 ms), and unknown (0) where
    fewer than half of the tasks say theirs: a few that do must not speak for a queue that does not."""
    known = sum(tasks for _, tasks in waiting.lengths)
    representative = known > 0 and known * 2 >= waiting.count
    lengths = tuple((whole_ms // tasks, tasks) for whole_ms, tasks in waiting.lengths)
    return DemandItem(
        shape=waiting.shape,
        count=waiting.count,
        expected_ms=max(sum(whole_ms for whole_ms, _ in waiting.lengths) // known, 1) if representative else 0,
        lengths=lengths if representative and len(lengths) > 1 else (),
        priority=waiting.priority,
        oldest_ms=waiting.oldest_ms,
        head_expected_ms=waiting.head_expected_ms,
        source=NAME,
        payer=waiting.payer,
        withheld=waiting.withheld,
        front=waiting.front,
        refused=waiting.refused,
    )
