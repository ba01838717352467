from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment
from cloud_dispatch.spend.ledger import Life, Parts, row_of, time_of
from cloud_dispatch.spend.windows import Window, span_at

NOW = 1_700_000_000_000
MINUTE = 60_000
DOLLAR_A_MINUTE = Rate(60_000_000_000)
NOTHING = Commitment("vm", (EVERYTHING,), Rate(0), NOW, NOW)


def whole(one: Commitment) -> Amount:
    return one.charge(span_at(Window.TOTAL, NOW))


def life(minutes: int = 10, **more: object) -> Life:
    """Bounded by what it was, unless told otherwise."""
    own = replace(Life(NOW, NOW + minutes * MINUTE, DOLLAR_A_MINUTE, NOTHING), **more)  # type: ignore[arg-type]
    if "bound" in more:
        return own
    return replace(own, bound=promise(own, own.rate))


def promise(own: Life, rate: Rate, earlier_ms: int = 0, later_ms: int = 0) -> Commitment:
    began, ended = own.began_ms - earlier_ms, max(own.ended_ms, own.began_ms) + later_ms
    return Commitment("vm", (EVERYTHING,), rate, began, ended, own.minimum_ms, own.increment_ms, began)


def span(start: int, end: int) -> tuple[int, int]:
    return NOW + start * MINUTE, NOW + end * MINUTE


def test_a_life_is_split_into_what_it_did() -> None:
    """Two minutes to boot; tasks from 3 to 6, of which one from 5 to 8 was lost."""
    row = row_of(life(served_ms=NOW + 2 * MINUTE, worked=[span(3, 5), span(4, 6)], lost=[span(5, 8)]))
    assert row.time == Parts(2 * MINUTE, 3 * MINUTE, 3 * MINUTE, 2 * MINUTE)
    assert row.parts == Parts(2_000_000, 3_000_000, 3_000_000, 2_000_000)
    assert row.amount == row.bound == 10_000_000


def test_one_that_never_served_only_booted() -> None:
    assert row_of(life()).parts == Parts(boot=10_000_000)


def test_a_minimum_is_in_proportion_to_what_it_did() -> None:
    row = row_of(life(1, served_ms=NOW + MINUTE // 2, minimum_ms=2 * MINUTE))
    assert (row.amount, row.parts) == (2_000_000, Parts(boot=1_000_000, idle=1_000_000))
    assert row.until_ms == NOW + 2 * MINUTE


def test_what_counts_against_limits_is_the_highest_price_from_the_earliest_moment_to_the_latest() -> None:
    one = life()
    row = row_of(replace(one, bound=promise(one, Rate(2 * DOLLAR_A_MINUTE), MINUTE, 2 * MINUTE)))
    assert (row.amount, row.bound) == (10_000_000, 26_000_000)
    assert (row.bound_from_ms, row.bound_until_ms, row.bound_most_ms) == (NOW - MINUTE, NOW + 12 * MINUTE, 13 * MINUTE)


def test_an_end_before_the_beginning_costs_nothing() -> None:
    """Clocks of a provider and of the dispatcher need not agree."""
    assert row_of(life(0, ended_ms=NOW - MINUTE)).amount == 0


@given(
    st.integers(0, 600), st.integers(0, 700), st.lists(st.tuples(st.integers(-50, 700), st.integers(-50, 700))),
    st.lists(st.tuples(st.integers(-50, 700), st.integers(-50, 700))), st.integers(0, 50_000_000_000),
    st.sampled_from([0, MINUTE, 60 * MINUTE]), st.sampled_from([1, 1_000, MINUTE]),
)  # fmt: skip
def test_parts_sum_to_the_whole_and_the_commitment_holds_it(
    minutes: int, served: int, worked: list[tuple[int, int]], lost: list[tuple[int, int]], rate: int, minimum_ms: int,
    increment_ms: int,
) -> None:  # fmt: skip
    one = life(
        minutes, served_ms=NOW + served * MINUTE, worked=[span(*s) for s in worked], lost=[span(*s) for s in lost],
        rate=Rate(rate // 2), minimum_ms=minimum_ms, increment_ms=increment_ms,
    )  # fmt: skip
    promised = promise(one, Rate(rate))
    row = row_of(replace(one, bound=promised))
    assert row.time == time_of(one)
    assert row.time.whole == minutes * MINUTE
    assert min(row.time.boot, row.time.work, row.time.idle, row.time.lost) >= 0
    assert row.parts.whole == row.amount <= row.bound
    assert row.bound == whole(promised)
