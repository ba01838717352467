"""What comes next at an instance, of all lines that fit it: by priority, then by number, which is by age.

On a machine with GPUs, what asks for some goes before what asks for none and is as urgent: its cpus may else be taken
by what could run anywhere, while its GPUs, which are what it costs, idle and another one is rented for those that wait
for them. The planner places them in this order too. What asks for none gives way for as long only as is planned ahead,
so that a stream of others does not keep it waiting for ever where there is nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from cloud_dispatch.domain.remaining import Remaining
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import Key, Lot
from cloud_dispatch.statestore.seats import Seat
from cloud_dispatch.statestore.timely import next_for

#: So long after its submission nothing gives way any more: the default of a pool's `target_drain`.
GIVES_WAY_MS = 600_000
_LAST = 1 << 63  # after every task


def heads_for(
    memory: Memory, seat: Seat, machine: Machine, remaining: Remaining | None, now: int, *, ahead: int = 0
) -> Heads:
    """Of all lines with something that the empty `machine` can run, and can finish. `ahead`: so many may begin one
    after another."""
    heads = HeadsWithGpus(memory, remaining, now, ahead) if machine.capacity.gpus else Heads(memory, remaining, ahead)
    heads.enter(seat, machine)
    return heads


class Heads:
    """The next task of each line: the best first. What fits is remembered at the seat. What begins after others have
    ended (`ahead`) no payer with a limit pays for, nor is it what wants its instance for itself."""

    def __init__(self, memory: Memory, remaining: Remaining | None, ahead: int) -> None:
        self._memory = memory
        self.remaining = remaining
        self._ahead = ahead
        self._heads: list[tuple[tuple[int, ...], Key, int]] = []

    def enter(self, seat: Seat, machine: Machine) -> None:
        """Begin with all lines of which something fits."""
        memory, misfits = self._memory, seat.misfits
        for number, _ in memory.queue.lines():
            misfit = misfits.get(number)
            if misfit is None:
                misfit = misfits[number] = bool(machine.misfit(memory.shapes[number]))
            if not misfit and not (self._ahead and self._waits_alone(number)):
                self.come_back(number)

    def _waits_alone(self, number: int) -> bool:
        shape = self._memory.shapes[number]
        return number < 0 or shape.exclusive or bool(shape.max_per_instance)

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


class HeadsWithGpus(Heads):
    """The same at a machine with GPUs."""

    def __init__(self, memory: Memory, remaining: Remaining | None, now: int, ahead: int) -> None:
        super().__init__(memory, remaining, ahead)
        self._since_ms = now - GIVES_WAY_MS

    def _rank(self, number: int, key: Key) -> tuple[int, ...]:
        urgency, task = key
        return urgency, self._gives_way(number, task), task

    def _gives_way(self, number: int, task: int) -> bool:
        memory = self._memory
        return not memory.shapes[number].resources.gpus and memory.queue.lots[task].submitted_ms > self._since_ms

    def _before(self, number: int) -> Key | None:
        """What is behind the head of a line without GPUs may be younger, and give way: that is taken alone."""
        if not self._heads:
            return None
        if not self._memory.shapes[number].resources.gpus:
            return self._memory.queue.head(number)
        (urgency, gives_way, *_), key, _ = self._heads[0]
        return (urgency, _LAST) if gives_way else key
