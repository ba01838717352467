"""What an instance can finish of what waits, as it will not live for ever. Owns how far a line is looked into for it.

A task that waits with others of its shape may take hours and the next one minutes: who is old passes over the first and
is given the second, so that neither is begun where it is cut off, nor waits behind what is not begun there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.statestore.memory import Memory

#: So many tasks of a line are looked at; what is behind them waits for an instance that will live for longer.
MOST_PASSED = 64

Key = tuple[int, int]


def all_in_time(memory: Memory, number: int, remaining: Remaining | None) -> bool:
    """Whether nothing that waits in a line is too long; there is something."""
    return remaining is None or _longest_ms(memory, number) <= remaining.left_ms


def next_for(memory: Memory, number: int, remaining: Remaining | None) -> Key | None:
    """The key of the next task of a line for an instance of which so much is left, as `ReadyQueue.head` has it."""
    head = memory.queue.head(number)
    if head is None or remaining is None or all_in_time(memory, number, remaining):
        return head
    lots, typical_ms = memory.queue.lots, _typical_ms(memory, head)
    for key in islice(memory.queue.coming(number), MOST_PASSED):
        if not remaining.is_too_short_for(lots[key[1]].expected_ms or typical_ms):
            return key
    return None


class _Front(NamedTuple):
    """How long the first tasks of a line are expected to take: the shortest, the longest, and whether nobody knows it
    of one of them."""

    number: int
    payer: Payer
    shortest_ms: int
    longest_ms: int
    unknown: bool

    def is_too_long_for(self, remaining: Remaining) -> bool:
        """Whether `next_for` would find none; of those that it would look at none is in between."""
        beyond = self.longest_ms > remaining.whole_ms
        return not (self.unknown or beyond or self.shortest_ms <= remaining.left_ms)


def declined(memory: Memory, now: int) -> dict[InstanceId, tuple[tuple[Shape, Payer], ...]]:
    """By instance, the lines of which it is given nothing any more, though its machine could run it. Instances that are
    young cost a comparison each."""
    longest_ms = max((_longest_ms(memory, number) for number, _ in memory.queue.lines()), default=0)
    terms = memory.payers.terms
    if not longest_ms or not terms.lifetimes:
        return {}
    late_ms = now + longest_ms + terms.leave_ms
    # Of whom was intended before, by pool, something may be too long.
    old_ms = {pool: late_ms - lifetime_ms for pool, lifetime_ms in terms.lifetimes.items()}
    found: dict[InstanceId, tuple[tuple[Shape, Payer], ...]] = {}
    fronts: Sequence[_Front] | None = None
    for name, seat in memory.seats.items():
        instance = seat.instance
        if instance.intended_ms >= old_ms.get(instance.pool, 0) and (
            instance.ends_ms >= late_ms or instance.profile in terms.movable
        ):
            continue
        remaining = terms.remaining(instance, now)
        if remaining is None:
            continue
        if fronts is None:
            fronts = [_front(memory, number) for number, _ in memory.queue.lines()]
        lines = tuple(
            (memory.shapes[front.number], front.payer)
            for front in fronts
            if front.is_too_long_for(remaining) and not instance.machine.misfit(memory.shapes[front.number])
        )
        if lines:
            found[name] = lines
    return found


def _front(memory: Memory, number: int) -> _Front:
    lots = [memory.queue.lots[task] for _, task in islice(memory.queue.coming(number), MOST_PASSED)]
    typical_ms = memory.typical_ms(lots[0].shape)
    known = [lot.expected_ms or typical_ms for lot in lots]
    payer = lots[0].payer if number < 0 else NOBODY
    return _Front(number, payer, min(known), max(known), not all(known))


def _longest_ms(memory: Memory, number: int) -> int:
    head = memory.queue.head(number)
    return max(memory.queue.longest_ms(number), 0 if head is None else _typical_ms(memory, head))


def _typical_ms(memory: Memory, head: Key) -> int:
    return memory.typical_ms(memory.queue.lots[head[1]].shape)
