"""Who is woken for which work: the rules, without HTTP and without a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from cloud_dispatch.api.poll import Poll, Polls, Wake
from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine, Shape
from cloud_dispatch.ports.store import ShapeDemand

SMALL = Shape(Resources(1000, GIB))
BIG = Shape(Resources(8000, GIB))


class Queue:
    """The part of a store that polls read."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Shape, int], None]] = []
        self.queued: dict[Shape, int] = {}
        self.loads: dict[str, Load] = {}
        self.leases: dict[str, Mapping[TaskId, FencingToken]] = {}
        self.rates: dict[str, int] = {}

    def subscribe(self, listener: Callable[[Shape, int], None], *, early: bool = False) -> None:
        self.listeners.append(listener)

    def load_of(self, instance: InstanceId) -> Load:
        return self.loads.get(instance, Load())

    def held_by(self, instance: InstanceId) -> int:
        return self.load_of(instance).tasks

    def living(self, instance: InstanceId) -> Any:
        return SimpleNamespace(rate=self.rates.get(instance, 100), intended_ms=0)

    def leases_of(self, instance: InstanceId) -> Mapping[TaskId, FencingToken]:
        return self.leases.get(instance, {})

    def waiting(self) -> Sequence[ShapeDemand]:
        return [ShapeDemand(shape, count, (), 0, 0) for shape, count in self.queued.items() if count]

    def arrive(self, shape: Shape, count: int) -> None:
        self.queued[shape] = self.queued.get(shape, 0) + count
        for listener in self.listeners:
            listener(shape, count)


def house(*cpus: int, want: int = 1, ahead: int = 0) -> tuple[Queue, Polls, list[Poll]]:
    queue: Any = Queue()
    polls = Polls(queue)
    made = [Poll(InstanceId(f"i{n}"), Machine(Resources(c * 1000, 64 * GIB)), want, ahead) for n, c in enumerate(cpus)]
    for poll in made:
        polls.add(poll)
    return queue, polls, made


def woken(polls: list[Poll]) -> list[bool]:
    return [poll._work for poll in polls]


def again(queue: Queue, polls: Polls, poll: Poll) -> Poll:
    """The next poll of the same instance, which has done what it was woken for."""
    polls.remove(poll)
    queue.queued.clear()
    later = Poll(poll.instance, poll.machine, poll.want, poll.ahead, failing=poll.failing)
    polls.add(later)
    return later


def test_each_task_wakes_one_poll() -> None:
    """Two tasks wake the first two of three; the next one wakes the third."""
    queue, _, made = house(1, 1, 1)
    queue.arrive(SMALL, 2)
    assert woken(made) == [True, True, False]
    queue.arrive(SMALL, 1)
    assert woken(made) == [True, True, True]


def test_work_that_one_instance_can_do_goes_to_one_instance() -> None:
    """Five tasks, one after another, on a fleet of three that are alike: in turns none of them would ever idle for long
    enough to end."""
    queue, polls, (poll, *others) = house(1, 1, 1)
    for _ in range(5):
        queue.arrive(SMALL, 1)
        assert woken([poll, *others]) == [True, False, False]
        poll.offered = 0
        poll = again(queue, polls, poll)


def test_the_cheapest_is_woken_first() -> None:
    """The dear ones are those that idle, and end; what nobody knows the price of is dear."""
    queue, polls, made = house(1, 1, 1)
    queue.rates = {"i0": 300, "i1": 200, "i2": 100}
    made = [again(queue, polls, poll) for poll in made]
    queue.arrive(SMALL, 1)
    assert woken(made) == [False, False, True]
    queue.arrive(SMALL, 1)
    assert woken(made) == [False, True, True]


def test_of_those_that_cost_the_same_what_is_in_use_is_woken_first() -> None:
    """What idles can end."""
    queue, polls, made = house(4, 4)
    queue.loads["i1"] = Load(Resources(1000, GIB), tasks=1)
    made = [again(queue, polls, poll) for poll in made]
    queue.arrive(SMALL, 1)
    assert woken(made) == [False, True]


def test_where_attempts_fail_others_are_woken_first() -> None:
    """A machine that fails whatever it is given would be given everything: it is free at once."""
    queue, polls, made = house(1, 1)
    made[0].failing = True
    made = [again(queue, polls, poll) for poll in made]
    queue.arrive(SMALL, 1)
    assert woken(made) == [False, True]
    queue.arrive(SMALL, 1)
    assert woken(made) == [True, True]


