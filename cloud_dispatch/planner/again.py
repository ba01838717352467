"""Planning again on what a stored plan was made from. Owns what differs; pure.

What was seen is in the record whole. So any version, anywhere, can say whether it would decide the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cloud_dispatch.planner.plan import Action, Plan, Shortfall, Unsatisfiable, Waiting
from cloud_dispatch.planner.planner import plan
from cloud_dispatch.planner.replay import Record, decode_plan, decode_snapshot
from cloud_dispatch.planner.snapshot import Snapshot

T = TypeVar("T", Action, Waiting | Unsatisfiable | Shortfall)


@dataclass(frozen=True)
class Replay:
    """What was seen, what was `decided` on it then, and what is decided on it now: `again`."""

    snapshot: Snapshot
    decided: Plan
    again: Plan

    @property
    def same(self) -> bool:
        return self.decided == self.again


@dataclass(frozen=True)
class Changes:
    """What one plan has that another has not. Where both lists of all are empty, the order alone differs."""

    actions: tuple[Action, ...]
    answers: tuple[Waiting | Unsatisfiable | Shortfall, ...]

    def __bool__(self) -> bool:
        return bool(self.actions or self.answers)


def again(record: Record) -> Replay:
    """Plan once more on what was seen. InvalidInput where that, or the plan, can't be read."""
    snapshot = decode_snapshot(bytes(record.snapshot))
    return Replay(snapshot, decode_plan(bytes(record.plan)), plan(snapshot))


def only_in(one: Plan, other: Plan) -> Changes:
    """What `one` has and `other` has not, in its order."""
    return Changes(
        tuple(_more(one.actions, other.actions)),
        tuple(_more(_answers(one), _answers(other))),
    )


def _answers(of: Plan) -> Sequence[Waiting | Unsatisfiable | Shortfall]:
    return (*of.waiting, *of.unsatisfiable, *of.shortfalls)


def _more(ones: Sequence[T], others: Sequence[T]) -> Iterable[T]:
    """Each as many times as `others` lack it; equal ones have equal texts."""
    known = Counter(map(repr, others))
    for one in ones:
        key = repr(one)
        if known[key]:
            known[key] -= 1
        else:
            yield one
