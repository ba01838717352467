"""The ready queue against a naive model: a sorted list of everything that waits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine, Shape, room_for
from cloud_dispatch.domain.task import RetryRules
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import MOST_PASSED, Lot, ReadyQueue
from cloud_dispatch.statestore.seats import Hold, Seat
from cloud_dispatch.testing.store_builders import instance

SHAPES = st.integers(1, 3)
PRIORITIES = st.integers(-2, 2)


def lot(shape: int, priority: int, expected_ms: int = 0) -> Lot:
    return Lot(shape, priority, 1000, expected_ms, 0, RetryRules(), shape)


class QueueAndModel(RuleBasedStateMachine):
    """Every rule does the same to both; the invariant compares all that the queue can be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ReadyQueue()
        self.model: dict[int, Lot] = {}
        self.out: dict[int, Lot] = {}
        self.last = 0

    def order(self, shape: int) -> list[tuple[int, int]]:
        return sorted((-lot.priority, task) for task, lot in self.model.items() if lot.shape == shape)

    @rule(shape=SHAPES, priority=PRIORITIES, expected=st.sampled_from([0, 0, 50]))
    def submit(self, shape: int, priority: int, expected: int) -> None:
        self.last += 1
        self.model[self.last] = lot(shape, priority, expected)
        self.queue.add(self.last, self.model[self.last])

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.out)))
        self.model[task] = self.out.pop(task)
        self.queue.add(task, self.model[task])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.model)))
        self.out[task] = self.model.pop(task)
        assert self.queue.remove(task) == self.out[task]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), priority=PRIORITIES)
    def reprioritise(self, data: st.DataObject, priority: int) -> None:
        task = data.draw(st.sampled_from(sorted(self.model)))
        self.model[task] = self.model[task]._replace(priority=priority)
        self.queue.reprioritise(task, priority)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), most=st.integers(1, 4), bounded=st.booleans())
    def take(self, data: st.DataObject, most: int, bounded: bool) -> None:
        shape = data.draw(st.sampled_from(sorted({lot.shape for lot in self.model.values()})))
        others = [self.order(other)[0] for other in (1, 2, 3) if other != shape and self.order(other)]
        before = min(others) if bounded and others else None
        expected = [task for key, task in self.order(shape) if before is None or (key, task) <= before][:most]
        assert [task for task, _ in self.queue.take(shape, most, before)] == expected
        for task in expected:
            self.out[task] = self.model.pop(task)

    @invariant()
    def the_same(self) -> None:
        assert self.queue.lots == self.model
        lines = dict(self.queue.lines())
        assert set(lines) == {lot.shape for lot in self.model.values()}
        for shape in (1, 2, 3):
            order = self.order(shape)
            assert self.queue.head(shape) == (order[0] if order else None)
        for shape in lines:
            assert list(self.queue.coming(shape)) == self.order(shape)
        for shape in (1, 2, 3):
            firsts: dict[int, list[tuple[int, int]]] = {}
            for key in self.order(shape):
                firsts.setdefault(self.model[key[1]].expected_ms, []).append(key)
            front = [(step.key, step.lot, step.tasks) for step in self.queue.front(shape)]
            assert front == [(keys[0], self.model[keys[0][1]], len(keys)) for keys in firsts.values()]
        for shape, line in lines.items():
            mine = [lot for lot in self.model.values() if lot.shape == shape]
            assert line.count == len(mine)
            classes: dict[int, list[int]] = {}
            for lot in mine:
                if lot.expected_ms:
                    classes.setdefault(lot.expected_ms.bit_length(), []).append(lot.expected_ms)
            assert line.lengths == {digits: (sum(each), len(each)) for digits, each in classes.items()}


TestQueueAndModel = QueueAndModel.TestCase
TestQueueAndModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_line_that_has_not_changed_is_not_looked_into_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many lines each sync of an old instance asks; no further than so many tasks."""
    queue = ReadyQueue()
    for task in range(MOST_PASSED + 5):
        queue.add(task, lot(1, 0, 50 + task % 2))
    front = queue.front(1)
    assert [step.tasks for step in front] == [MOST_PASSED // 2, MOST_PASSED // 2]
    monkeypatch.setattr(ReadyQueue, "coming", None)
    assert queue.front(1) is front


def test_a_line_is_forgotten_with_its_last_task() -> None:
    """Whoever asks for work looks at all lines: of those that were, 100,000 took two milliseconds a claim."""
    queue = ReadyQueue()
    for shape in range(1, 301):
        queue.add(shape, lot(shape, 0))
    for task in range(1, 101):
        queue.remove(task)
    for task in range(101, 201):
        queue.pick(task)
    for shape in range(201, 300):
        queue.take(shape, 2, None)
    assert len(queue._lines) == 1
    queue.add(7, lot(7, 0))
    assert [number for number, _ in queue.lines()] == [300, 7]


def test_stale_entries_are_bounded() -> None:
    """A task whose priority changes all the time leaves no growing trail."""
    queue = ReadyQueue()
    for task in range(10):
        queue.add(task, lot(1, 0))
    for change in range(20_000):
        queue.reprioritise(change % 10, change % 7)
    ((_, line),) = queue.lines()
    assert sum(map(len, line.heaps.values())) < 2_000


QUANTITIES = st.builds(Resources, *[st.integers(0, 8) for _ in range(4)])
LABELLED = st.builds(
    Shape, QUANTITIES, exclusive=st.booleans(), max_per_instance=st.integers(0, 2), preemptible=st.just(True)
)


@settings(max_examples=300, deadline=None)
@given(capacity=QUANTITIES, limit=st.integers(0, 3), running=st.lists(LABELLED, max_size=4), wanted=LABELLED,
       most=st.integers(1, 5))  # fmt: skip
def test_room_is_that_of_the_domain(
    capacity: Resources, limit: int, running: list[Shape], wanted: Shape, most: int
) -> None:
    """The seat's fast count and the domain's rule agree, whatever runs there, claims ahead included."""
    machine = Machine(capacity, pool="default", max_tasks=limit)
    seat, memory = Seat(instance(machine=machine)), Memory()
    for number, shape in enumerate(running, 1):
        memory.shapes[number] = shape
        memory.seat(Hold(number, number, seat, 0, None, lot(number, 0)))
    if not machine.misfit(wanted):
        assert seat.room(machine, wanted, most) == room_for(machine, seat.load(), wanted, most)
