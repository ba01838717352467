"""What comes next at an instance, of all lines that fit it: by priority, then by number, which is by age.

What would leave idle what others could use gives way to them, if they are as urgent (`Machine.gives_way`): on a machine
with GPUs what asks for none, whose cpus others need beside the GPUs; on a large machine what is small and wants it for
itself. Else another one is rented for those that wait, while what they could use idles. The planner places in this
order too. What gives way does so for as long only as is planned ahead, so that a stream of others does not keep it
waiting for ever where there is nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from heapq import heappop, heappush

from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.shape import GIVES_WAY_MS, Machine
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import Key, Lot
from cloud_dispatch.statestore.seats import Seat
from cloud_dispatch.statestore.timely import next_for

_LAST = 1 << 63  # after every task


def heads_for(
    memory: Memory, seat: Seat, machine: Machine, remaining: Remaining | None, now: int, *, ahead: int = 0
) -> Heads:
    """Of all lines with something that the empty `machine` can run, and can finish. `ahead`: so many may begin one
    after another."""
    fitting = [
        number
        for number, _ in memory.queue.lines()
        if seat.fits(machine, number, memory.shapes[number]) and not (ahead and _waits_alone(memory, number))
    ]
    giving = seat.giving and seat.giving.intersection(fitting)
    heads = PoliteHeads(memory, remaining, ahead, giving, now) if giving else Heads(memory, remaining, ahead)
    for number in fitting:
        heads.come_back(number)
    return heads


def _waits_alone(memory: Memory, number: int) -> bool:
    """Whether it never begins after others have ended: what a payer with a limit pays for, what wants its instance for
    itself, what is limited there."""
    shape = memory.shapes[number]
    return number < 0 or shape.exclusive or bool(shape.max_per_instance)


class Heads:
    """The next task of each line: the best first. `ahead`: of what begins after others have ended."""

    def __init__(self, memory: Memory, remaining: Remaining | None, ahead: int) -> None:
        self._memory = memory
        self.remaining = remaining
        self._ahead = ahead
        self._heads: list[tuple[tuple[int, ...], Key, int]] = []

    def _rank(self, number: int, key: Key) -> tuple[int, ...]:
        """Sorts the best first."""
        return key

    def pop(self) -> tuple[int, int] | None:
        """The number of the line that has the best one, and that task; None where that was the last. What was taken
        meanwhile may have left too little for what was good before."""
        while self._heads:
            _, key, number = heappop(self._heads)
            if not self._ahead or next_for(self._memory, number, self.remaining) == key:
                return number, key[1]
            self.come_back(number)
        return None

    def come_back(self, number: int) -> None:
        """Put the present head of a line among the others."""
        head = next_for(self._memory, number, self.remaining)
        if head is not None:
            self.put(number, head)

    def put(self, number: int, key: Key) -> None:
        """Put a task of a line among the others, in place of the head."""
        heappush(self._heads, (self._rank(number, key), key, number))

    def is_behind(self, number: int, key: Key) -> bool:
        """Whether another line has a better one than this of line `number`."""
        return bool(self._heads) and self._heads[0][0] < self._rank(number, key)

    def take(self, number: int, task: int, most: int) -> Sequence[tuple[int, Lot]]:
        """Take `task`, which was popped, out of its line, and what comes after it and before the other lines' heads, at
        most `most`; it alone where some of it may be too long."""
        queue, remaining = self._memory.queue, self.remaining
        if remaining is None:
            return queue.take(number, most, self._before(number))
        lot = queue.pick(task)
        if self._ahead:
            self.remaining = remaining.after(self._memory.likely_ms(lot))
        return [(task, lot)]

    def _before(self, number: int) -> Key | None:
        """What is taken of a line comes before this, the best of the others."""
        return self._heads[0][1] if self._heads else None


class PoliteHeads(Heads):
    """The same where the lines `giving` give way to others."""

    def __init__(self, memory: Memory, remaining: Remaining | None, ahead: int, giving: Set[int], now: int) -> None:
        super().__init__(memory, remaining, ahead)
        self._giving = giving
        self._since_ms = now - GIVES_WAY_MS

    def _rank(self, number: int, key: Key) -> tuple[int, ...]:
        urgency, task = key
        return urgency, self._gives_way(number, task), task

    def _gives_way(self, number: int, task: int) -> bool:
        return number in self._giving and self._memory.queue.lots[task].submitted_ms > self._since_ms

    def _before(self, number: int) -> Key | None:
        """What is behind the head of a line that may give way may be younger, and do so: the head is taken alone."""
        if not self._heads:
            return None
        if number in self._giving:
            return self._memory.queue.head(number)
        (urgency, gives_way, *_), key, _ = self._heads[0]
        return (urgency, _LAST) if gives_way else key
