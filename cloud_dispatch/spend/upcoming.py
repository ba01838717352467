"""What waits, in the order in which it is claimed. Owns which task a machine takes next, as far as money has to know.

What a machine can't run is none of its concern: a long task of another pool that no money is left for must not keep it
from its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_dispatch.domain.shape import Load, Machine, Shape, room_for

#: No agent runs more tasks at once.
_MOST_AT_ONCE = 256


class Upcoming:
    """`tasks`: the shape of each, and how long it is expected to run in milliseconds, 0 unknown. `alike`: of each, how
    many of its shape come with it, and how long these take on average; without, it comes alone."""

    def __init__(self, tasks: Sequence[tuple[Shape, int]], alike: Sequence[tuple[int, int]] = ()) -> None:
        self._tasks = tasks
        self._alike = alike or [(1, 0)] * len(tasks)
        self._fills: dict[tuple[str, int], int | None] = {}
        self._taken: set[int] = set()
        self._from: dict[str, int] = {}  # by machine, where to look first: what is before is taken or does not fit

    def next_for(self, machine: Machine) -> int | None:
        """The number of the next task that `machine` would take, None where none waits that it can run."""
        first = self._from.get(machine.key)
        if first is not None and first < len(self._tasks) and first not in self._taken:
            return first  # found before
        fits: dict[Shape, bool] = {}
        for number in range(first or 0, len(self._tasks)):
            shape = self._tasks[number][0]
            if number not in self._taken:
                if shape not in fits:
                    fits[shape] = not machine.misfit(shape)
                if fits[shape]:
                    self._from[machine.key] = number
                    return number
        self._from[machine.key] = len(self._tasks)
        return None

    def work_ms(self, number: int | None) -> int | None:
        """How long that task is expected to run; None where nobody knows."""
        return None if number is None else self._tasks[number][1] or None

    def next_ms(self, machine: Machine) -> int | None:
        """How long what `machine` would take next is expected to run; None where nobody knows, or nothing waits."""
        return self.work_ms(self.next_for(machine))

    def fill_ms(self, machine: Machine, machines: int = 1) -> int | None:
        """How long the longest of what so many of `machine`, which are empty, take at first is expected to run; None
        where nobody knows of a part of it, or nothing waits."""
        asked = (machine.key, machines)
        if asked not in self._fills:
            self._fills[asked] = self._filled_ms(machine, machines)
        return self._fills[asked]

    def _filled_ms(self, machine: Machine, machines: int) -> int | None:
        left, longest_ms = [count for count, _ in self._alike], 0
        for _ in range(machines):
            load = Load()
            for number, (shape, work_ms) in enumerate(self._tasks):
                room = room_for(machine, load, shape, min(left[number], _MOST_AT_ONCE)) if left[number] else 0
                if not room:
                    continue
                if not work_ms:
                    return None
                others_ms = 0 if room == self._alike[number][0] == 1 else self._alike[number][1]
                longest_ms = max(longest_ms, work_ms, others_ms)
                left[number] -= room
                for _ in range(room):
                    load = load.plus(shape)
            if not load.tasks:
                break
        return longest_ms or None

    def take(self, number: int) -> None:
        """Somebody takes it: it comes next for nobody else."""
        self._taken.add(number)
