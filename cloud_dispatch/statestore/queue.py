"""The order of the queue, in memory. Owns which waiting task comes next of each line; pure: no I/O, no clock, no
shapes beyond their numbers, no knowledge of who claims.

A line is a shape, or what waits of a shape for a payer with a spending limit. Tasks wait by line, then by priority,
then in a heap of their ids. Removal and a new priority are lazy: an entry of a heap counts only while the task's lot
says the same line and priority, and a line that is mostly stale entries is rebuilt. A task that comes back gets its old
place, because its place is its id. The cost of taking a head does not depend on the length of the queue beyond the
heap's logarithm.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.task import RetryRules

_STALE_FLOOR = 1024
#: So many tasks of a line are looked at, its front; what is behind them waits until they are begun.
MOST_PASSED = 64

#: (-priority, id) of a task: the smallest of several is the next of all.
Key = tuple[int, int]


class Lot(NamedTuple):
    """What tasks of one submission have in common as far as the queue cares; one object is shared by all of them.

    `shape` is the store's number of the shape, `expected_ms` 0 unknown, `attempts` those that ended. `line` is where
    they wait: the number of the shape, or a negative one for what waits of it for a payer with a spending limit.
    """

    shape: int
    priority: int
    submitted_ms: int
    expected_ms: int
    attempts: int
    retry: RetryRules
    line: int
    payer: Payer = NOBODY


class Step(NamedTuple):
    """The first task of a line's front that says that it takes so long, and how many there say the same."""

    key: Key
    lot: Lot
    tasks: int


class Line:
    """The waiting tasks of one line."""

    __slots__ = ("count", "entries", "front", "heaps", "lengths", "priorities")

    def __init__(self) -> None:
        self.heaps: dict[int, list[int]] = {}
        self.priorities: list[int] = []  # rising: the best is last
        self.count = 0
        self.entries = 0  # stale ones included
        self.lengths: dict[int, tuple[int, int]] = {}  # by their binary digits: milliseconds, and how many tasks
        self.front: tuple[Step, ...] | None = None  # None: not known since a task came or went

    def weigh(self, expected_ms: int, tasks: int) -> None:
        """So many more say that they take so long, or fewer."""
        digits = expected_ms.bit_length()
        whole, known = self.lengths.get(digits, (0, 0))
        known += tasks
        if known:
            self.lengths[digits] = (whole + expected_ms * tasks, known)
        else:
            del self.lengths[digits]


