"""How many are rented where tasks of one shape take very different times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.needs import Need, Pace
from cloud_dispatch.planner.snapshot import DemandItem
from tests.planner.scenes import MINUTE, NOW, busy, demand, instance, launched, pool, shape, snapshot

HOUR = 60 * MINUTE


def mixed(*lengths: tuple[int, int]) -> DemandItem:
    """So many tasks of each length, and what the queue says of them."""
    count = sum(tasks for _, tasks in lengths)
    return demand(shape(), count, expected_ms=sum(ms * tasks for ms, tasks in lengths) // count, lengths=lengths)


def test_few_long_tasks_rent_no_instance_for_each_short_one() -> None:
    """A thousand of a minute are a hundred slots of ten minutes, ten of ten hours are ten. By their mean, seven
    minutes, each of all 1,010 would have one."""
    (rented,) = launched(plan(snapshot([mixed((MINUTE, 1_000), (10 * HOUR, 10))]))).values()
    assert 110 <= rented <= 115


def test_long_tasks_have_a_slot_each() -> None:
    assert launched(plan(snapshot([mixed((HOUR, 7), (10 * HOUR, 3))]))) == {"small": 10}


def test_a_boots_worth_of_work_is_that_of_short_ones() -> None:
    """Twenty of a second are too little for a boot of a minute; a day's task beside them makes it no more."""
    pools = [pool(target_drain_ms=1_000)]
    assert launched(plan(snapshot([mixed((1_000, 20), (24 * HOUR, 1))], pools=pools))) == {"small": 1}


def test_short_ones_follow_on_what_runs() -> None:
    """Of six one-minute tasks most follow on an instance that is free, though a long one is among them: by the mean,
    18 minutes, nothing would."""
    supply = [instance(number) for number in range(2)]
    assert launched(plan(snapshot([mixed((MINUTE, 6), (2 * HOUR, 1))], supply=supply))) == {}


def test_short_ones_follow_on_what_comes_free() -> None:
    """In two minutes, of the ten that are planned ahead: which is less than the mean."""
    load, state = busy(shape(), 1), InstanceState.BUSY
    supply = [instance(number, None, state, load=load, free_ms=NOW + 2 * MINUTE) for number in range(4)]
    assert launched(plan(snapshot([mixed((MINUTE, 6), (2 * HOUR, 1))], supply=supply))) == {}


@pytest.mark.parametrize("of_one", [((3 * MINUTE, 5),), ((3 * MINUTE, 2), (3 * MINUTE, 3))])
def test_lengths_that_are_one_are_as_their_mean(of_one: tuple[tuple[int, int], ...]) -> None:
    supply = [instance(0)]
    same = plan(snapshot([demand(shape(), 5, expected_ms=3 * MINUTE)], supply=supply))
    assert launched(plan(snapshot([mixed(*of_one)], supply=supply))) == launched(same)


@given(
    st.integers(1, 100_000_000),
    st.integers(1, 10_000),
    st.integers(0, 10**8),
    st.integers(0, 10**8),
    st.integers(0, 50),
)
def test_rounds_of_one_length_are_exact(expected: int, count: int, drain: int, worth: int, most: int) -> None:
    """By the length itself, whatever is added up in between."""
    pace = Pace(drain, worth, 24 * HOUR, most, max(drain, worth), 0)
    plain = Need(0, demand(shape(), count, expected_ms=expected))
    told = Need(0, demand(shape(), count, expected_ms=expected, lengths=((expected, count),)))
    rounds = min(max(1, drain // expected, -(-worth // expected)), max(1, 24 * HOUR // expected))
    rounds = min(rounds, most or rounds)
    if rounds <= 1_000_000:
        assert plain.rounds(pace) == told.rounds(pace) == rounds


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**6)), min_size=2, max_size=8))
def test_slots_are_between_those_of_the_shortest_and_of_the_longest(lengths: list[tuple[int, int]]) -> None:
    pace = Pace(10 * MINUTE, MINUTE, 24 * HOUR, 0, 10 * MINUTE, MINUTE)
    (least, most) = (
        Need(0, demand(shape(), 1, expected_ms=of(ms for ms, _ in lengths))).rounds(pace) for of in (max, min)
    )
    assert least <= Need(0, mixed(*lengths)).rounds(pace) <= max(most, least)
