"""Syncs without news wait for no commit, starts wait for the next one, and nothing else passes for either."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.task import RetryRules, TaskState
from cloud_dispatch.ports.store import ClaimResult, HeldClaim, SyncCall
from cloud_dispatch.statestore.claims import without_commit
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.testing.store_builders import instance

OWN = replace(instance(), machine=Machine(Resources(2_000)))


@pytest.fixture
def memory() -> Memory:
    """Two cpus, task 1 of one cpu runs on them; task 2 of two cpus waits."""
    memory = Memory()
    memory.put_instance(OWN)
    memory.add_shape(1, Shape(Resources(1_000)))
    memory.add_shape(2, Shape(Resources(2_000)))
    memory.enqueue(1, Lot(1, 0, 1_000, 0, 0, RetryRules(), 1))
    ((hold, _),) = memory.claim(memory.seats[OWN.id], 1, memory.queue.take(1, 1, None), 5)
    memory.mark_started(hold, 6)
    memory.enqueue(2, Lot(2, 0, 1_000, 0, 0, RetryRules(), 2))
    memory.keep()
    return memory


def beat(**fields: object) -> SyncCall:
    """The heartbeat of the one instance, with `fields` other than they are."""
    usual = SyncCall(OWN.id, 3, held=(HeldClaim(TaskId(1), FencingToken(1), 50),), want=1)
    return structs.replace(usual, **fields)


def test_a_heartbeat_is_no_news_and_moves_nothing(memory: Memory) -> None:
    """What runs is what is known, what waits does not fit; still, it is the newest call of its instance."""
    assert without_commit(beat(), memory, 100)
    assert memory.moved == 0
    assert memory.seats[OWN.id].order == 3
    assert not without_commit(beat(order=2), memory, 100)


@pytest.mark.parametrize(
    "fields",
    [
        {"held": ()},
        {"held": (HeldClaim(TaskId(1), FencingToken(9), 50),)},
        {"held": (HeldClaim(TaskId(1), FencingToken(1), 50), HeldClaim(TaskId(7), FencingToken(9), 50))},
        {"results": (ClaimResult(TaskId(1), FencingToken(1), 50, None),)},
        {"ahead": 1},
        {"instance": "nobody"},
    ],
)
def test_what_is_news_is_not_passed_over(memory: Memory, fields: dict[str, object]) -> None:
    """A claim lost, stale or unknown, a result, a wish for more than fits, a stranger: the commit deals with them."""
    assert not without_commit(beat(**fields), memory, 100)


def test_a_task_that_fits_is_news_unless_none_may_be_handed_out(memory: Memory) -> None:
    """A waiting task of one cpu finds room; not for an instance that drains."""
    memory.enqueue(3, Lot(1, 0, 1_000, 0, 0, RetryRules(), 1))
    assert not without_commit(beat(), memory, 100)
    assert without_commit(beat(claiming=False), memory, 100)
    assert without_commit(beat(want=0), memory, 100)


def test_a_cancel_is_news(memory: Memory) -> None:
    """Who is to be killed hears of it."""
    memory.mark_cancelling(memory.holds[1])
    assert not without_commit(beat(), memory, 100)


def test_a_start_waits_for_the_next_commit(memory: Memory) -> None:
    """It is known at once and can't be taken back by somebody else's failure; with other news it goes its usual way."""
    hold = memory.holds[1]
    hold.started_ms = None
    memory.counts[TaskState.RUNNING], memory.counts[TaskState.CLAIMED] = 0, 1
    memory.keep()
    memory.enqueue(3, Lot(1, 0, 1_000, 0, 0, RetryRules(), 1))
    memory.keep()
    assert not without_commit(beat(), memory, 100)
    assert hold.started_ms is None
    memory.dequeue(3)
    memory.keep()
    assert without_commit(beat(), memory, 100)
    assert hold.started_ms == 50
    assert memory.unwritten == {1: hold}
    memory.undo()
    assert hold.started_ms == 50
    assert memory.counts[TaskState.RUNNING] == 1
    assert memory.counts[TaskState.CLAIMED] == 0
