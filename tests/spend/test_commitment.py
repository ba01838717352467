from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate, billed_ms, cost
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment
from cloud_dispatch.spend.windows import DAY_MS, Window, span_at, spans

NOW = 1_700_000_000_000
RATES = st.integers(min_value=0, max_value=50_000_000_000)
DURATIONS = st.integers(min_value=0, max_value=40 * DAY_MS)


def whole(one: Commitment) -> Amount:
    return one.charge(span_at(Window.TOTAL, NOW))


def commitment(rate: int, duration_ms: int, *, minimum_ms: int = 0, increment_ms: int = 1) -> Commitment:
    return Commitment("vm", (EVERYTHING,), Rate(rate), NOW, NOW + duration_ms, minimum_ms, increment_ms)


def test_the_whole_is_what_the_provider_would_bill() -> None:
    one = commitment(1_000_000_000, 30_000, minimum_ms=60_000)
    assert whole(one) == cost(Rate(1_000_000_000), 30_000, minimum_ms=60_000) == Amount(16_667)
    assert one.billed_until_ms == NOW + 60_000


def test_a_minimum_that_reaches_into_the_next_window_is_booked_there() -> None:
    hour = span_at(Window.HOUR, NOW)
    late = Commitment("vm", (EVERYTHING,), Rate(3_600_000_000), hour.end_ms - 1_000, hour.end_ms - 500, 60_000)
    assert late.charge(hour) == 1_000  # a second of it
    assert late.charge(span_at(Window.HOUR, hour.end_ms)) == 59_000


@given(
    st.sampled_from(Window), RATES, RATES, DURATIONS, DURATIONS, DURATIONS, DURATIONS,
    st.sampled_from([0, 60_000, HOUR_MS]), st.sampled_from([1, 1000, 60_000, HOUR_MS]),
)  # fmt: skip
def test_what_really_was_never_charges_more_than_its_commitment(
    window: Window, rate: int, less: int, duration: int, begins: int, later: int, earlier: int, minimum_ms: int,
    increment_ms: int,
) -> None:  # fmt: skip
    """Begun later, ended earlier, at a lower price: in no window may that come to more."""
    begins_by = NOW + begins % (duration + 1)
    promised = Commitment(
        "vm", (EVERYTHING,), Rate(rate), NOW, NOW + duration, minimum_ms, increment_ms, begins_by
    )  # fmt: skip
    start = NOW + later % (begins_by - NOW + 1)
    end = start + earlier % (NOW + duration - start + 1)
    billed = billed_ms(end - start, minimum_ms=minimum_ms, increment_ms=increment_ms)
    for span in spans(window, NOW, promised.billed_until_ms):
        assert cost(Rate(min(rate, less)), span.overlap_ms(start, start + billed)) <= promised.charge(span)
    assert start + billed <= promised.billed_until_ms


def test_nothing_begins_after_its_end() -> None:
    """However late it is said to: a minimum counts from the end at the latest."""
    one = commitment(1_000_000_000, 30_000, minimum_ms=60_000)
    late = replace(one, begins_by_ms=NOW + HOUR_MS)
    assert late.billed_until_ms == replace(one, begins_by_ms=one.until_ms).billed_until_ms == NOW + 90_000


@given(st.sampled_from(Window), RATES, DURATIONS)
def test_windows_together_hold_the_whole(window: Window, rate: int, duration: int) -> None:
    one = commitment(rate, duration)
    parts = [one.charge(span) for span in spans(window, NOW, one.billed_until_ms)]
    assert whole(one) <= sum(parts) < whole(one) + len(parts)


def test_amounts_are_exact_for_ten_years_of_a_hundred_thousand_instances() -> None:
    """And fit a database's 64-bit integers."""
    ten_years = 3_653 * DAY_MS
    one = Commitment("vm", (EVERYTHING,), Rate(98_765_432_109), NOW, NOW + ten_years)
    total = whole(one) * 100_000
    assert whole(one) == -(-98_765_432_109 * ten_years // (HOUR_MS * 1_000))
    assert total < 2**63
