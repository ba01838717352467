"""Admission: a launch's slots are looked at together, and it comes to the same as one by one."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment, Key, Scope
from cloud_dispatch.spend.instances import Commitments, commitment_of
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Window, spans
from cloud_dispatch.statestore.purse import Purse
from tests.spend.history import START_MS

DOLLAR = 1_000_000
POOL = Key(Scope.POOL, "cpu")


def slot(number: int, hours: int = 1, **more: Any) -> Instance:
    return Instance(
        id=InstanceId(f"b-{number}"), batch=BatchId("b"), pool=PoolName("cpu"), profile=ProfileName("cloud"), type="m",
        zone="z", market=Market.ON_DEMAND, machine=Machine(Resources(1)), vcpus=1, rate=Rate(1_000_000_000),
        max_rate=Rate(1_000_000_000), state=InstanceState.INTENDED, intended_ms=START_MS,
        ends_ms=START_MS + hours * HOUR_MS, boot_deadline_ms=START_MS + 600_000, **more,
    )  # fmt: skip


def one_by_one(standing: Standing, wanted: list[Commitment]) -> str | None:
    """Who is refused first, and why: what admission means."""
    for one in wanted:
        refusal = standing.refusal(one)
        if refusal is not None:
            return f"{one.name}: {refusal}"
        standing.add(one)
    return None


def booked(standing: Standing, budgets: list[Budget]) -> list[Amount]:
    return [
        standing.committed(budget, span)
        for budget in budgets
        for span in spans(budget.window, START_MS, START_MS + 30 * HOUR_MS)
    ]


LIMITS = st.builds(
    Budget, st.sampled_from([EVERYTHING, POOL]), st.sampled_from(Window), st.integers(0, 12 * DOLLAR).map(Amount)
)


@given(
    st.lists(LIMITS, min_size=1, max_size=4, unique_by=lambda one: (one.key, one.window)),
    st.lists(st.integers(1, 30), max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_slots_that_are_alike_are_admitted_as_one_by_one(budgets: list[Budget], hours: list[int]) -> None:
    slots = [slot(number, most) for number, most in enumerate(sorted(hours))]
    purse, standing = Purse(budgets), Standing(budgets, {}, [], START_MS)
    said = one_by_one(Standing(budgets, {}, [], START_MS), [commitment_of(one, {}) for one in slots])
    answer: str | None = None
    try:
        purse.admit(standing, [(None, one) for one in slots])
    except OverBudget as error:
        answer = error.message
    assert answer == said
    counted = [] if said else slots  # of what is not admitted whole, nothing
    assert booked(standing, budgets) == booked(purse.standing(counted, START_MS), budgets)


def test_what_lives_is_admitted_in_place_of_itself() -> None:
    """Moved on together with new ones: each counts once, and with a refusal all is as before."""
    budgets = [Budget(EVERYTHING, Window.TOTAL, Amount(10 * DOLLAR))]
    purse, living = Purse(budgets), [slot(0, 2), slot(1, 2)]
    standing = purse.standing(living, START_MS)
    before = booked(standing, budgets)
    moved = [(one, replace(one, ends_ms=one.ends_ms + HOUR_MS)) for one in living]
    with pytest.raises(OverBudget, match="b-9"):
        purse.admit(standing, [*moved, (None, slot(8, 3)), (None, slot(9, 3))])
    assert booked(standing, budgets) == before
    purse.admit(standing, [*moved, (None, slot(8, 3))])
    assert booked(standing, budgets) == booked(
        purse.standing([*(one for _, one in moved), slot(8, 3)], START_MS), budgets
    )


def test_a_slot_without_a_price_is_refused_among_others() -> None:
    purse = Purse([Budget(EVERYTHING, Window.TOTAL, Amount(100 * DOLLAR))])
    with pytest.raises(OverBudget, match=r"b-1: .*nobody knows"):
        purse.admit(purse.standing([], START_MS), [(None, slot(0)), (None, replace(slot(1), max_rate=None))])


def test_commitments_are_those_of_the_instances_as_they_are() -> None:
    known, living = Commitments({}), [slot(0), slot(1)]
    first = known.of_all(living)
    living[1] = replace(living[1], ends_ms=living[1].ends_ms + HOUR_MS)
    again = known.of_all(living)
    assert again[0] is first[0]
    assert again == [commitment_of(one, {}) for one in living]
    assert known.of_all(living[1:]) == again[1:]
