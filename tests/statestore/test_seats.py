"""What the store shows of its instances: made once until something changes, and never changed under who holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Load, Shape
from cloud_dispatch.domain.task import RetryRules
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.testing.store_builders import instance


def memory_with_work() -> Memory:
    """One idle instance, one task of one cpu in the queue."""
    memory = Memory()
    memory.add_shape(1, Shape(Resources(1_000)))
    memory.put_instance(instance())
    memory.enqueue(1, Lot(1, 0, 1_000, 0, 0, RetryRules(), 1))
    return memory


def test_instances_are_shown_anew_when_one_begins_or_ceases_to_hold_claims() -> None:
    """Busy and idle are seen at once; who asked before keeps the picture of then."""
    memory = memory_with_work()
    own = instance().id
    idle = memory.shown()
    assert memory.shown() is idle
    ((hold, _),) = memory.claim(memory.seats[own], 1, memory.queue.take(1, 1, None), 5)
    busy = memory.shown()
    assert (idle[own].state, busy[own].state) == (InstanceState.IDLE, InstanceState.BUSY)
    memory.drop(hold)
    assert memory.shown()[own].state is InstanceState.IDLE
    memory.undo()
    assert memory.shown()[own].state is InstanceState.IDLE


def test_a_claim_that_is_taken_back_leaves_the_load_as_it_was() -> None:
    """The load is the same object until claims come or go, also when a commit fails."""
    memory = memory_with_work()
    memory.keep()
    seat = memory.seats[instance().id]
    empty = seat.load()
    assert seat.load() is empty == Load()
    memory.claim(seat, 1, memory.queue.take(1, 1, None), 5)
    assert seat.load() == Load(Resources(1_000), 1)
    memory.undo()
    assert seat.load() == Load()
    assert memory.shown()[instance().id].state is InstanceState.IDLE


def test_the_loads_of_all_are_made_anew_only_where_claims_came_or_went() -> None:
    """Through claims, ends, what is taken back, instances that come and go; who asked before keeps those of then."""
    memory = memory_with_work()
    own, other = instance().id, instance("other")

    def loads() -> Mapping[InstanceId, Load]:
        found = memory.loads()
        assert found == {name: seat.load() for name, seat in memory.seats.items()}
        assert all(found[name] is seat.load() for name, seat in memory.seats.items())
        assert memory.loads() is found
        return found

    before = loads()
    ((hold, _),) = memory.claim(memory.seats[own], 1, memory.queue.take(1, 1, None), 5)
    busy = loads()
    assert (before[own].tasks, busy[own].tasks) == (0, 1)
    memory.drop(hold)
    assert loads()[own].tasks == 0
    memory.undo()
    assert loads()[own].tasks == 0
    memory.put_instance(other)
    assert len(loads()) == 2
    memory.put_instance(replace(other, state=InstanceState.GONE))
    assert list(loads()) == [own]
