"""What is told of an instance that declines is what claims make of it, whatever waits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.task import RetryRules
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.purse import Purse
from cloud_dispatch.statestore.queue import MOST_PASSED, Lot
from cloud_dispatch.statestore.timely import declined, next_for, remaining_of
from cloud_dispatch.testing.store_builders import START_MS, instance

SMALL, LARGE = Shape(Resources(1_000)), Shape(Resources(64_000))
EXPECTED = st.sampled_from([0, 1, 30, 50, 99, 100, 101, 900])


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 2), EXPECTED), max_size=12),
    st.integers(0, 120),
    st.sampled_from([0, 40, 100]),
    st.booleans(),
    st.integers(0, 1_000),
)
def test_who_declines_is_given_nothing(
    waiting: list[tuple[int, int, int]], age: int, typical: int, movable: bool, ends_in: int
) -> None:
    """Of a life of a hundred, for each line of which nothing can be finished, and for no other. The first of a line
    that can be is given, in the order of the queue."""
    memory = Memory()
    memory.add_shape(1, SMALL)
    memory.add_shape(2, LARGE)
    own = replace(instance(), machine=Machine(Resources(4_000)), intended_ms=START_MS - age, ends_ms=START_MS + ends_in)
    purse = Purse()
    purse.terms = ClaimTerms(lifetimes={own.pool: 100}, leave_ms=0, movable=frozenset({own.profile} if movable else ()))
    memory.take_purse(purse, START_MS)
    memory.put_instance(own)
    if typical:
        memory.succeeded(1, typical)
    for task, (shape, priority, expected) in enumerate(waiting):
        memory.enqueue(task, Lot(shape, priority, 0, expected, 0, RetryRules(), shape))
    remaining = purse.terms.remaining(own, START_MS)
    assert remaining is not None
    none = {shape for number, shape in ((1, SMALL), (2, LARGE)) if waits(memory, number)}
    for number, shape in ((1, SMALL), (2, LARGE)):
        queued = sorted((-memory.queue.lots[task].priority, task) for task in waits(memory, number))
        fitting = [
            key
            for key in queued
            if not remaining.is_too_short_for(memory.queue.lots[key[1]].expected_ms or memory.typical_ms(number))
        ]
        assert next_for(memory, number, remaining) == next(iter(fitting), None)
        if remaining_of(memory, own, START_MS) is None:
            assert fitting == queued
        if fitting:
            none.discard(shape)
    told = {shape for shape, _ in declined(memory, START_MS).get(own.id, ())}
    assert told == none - {LARGE}


def waits(memory: Memory, number: int) -> list[int]:
    return [task for task, lot in memory.queue.lots.items() if lot.line == number]


def test_what_is_beyond_reach_is_declined_by_both() -> None:
    memory = Memory()
    memory.add_shape(1, SMALL)
    purse, own = Purse(), replace(instance(), intended_ms=START_MS - 50)
    purse.terms = ClaimTerms(lifetimes={own.pool: 100}, leave_ms=0, movable=frozenset({own.profile}))
    memory.take_purse(purse, START_MS)
    memory.put_instance(own)
    remaining = purse.terms.remaining(own, START_MS)
    for task in range(MOST_PASSED - 1):
        memory.enqueue(task, Lot(1, 0, 0, 80, 0, RetryRules(), 1))
    last = MOST_PASSED - 1
    memory.enqueue(last, Lot(1, 0, 0, 10, 0, RetryRules(), 1))
    assert next_for(memory, 1, remaining) == (0, last)
    assert not declined(memory, START_MS)
    memory.enqueue(last + 1, Lot(1, 5, 0, 80, 0, RetryRules(), 1))  # one more comes before it
    assert next_for(memory, 1, remaining) is None
    assert list(declined(memory, START_MS)) == [own.id]
