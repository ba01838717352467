"""Money is integers: costs round up once, splits sum exactly, text is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.money import (
    HOUR_MS,
    MOST_AMOUNT,
    MOST_RATE,
    Amount,
    Rate,
    TooMuch,
    billed_ms,
    cost,
    format_amount,
    format_rate,
    parse_amount,
    parse_rate,
    split,
)


def test_an_hour_at_a_rate_costs_the_rate() -> None:
    """One hour at $0.0965/h is 96,500 micro-dollars."""
    assert cost(parse_rate("0.0965"), HOUR_MS) == 96_500


def test_cost_rounds_up_to_the_micro_dollar() -> None:
    """The smallest use of the cheapest machine is not free."""
    assert cost(Rate(1), 1) == 1
    assert cost(Rate(0), HOUR_MS) == 0


def test_billing_minimum_and_increment_apply() -> None:
    """61 s with a minute's minimum and 10 s increments are billed as 70 s."""
    assert billed_ms(1_000, minimum_ms=60_000, increment_ms=1_000) == 60_000
    assert billed_ms(61_000, minimum_ms=60_000, increment_ms=10_000) == 70_000
    assert billed_ms(-5) == 0


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_split_sums_exactly(amount: int, weights: list[int]) -> None:
    """No micro-dollar appears or vanishes, and no part is off by a whole one from its exact share."""
    parts = split(Amount(amount), weights)
    assert sum(parts) == amount
    total = sum(weights)
    if total:
        assert all(abs(part * total - amount * weight) < total for part, weight in zip(parts, weights, strict=True))


def test_split_refuses_nonsense() -> None:
    """No weights, or a negative one, is an error and not a guess."""
    for weights in ([], [1, -1]):
        with pytest.raises(ValueError, match="weights"):
            split(Amount(1), weights)


@given(st.integers(0, 10**15))
def test_text_of_rates_and_amounts_is_exact(value: int) -> None:
    """What is shown can be read back to the same integer."""
    assert parse_rate(format_rate(Rate(value)).removesuffix("/h")) == value
    assert parse_amount(format_amount(Amount(value))) == value


@pytest.mark.parametrize("text", ["", "-1", "1e3", "0.0000000001", "1,5", "NaN"])
def test_bad_rates_are_refused(text: str) -> None:
    """A price that can't be held exactly is not rounded silently."""
    with pytest.raises(ValueError, match=r"dollars|decimals"):
        parse_rate(text)


@pytest.mark.parametrize(("parse", "most"), [(parse_rate, MOST_RATE // 10**9), (parse_amount, MOST_AMOUNT // 10**6)])
def test_nothing_costs_more_than_numbers_can_hold(parse: Callable[[str], int], most: int) -> None:
    """Also written with more digits than Python reads, or with zeros in front."""
    assert parse(f"{most}") == parse(f"000{most}.000") > 0
    for text in (f"{most}.000001", f"{most + 1}", "1" + "0" * 300, "9" * 10_000):
        with pytest.raises(TooMuch, match=f"expected at most {most} dollars"):
            parse(text)


def test_a_fleet_at_the_highest_price_is_counted_in_64_bits() -> None:
    """A thousand machines for a year."""
    assert 1_000 * cost(MOST_RATE, 365 * 24 * HOUR_MS) < 1 << 63