def test_a_poll_that_was_superseded_leaves_its_successor_where_it_is() -> None:
    """Both wait for a moment, for the same instance."""
    queue, polls, (before,) = house(1)
    after = Poll(before.instance, before.machine, 1, 0)
    polls.add(after)
    before.wake(Wake.SUPERSEDED)
    polls.remove(before)
    queue.arrive(SMALL, 1)
    assert woken([after]) == [True]
    assert len(polls) == 1


def test_a_poll_takes_as_many_tasks_as_it_has_room_for() -> None:
    """Five tasks for machines of four: the first is offered four, the second one, the third nothing."""
    queue, _, made = house(4, 4, 4, want=8)
    queue.arrive(SMALL, 5)
    assert [poll.offered for poll in made] == [4, 1, 0]


def test_a_shape_that_does_not_fit_passes_by() -> None:
    """A big task wakes the big machine only."""
    queue, _, made = house(1, 8)
    queue.arrive(BIG, 1)
    assert woken(made) == [False, True]


def test_free_room_comes_before_claims_ahead() -> None:
    """A full machine that would take a claim ahead is woken only for what no free machine takes."""
    queue, _, made = house(1, 1, ahead=1)
    queue.loads["i0"] = Load(Resources(1000, GIB), tasks=1)
    queue.arrive(SMALL, 1)
    assert woken(made) == [False, True]
    queue.arrive(SMALL, 1)
    assert woken(made) == [True, True]


def test_work_that_a_leaver_was_woken_for_goes_to_the_next() -> None:
    """A poll that is removed without having looked passes its offer on."""
    queue, polls, made = house(1, 1)
    queue.arrive(SMALL, 1)
    assert woken(made) == [True, False]
    made[0].wake(Wake.GONE)
    polls.remove(made[0])
    assert woken(made)[1]


def test_an_offer_that_nobody_can_take_does_not_go_round_for_ever() -> None:
    """Polls that look in vain are not offered the same again, until new work arrives."""
    queue, polls, made = house(1, 1)
    queue.arrive(SMALL, 1)
    looks = 0
    for _ in range(10):
        for poll in made:
            if poll._work:
                poll._work = False
                looks += 1
                polls.looked(poll, 0)
                polls.add(poll)
    assert looks == 2
    queue.arrive(SMALL, 1)
    assert any(woken(made))


def test_work_that_arrives_while_a_poll_looks_makes_it_look_again() -> None:
    """No wake-up is lost between a look in vain and the next wait."""
    queue, _, made = house(1)
    queue.arrive(SMALL, 1)
    made[0]._work = False  # it looks now ...
    queue.arrive(SMALL, 1)  # ... and maybe a moment too early
    assert woken(made) == [True]


def test_one_that_wants_no_work_is_not_looked_at_for_it() -> None:
    """In a busy fleet most agents wait for orders only: looking at all of them took 5 % of a busy day."""
    queue, polls, made = house(4, want=0)
    hungry = Poll(InstanceId("hungry"), Machine(Resources(4000, 64 * GIB)), 1, 0)
    polls.add(hungry)
    looked: list[str] = []
    load_of = queue.load_of
    queue.load_of = lambda instance: looked.append(instance) or load_of(instance)  # type: ignore[func-returns-value]
    queue.arrive(SMALL, 3)
    assert woken([*made, hungry]) == [False, True]
    assert looked == ["hungry"]
    polls.remove(hungry)
    assert len(polls) == 1


async def test_a_final_reason_outranks_work_and_the_first_stays() -> None:
    """A poll that was superseded must not claim, whatever else woke it."""
    poll = Poll(InstanceId("i"), None, 1, 0)
    poll.wake(Wake.WORK)
    poll.wake(Wake.SUPERSEDED)
    poll.wake(Wake.EXPIRED)
    assert await poll.woken() is Wake.SUPERSEDED


def test_a_cancel_wakes_the_holder_only() -> None:
    """Only the instance that holds the cancelled task has something to kill."""
    queue, polls, made = house(1, 1)
    queue.leases["i1"] = {TaskId(7): FencingToken(70)}
    polls.cancelled([TaskId(7), TaskId(8)])
    assert [poll.final for poll in made] == [None, Wake.NEWS]
