"""What an instance can finish of what waits, as it will not live for ever.

A task that waits with others of its shape may take hours and the next one minutes: who is old passes over the first and
is given the second, so that neither is begun where it is cut off, nor waits behind what is not begun there.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import Key

#: What was just launched is there for what it was launched for, whatever comes of that; it asks for nothing yet.
_BOOTING = frozenset({InstanceState.INTENDED, InstanceState.LAUNCHING, InstanceState.BOOTING})


def remaining_of(memory: Memory, instance: Instance, now: int, *, count: int = 1) -> Remaining | None:
    """What is left of its life, where that may be too little for some `count` tasks of what waits, one after another;
    else None."""
    remaining = memory.payers.terms.remaining(instance, now)
    return None if remaining is None or memory.longest_ms * count <= remaining.left_ms else remaining


def next_for(memory: Memory, number: int, remaining: Remaining | None) -> Key | None:
    """The key of the next task of a line for an instance of which so much is left, as `ReadyQueue.head` has it."""
    head = memory.queue.head(number)
    if head is None or remaining is None:
        return head
    if not remaining.is_too_short_for(memory.likely_ms(memory.queue.lots[head[1]])):
        return head
    for step in memory.queue.front(number):
        if not remaining.is_too_short_for(memory.likely_ms(step.lot)):
            return step.key
    return None


class _Front(NamedTuple):
    """How long the first tasks of a line are likely to take: the shortest (0: nobody knows) and the longest."""

    shortest_ms: int
    longest_ms: int
    number: int
    line: tuple[Shape, Payer]

    def is_too_long_for(self, remaining: Remaining) -> bool:
        """Whether `next_for` would find none: of those that it would look at each is in between."""
        return remaining.left_ms < self.shortest_ms and self.longest_ms <= remaining.whole_ms


def declined(memory: Memory, now: int) -> dict[InstanceId, tuple[tuple[Shape, Payer], ...]]:
    """By instance that serves, the lines of which it is given nothing any more, though its machine could run it. Equal
    answers are one object. Who is younger than anything that waits is long costs a comparison, another one two
    searches among the lines."""
    terms = memory.payers.terms
    if not terms.lifetimes or not len(memory.queue):
        return {}
    late_ms = now + memory.longest_ms + terms.leave_ms
    # Of whom was intended before, by pool, something may be too long.
    old_ms = {pool: late_ms - lifetime_ms for pool, lifetime_ms in terms.lifetimes.items()}
    old = [
        seat.instance
        for seat in memory.seats.values()
        if seat.instance.intended_ms < old_ms.get(seat.instance.pool, 0)
        or (seat.instance.ends_ms < late_ms and seat.instance.profile not in terms.movable)
    ]
    fronts = _fronts(memory) if old else ()
    if not fronts:
        return {}
    shortest, longest = [front.shortest_ms for front in fronts], sorted(front.longest_ms for front in fronts)
    answers: dict[tuple[str, int, int], tuple[tuple[Shape, Payer], ...]] = {}
    found: dict[InstanceId, tuple[tuple[Shape, Payer], ...]] = {}
    for instance in old:
        remaining = None if instance.state in _BOOTING else terms.remaining(instance, now)
        if remaining is None or remaining.left_ms >= shortest[-1]:
            continue
        first = bisect_right(shortest, remaining.left_ms)
        asked = (instance.machine.key, first, bisect_right(longest, remaining.whole_ms))
        lines = answers.get(asked)
        if lines is None:
            lines = answers[asked] = tuple(
                front.line
                for front in fronts[first:]
                if front.is_too_long_for(remaining) and not instance.machine.misfit(front.line[0])
            )
        if lines:
            found[instance.id] = lines
    return found


def _fronts(memory: Memory) -> list[_Front]:
    """Of the lines of which nothing is unknown, by their shortest."""
    queue, found = memory.queue, []
    for number, _ in queue.lines():
        head = queue.head(number)
        if head is None or not memory.likely_ms(queue.lots[head[1]]):
            continue
        steps = queue.front(number)
        known = [memory.likely_ms(step.lot) for step in steps]
        payer = steps[0].lot.payer if number < 0 else NOBODY
        if all(known):
            found.append(_Front(min(known), max(known), number, (memory.shapes[number], payer)))
    return sorted(found, key=itemgetter(0, 1, 2))