class ReadyQueue:
    """Waiting tasks. A task is in it at most once; adding one twice or taking one that is not there is a bug."""

    def __init__(self) -> None:
        self.lots: dict[int, Lot] = {}
        self._lines: dict[int, Line] = {}  # of those in which something waits
        #: Nothing that waits says that it takes longer.
        self.longest_ms = 0

    def __len__(self) -> int:
        return len(self.lots)

    def __contains__(self, task: int) -> bool:
        return task in self.lots

    def add(self, task: int, lot: Lot) -> None:
        if lot.expected_ms > self.longest_ms or not self.lots:
            self.longest_ms = lot.expected_ms
        self.lots[task] = lot
        line = self._lines.get(lot.line)
        if line is None:
            line = self._lines[lot.line] = Line()
        line.count += 1
        if lot.expected_ms:
            line.weigh(lot.expected_ms, 1)
        self._enter(line, task, lot.priority)

    def remove(self, task: int) -> Lot:
        """Take `task` out, wherever it stands; KeyError when it does not wait."""
        lot = self.lots.pop(task)
        line = self._lines[lot.line]
        self._leave(line, lot)
        if line.entries > 2 * line.count + _STALE_FLOOR:
            self._rebuild(lot.line, line)
        return lot

    def pick(self, task: int) -> Lot:
        """Take `task` out, one of the first of its line: as `remove`, but nothing stale is left where a line is looked
        at. Costs in proportion to what comes before it."""
        lot = self.lots.pop(task)
        line, passed = self._lines[lot.line], []
        heap = line.heaps[lot.priority]
        while heap:
            first = heappop(heap)
            if first == task:
                line.entries -= 1
                break
            other = self.lots.get(first)
            if other is not None and other.priority == lot.priority and other.line == lot.line:
                passed.append(first)
            else:
                line.entries -= 1
        for first in passed:
            heappush(heap, first)
        self._leave(line, lot)
        return lot

    def relined(self, line_of: Callable[[Lot], int]) -> ReadyQueue:
        """All that waits in another queue, each task in the line that `line_of` gives it."""
        queue = ReadyQueue()
        lots: dict[Lot, Lot] = {}
        for task, lot in self.lots.items():
            changed = lots.get(lot)
            if changed is None:
                changed = lots[lot] = lot._replace(line=line_of(lot))
            queue.add(task, changed)
        return queue

    def reprioritise(self, task: int, priority: int) -> None:
        """A new priority with the same id; KeyError when it does not wait."""
        lot = self.remove(task)
        self.add(task, lot._replace(priority=priority))

    def lines(self) -> Iterator[tuple[int, Line]]:
        """Every line in which tasks wait, by its number."""
        return iter(self._lines.items())

    def head(self, number: int) -> Key | None:
        """The key of the next task of a line."""
        line = self._lines.get(number)
        if line is None:
            return None
        lots, priorities = self.lots, line.priorities
        while priorities:
            priority = priorities[-1]
            heap = line.heaps[priority]
            while heap:
                task = heap[0]
                lot = lots.get(task)
                if lot is not None and lot.priority == priority and lot.line == number:
                    return -priority, task
                heappop(heap)
                line.entries -= 1
            del line.heaps[priority]
            priorities.pop()
        raise AssertionError(f"line {number} counts {line.count} waiting tasks and has none")

    def front(self, number: int) -> Sequence[Step]:
        """The first `MOST_PASSED` tasks of a line by how long they say that they take, in the order of the first of
        each. Costs in proportion to them once after each change of the line; then nothing."""
        line = self._lines.get(number)
        if line is None:
            return ()
        if line.front is None:
            found: dict[int, Step] = {}
            for key in islice(self.coming(number), MOST_PASSED):
                lot = self.lots[key[1]]
                known = found.get(lot.expected_ms)
                found[lot.expected_ms] = Step(key, lot, 1) if known is None else known._replace(tasks=known.tasks + 1)
            line.front = tuple(found.values())
        return line.front

    def coming(self, number: int) -> Iterator[Key]:
        """The keys of what waits in a line, in order, as `head` has them. Asking for a few costs in proportion to them
        and the stale entries among them; nothing may change meanwhile."""
        line, lots = self._lines[number], self.lots
        for priority in reversed(line.priorities):
            heap, last = line.heaps[priority], -1
            # A heap's entries are no larger than the two below each: what comes next is below what has come.
            open_entries = [(heap[0], 0)] if heap else []
            while open_entries:
                task, at = heappop(open_entries)
                for below in range(2 * at + 1, min(2 * at + 3, len(heap))):
                    heappush(open_entries, (heap[below], below))
                lot = lots.get(task)
                if task != last and lot is not None and lot.priority == priority and lot.line == number:
                    yield -priority, task
                last = task

    def take(self, number: int, most: int, before: Key | None) -> list[tuple[int, Lot]]:
        """Remove and return the next tasks of a line, at most `most`, as long as they come before the key `before`."""
        taken: list[tuple[int, Lot]] = []
        line, lots = self._lines[number], self.lots
        while len(taken) < most:
            head = self.head(number)
            if head is None or (before is not None and head > before):
                break
            priority = -head[0]
            heap = line.heaps[priority]
            # The head of this heap is good; go on in it as long as that stays so, without asking anew each time.
            while heap and len(taken) < most:
                task = heap[0]
                lot = lots.get(task)
                if lot is None or lot.priority != priority or lot.line != number:
                    break
                if before is not None and (-priority, task) > before:
                    return taken
                heappop(heap)
                line.entries -= 1
                del lots[task]
                taken.append((task, lot))
                self._leave(line, lot)
        return taken

    def _enter(self, line: Line, task: int, priority: int) -> None:
        heap = line.heaps.get(priority)
        if heap is None:
            line.heaps[priority] = [task]
            insort(line.priorities, priority)
        else:
            heappush(heap, task)
        line.entries += 1
        line.front = None

    def _leave(self, line: Line, lot: Lot) -> None:
        """Where that was the last of its line, that is forgotten: whoever asks for work looks at all there are, and of
        shapes there may have been a hundred thousand."""
        line.count -= 1
        line.front = None
        if lot.expected_ms:
            line.weigh(lot.expected_ms, -1)
        if not line.count:
            line.entries = 0
            del self._lines[lot.line]

    def _rebuild(self, number: int, line: Line) -> None:
        """Drop the stale entries; paid for by the removals that made them."""
        lots = self.lots
        for priority in list(line.heaps):
            heap = {
                task
                for task in line.heaps[priority]
                if (lot := lots.get(task)) is not None and lot.priority == priority and lot.line == number
            }
            line.heaps[priority] = list(heap)
            heapify(line.heaps[priority])
        line.priorities = sorted(priority for priority, heap in line.heaps.items() if heap)
        line.heaps = {priority: line.heaps[priority] for priority in line.priorities}
        line.entries = sum(map(len, line.heaps.values()))
