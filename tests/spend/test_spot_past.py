"""What is remembered of spot VMs: how often one was preempted, in how much running time, and how that fades."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.preemptions import Preemptions
from cloud_dispatch.spend.spot_past import HALF_LIFE_MS, MEAN_LIFE_MS, SpotPast
from cloud_dispatch.testing.store_builders import instance

MINUTE_MS = 60_000
BORN_MS = 1_000 * HOUR_MS
_S = InstanceState


def vm(name: str = "vm", *, zone: str = "a", since_ms: int = BORN_MS, **more: Any) -> Instance:
    """A spot VM that works."""
    usual = replace(instance("batch", 0), id=InstanceId(name), vm=VmId(name), market=Market.SPOT, state=_S.IDLE)
    return replace(usual, zone=zone, intended_ms=since_ms, **more)


def gone(own: Instance, ran_ms: int, cause: str = "preempted") -> Instance:
    return replace(own, state=_S.GONE, cause=cause, ended_ms=own.intended_ms + ran_ms)


def after(*lives: tuple[Instance, Instance]) -> SpotPast:
    """What is known once each of them has come and gone, as the store says it."""
    past = SpotPast()
    for begun, ended in lives:
        past.see(None, begun)
        past.see(begun, ended)
    return past


def by_zone(past: SpotPast, now_ms: int) -> dict[str, tuple[int, int]]:
    return {one.zone: (one.preempted, one.ran_ms) for one in past.seen(now_ms)}


def nearly(minutes: float) -> Any:
    return pytest.approx(minutes * MINUTE_MS, rel=0.02)


def test_preemptions_and_running_time_are_counted() -> None:
    """Of all that were of a type in a zone, however they ended."""
    past = after(
        (vm("b-0"), gone(vm("b-0"), 4 * MINUTE_MS)), (vm("b-1"), gone(vm("b-1"), 4 * MINUTE_MS, "idle")),
        (vm("b-2", zone="b"), gone(vm("b-2", zone="b"), 2 * MINUTE_MS, "idle")),
    )  # fmt: skip
    (a, b) = past.seen(BORN_MS + 4 * MINUTE_MS)
    own = vm()
    assert a == Preemptions(own.profile, own.type, "a", 1000, a.ran_ms)
    assert (a.ran_ms, b.preempted, b.ran_ms) == (nearly(8), 0, nearly(2))


def test_nothing_is_said_as_long_as_nothing_was_preempted() -> None:
    """However much ran."""
    assert after((vm(), gone(vm(), HOUR_MS, "idle"))).seen(BORN_MS + HOUR_MS) == ()


@pytest.mark.parametrize(
    "own",
    [vm(market=Market.ON_DEMAND), vm(vm=VmId(""))],
    ids=["on demand nothing is preempted", "what never had a VM did not run"],
)
def test_what_says_nothing_is_not_counted(own: Instance) -> None:
    assert after((own, gone(own, HOUR_MS))).seen(BORN_MS + HOUR_MS) == ()


def test_what_was_seen_fades() -> None:
    """It counts half after the half-life, and at last not at all: then nothing is kept of it either."""
    past = after((vm(), gone(vm(), 4 * MINUTE_MS)))
    ended = BORN_MS + 4 * MINUTE_MS
    assert by_zone(past, ended + HALF_LIFE_MS) == {"a": (500, nearly(2))}
    assert by_zone(past, ended + 3 * HALF_LIFE_MS) == {"a": (125, nearly(0.5))}
    assert past.seen(ended + 20 * HALF_LIFE_MS) == ()


def test_what_counts_no_more_is_forgotten() -> None:
    """While something is preempted elsewhere: else nothing is looked at."""
    past = after((vm("b-0"), gone(vm("b-0"), HOUR_MS, "idle")))
    later = vm("b-1", zone="b", since_ms=BORN_MS + 30 * HALF_LIFE_MS)
    past.ended(gone(later, MINUTE_MS))
    assert by_zone(past, later.intended_ms + MINUTE_MS).keys() == {"b"}
    assert [place.zone for place in past._counts] == ["b"]


def test_a_long_run_counts_as_long_as_what_of_it_is_not_past() -> None:
    """A VM that has run for weeks says no more than what ran for the last hours."""
    past = after((vm(since_ms=0), gone(vm(since_ms=0), BORN_MS)))
    ((_, ran_ms),) = by_zone(past, BORN_MS).values()
    assert ran_ms == pytest.approx(HALF_LIFE_MS / 0.6931, rel=0.01)


def test_those_that_live_have_run_without_being_preempted() -> None:
    """Asked again, they have run for longer; one that has moved is counted where it is."""
    past = after((vm("b-0"), gone(vm("b-0"), MINUTE_MS)))
    past.see(None, vm("b-1"))
    past.see(None, vm("b-2", zone="b"))
    past.see(vm("b-2", zone="b"), vm("b-2", zone="c"))
    assert by_zone(past, BORN_MS + MINUTE_MS) == {"a": (1000, nearly(2)), "c": (0, nearly(1))}
    (a, c) = past.seen(BORN_MS + 11 * MINUTE_MS)
    assert (a.ran_ms, c.ran_ms) == (nearly(11.6), nearly(10.7))
    past.see(vm("b-1"), gone(vm("b-1"), 11 * MINUTE_MS, "idle"))
    assert past.seen(BORN_MS + 11 * MINUTE_MS) == (a, c), "that it ended changes nothing about how long it ran"
    assert set(past.living.values()) == {1}


def test_one_that_has_run_for_long_does_not_speak_for_those_beside_it() -> None:
    """Each has run for as long as it has: not all of them for as long as in the mean."""
    past = after((vm(since_ms=BORN_MS - 4 * MINUTE_MS), gone(vm(since_ms=BORN_MS - 4 * MINUTE_MS), 4 * MINUTE_MS)))
    past.see(None, vm("old", since_ms=0))
    for number in range(20):
        past.see(None, vm(f"b-{number}", since_ms=BORN_MS - 2 * MINUTE_MS))
    assert by_zone(past, BORN_MS) == {"a": (1000, nearly(MEAN_LIFE_MS / MINUTE_MS + 4 + 20 * 2))}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600), st.booleans()), min_size=1, max_size=12))
def test_whoever_comes_and_goes_each_counts_for_its_own_time(lives: list[tuple[int, int, bool]]) -> None:
    """The same as if every VM, those that live too, were asked how long it has run."""
    now_ms = BORN_MS + 1200 * MINUTE_MS
    taken = vm(since_ms=now_ms - MINUTE_MS)
    moves: list[tuple[int, int, Instance | None, Instance]] = []
    past, expected = SpotPast(), MEAN_LIFE_MS * (1 - 0.5 ** (1 / 120))
    for number, (since, minutes, ends) in enumerate(lives):
        own = vm(f"b-{number}", since_ms=BORN_MS + since * MINUTE_MS)
        moves.append((since, number, None, own))
        if ends:
            moves.append((since + minutes, number, own, gone(own, minutes * MINUTE_MS, "idle")))
        until = since + minutes if ends else 1200
        expected += MEAN_LIFE_MS * (0.5 ** ((1200 - until) / 120) - 0.5 ** ((1200 - since) / 120))
    for _, _, before, now in sorted(moves, key=lambda move: (move[0], move[1], move[2] is not None)):
        past.see(before, now)
    past.ended(gone(taken, MINUTE_MS))
    ((_, ran_ms),) = by_zone(past, now_ms).values()
    assert ran_ms == pytest.approx(expected, abs=2)


def test_what_got_another_market_or_its_vm_later_is_counted_as_what_it_is() -> None:
    """Neither is one fewer alive than there are, nor does one run that has no VM."""
    past = SpotPast()
    past.see(None, vm(vm=VmId(""), state=_S.LAUNCHING))
    assert past.living == {}
    past.see(vm(vm=VmId(""), state=_S.LAUNCHING), vm())
    past.see(vm(), vm(market=Market.ON_DEMAND))
    assert past.living == {}
    past.see(vm(market=Market.ON_DEMAND), vm())
    assert list(past.living.values()) == [1]


def test_what_lives_is_counted_whatever_the_clock_said_when_it_began() -> None:
    """One that began while it was ahead has not run by the right one, and takes nothing from the others."""
    past = after((vm(), gone(vm(), 4 * MINUTE_MS)))
    ahead, right = vm("ahead", since_ms=BORN_MS + 1000 * HOUR_MS), vm("right", since_ms=BORN_MS + HOUR_MS)
    past.see(None, ahead)
    past.seen(BORN_MS + HOUR_MS)
    past.see(None, right)
    past.ended(gone(vm("b-1", since_ms=BORN_MS + HOUR_MS), 4 * MINUTE_MS))
    assert by_zone(past, BORN_MS + 2 * HOUR_MS)["a"][1] >= 60 * MINUTE_MS * 0.8
    past.see(ahead, gone(ahead, 0, "idle"))
    past.see(right, gone(right, HOUR_MS, "idle"))
    assert past.living == {}


def test_the_order_in_which_ends_become_known_does_not_matter() -> None:
    """One that ended hours ago and was found now counts for what it is."""
    lives = [gone(vm(f"b-{n}", since_ms=BORN_MS + n * HOUR_MS), (n + 1) * MINUTE_MS) for n in range(4)]

    def known(ended: Iterable[Instance]) -> dict[str, tuple[int, int]]:
        past = SpotPast()
        for one in ended:
            past.ended(one)
        return by_zone(past, BORN_MS + 5 * HOUR_MS)

    ((preempted, ran_ms),) = known(lives).values()
    assert known(reversed(lives)) == {"a": (preempted, pytest.approx(ran_ms, abs=1))}


def test_what_was_noted_while_the_clock_was_ahead_fades_from_when_it_is_right() -> None:
    """And what comes after is counted beside it."""
    past = SpotPast()
    past.ended(gone(vm("b-0", since_ms=BORN_MS + 1000 * HOUR_MS), 4 * MINUTE_MS))
    assert by_zone(past, BORN_MS) == {"a": (1000, nearly(4))}
    past.ended(gone(vm("b-1", since_ms=BORN_MS), 4 * MINUTE_MS))
    assert by_zone(past, BORN_MS + HALF_LIFE_MS) == {"a": (pytest.approx(1000, rel=0.02), nearly(4))}
