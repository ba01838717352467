"""Limits that an operator tightens beside the configuration's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.tightened import decode, encode, in_force, set_limit
from cloud_dispatch.spend.windows import Window

POOL = Key(Scope.POOL, "default")
keys = st.sampled_from([EVERYTHING, POOL, Key(Scope.PROFILE, "p"), Key(Scope.DRIVER, "d")])
amounts = st.integers(0, 10**12).map(Amount)
places = st.tuples(keys, st.sampled_from(Window))
tables = st.dictionaries(places, amounts, max_size=6)


def budgets(table: dict[tuple[Key, Window], Amount]) -> tuple[Budget, ...]:
    return tuple(Budget(key, window, limit, 50) for (key, window), limit in table.items())


def limits(found: tuple[Budget, ...]) -> dict[tuple[Key, Window], Amount]:
    return {(one.key, one.window): one.limit for one in found}


@given(tables, tables)
def test_of_both_limits_the_lower_one_holds(said: dict[tuple[Key, Window], Amount], tightened: object) -> None:
    """Whatever the configuration says, later too: nothing is ever above either of them, and none is forgotten."""
    assert isinstance(tightened, dict)
    found = limits(in_force(budgets(said), tightened))
    assert found.keys() == said.keys() | tightened.keys()
    for place, limit in found.items():
        assert limit == min(one[place] for one in (said, tightened) if place in one)


@given(tables, tables, places, amounts)
def test_nothing_above_the_configuration_can_be_set(
    said: dict[tuple[Key, Window], Amount],
    tightened: dict[tuple[Key, Window], Amount],
    place: tuple[Key, Window],
    limit: Amount,
) -> None:
    if place in said and limit > said[place]:
        with pytest.raises(InvalidInput):
            set_limit(budgets(said), tightened, *place, limit)
        return
    after = set_limit(budgets(said), tightened, *place, limit)
    assert limits(in_force(budgets(said), after))[place] == limit
    back = set_limit(budgets(said), after, *place, None)
    assert limits(in_force(budgets(said), back)).get(place) == said.get(place)


def test_the_thresholds_are_the_configurations() -> None:
    (one,) = in_force(budgets({(POOL, Window.DAY): Amount(9)}), {(POOL, Window.DAY): Amount(3)})
    assert one == Budget(POOL, Window.DAY, Amount(3), 50)


@given(tables)
def test_what_is_kept_is_read_again(table: dict[tuple[Key, Window], Amount]) -> None:
    assert decode(encode(table)) == table
    assert decode(None) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "7", "null", "[1]", '[["pool", "p", "day"]]', '[["pool", "p", "day", -1]]',
             '[["pool", "p", "day", true]]', '[["pool", "p", "day", "3"]]', '[["moon", "p", "day", 3]]',
             '[["pool", "p", "week", 3]]'],
)  # fmt: skip
def test_what_can_not_be_read_is_no_limit_that_holds(text: str) -> None:
    with pytest.raises(InvalidInput, match="can't be read"):
        decode(text)


def test_what_the_configuration_says_may_be_set_and_a_micro_dollar_more_may_not() -> None:
    said = budgets({(POOL, Window.DAY): Amount(9)})
    assert set_limit(said, {}, POOL, Window.DAY, Amount(9)) == {(POOL, Window.DAY): Amount(9)}
    with pytest.raises(InvalidInput, match="can only be tightened here"):
        set_limit(said, {}, POOL, Window.DAY, Amount(10))
