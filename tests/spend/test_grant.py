"""Grants to VMs' own timers: whatever is delayed, lost or lied about, no timer runs beyond the committed hard end."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.grant import NO_GRANT, Terms, first_ms, terms, timer_lease_ms, words
from cloud_dispatch.testing import store_builders

MINUTE = 60_000
HOUR = 60 * MINUTE
LEASE = 30 * MINUTE
MOST = 4096


class Life(NamedTuple):
    """A VM from its intent on, milliseconds after it. `boot_ms`: how long until its birth."""

    instance: Instance
    boot_ms: int
    terms: Terms
    lease_ms: int

    @property
    def lasts_ms(self) -> int:
        """The lease, where steps are long."""
        return max(self.lease_ms, 3 * self.terms.step_ms)

    def end(self, age_ms: int, now_ms: int) -> int | None:
        """When its timer ends by the words that a request at `age_ms` is answered with at `now_ms`; None without."""
        count = words(self.instance, self.terms, age_ms, now_ms, self.lease_ms)
        return self.boot_ms + count * self.terms.step_ms if count else None


@st.composite
def lives(draw: st.DrawFn) -> Life:
    lifetime_ms, lease_ms = draw(st.integers(MINUTE, 400 * 24 * HOUR)), draw(st.integers(1_000, 4 * HOUR))
    row = replace(row_of(InstanceState.IDLE), ends_ms=draw(st.integers(1, lifetime_ms)))
    return Life(row, draw(st.integers(0, 2 * HOUR)), terms(lifetime_ms, lease_ms, MOST), lease_ms)


def test_past_its_hard_end_there_is_no_word() -> None:
    """However late somebody asks, and however old he says that he is."""
    row = replace(row_of(InstanceState.BUSY), intended_ms=5 * HOUR, ends_ms=6 * HOUR)
    own = terms(HOUR, LEASE, MOST)
    for late_ms in (0, MINUTE, 10 * HOUR):
        assert words(row, own, 0, 6 * HOUR + late_ms, LEASE) == 0
    assert words(row, own, 40 * HOUR, 5 * HOUR + 10 * MINUTE, LEASE) == words(
        row, own, 10 * MINUTE, 5 * HOUR + 10 * MINUTE, LEASE
    )


def row_of(state: InstanceState) -> Instance:
    return replace(store_builders.instance(), state=state, intended_ms=0)


@given(lives(), st.integers(0, 400 * 24 * HOUR), st.integers(0, HOUR))
def test_an_honest_timer_never_runs_beyond_the_hard_end(life: Life, age_ms: int, delay_ms: int) -> None:
    end = life.end(age_ms, life.boot_ms + age_ms + delay_ms)
    assert end is None or end <= life.instance.ends_ms


@given(lives(), st.integers(0, 400 * 24 * HOUR), st.integers(-HOUR, 10**12), st.integers(0, HOUR))
def test_a_lie_gains_at_most_the_time_to_boot(life: Life, age_ms: int, lie_ms: int, delay_ms: int) -> None:
    end = life.end(lie_ms, life.boot_ms + age_ms + delay_ms)
    assert end is None or end <= life.instance.ends_ms + life.boot_ms


@given(lives(), st.integers(0, 24 * HOUR), st.integers(0, HOUR), st.integers(1, HOUR))
def test_a_delay_only_shortens(life: Life, age_ms: int, delay_ms: int, more_ms: int) -> None:
    sooner, later = (life.end(age_ms, life.boot_ms + age_ms + each) for each in (delay_ms, delay_ms + more_ms))
    assert (later or 0) <= (sooner or 0)


@given(lives(), st.integers(0, 24 * HOUR))
def test_no_grant_reaches_further_than_a_lease(life: Life, age_ms: int) -> None:
    end = life.end(age_ms, life.boot_ms + age_ms)
    assert end is None or end <= life.boot_ms + age_ms + life.lasts_ms


@given(st.integers(0, 10**9), st.integers(-HOUR, 10**9), st.integers(1, HOUR), st.integers(1_000, HOUR))
def test_a_timer_that_hears_nothing_ends_with_the_first_hard_end(
    now_ms: int, left_ms: int, boot_ms: int, lease_ms: int
) -> None:
    """But for the time to boot, which the wall clock takes away: the timer looks at that too."""
    assert first_ms(now_ms, now_ms + left_ms, boot_ms, lease_ms) == max(min(left_ms, boot_ms + lease_ms), 1)


@given(lives(), st.integers(0, HOUR), st.integers(0, HOUR))
def test_a_vm_that_asks_at_half_a_lease_lives_to_its_end(life: Life, late_ms: int, delay_ms: int) -> None:
    """But for a step, however long its pool's lifetime is: the words last, and each answer moves the timer on."""
    quick_ms = life.lease_ms // 16
    until_ms, now_ms, answers = life.boot_ms + life.lease_ms, life.boot_ms, 0
    while until_ms < life.instance.ends_ms - life.terms.step_ms:
        asked_ms = max(until_ms - life.lease_ms // 2, now_ms) + late_ms % (quick_ms + 1)
        now_ms = asked_ms + delay_ms % (quick_ms + 1)
        end = life.end(asked_ms - life.boot_ms, now_ms)
        assert end is not None
        assert end > until_ms or end > life.instance.ends_ms - life.terms.step_ms - (now_ms - asked_ms)
        if end <= until_ms:
            break
        until_ms, answers = end, answers + 1
    assert life.terms.links <= MOST
    assert answers <= 2 * MOST


@pytest.mark.parametrize("state", InstanceState)
def test_what_shall_end_gets_no_word(state: InstanceState) -> None:
    row = replace(row_of(state), ends_ms=HOUR)
    own = terms(HOUR, LEASE, MOST)
    assert bool(words(row, own, 10 * MINUTE, 12 * MINUTE, LEASE)) == (state not in NO_GRANT)


def test_words_of_the_usual_pool() -> None:
    """A day to live: two minutes for each word, rounded down."""
    own = terms(24 * HOUR, LEASE, MOST)
    assert own == Terms(2 * MINUTE, 720)
    row = replace(row_of(InstanceState.BUSY), ends_ms=24 * HOUR)

    def said(age_ms: int, late_ms: int = MINUTE) -> int:
        return words(row, own, age_ms, age_ms + late_ms, LEASE)

    assert [said(0), said(MINUTE), said(2 * MINUTE), said(2 * HOUR)] == [15, 15, 16, 75]
    assert [said(24 * HOUR - 5 * MINUTE), said(24 * HOUR - 5 * MINUTE, 0)] == [719, 720]
    assert (said(25 * HOUR), said(-HOUR, 25 * HOUR)) == (719, 0), "which is over"


def test_a_lease_is_longer_than_agents_endure_silence() -> None:
    assert timer_lease_ms(Pace(), 10 * MINUTE) == timer_lease_ms(Pace(), MINUTE) == LEASE
    assert timer_lease_ms(Pace(), 2 * HOUR) == 6 * HOUR


def test_no_more_words_are_said_than_there_are() -> None:
    """However far off the hard end is, and however long the lease."""
    row = replace(row_of(InstanceState.BUSY), ends_ms=100 * HOUR)
    own = terms(HOUR, LEASE, MOST)
    assert words(row, own, 59 * MINUTE, HOUR, LEASE) == own.links
    assert words(row, own, 0, 0, 50 * HOUR) == own.links
