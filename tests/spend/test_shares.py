"""Shares: they sum to the amount exactly, nobody is charged for less than nothing, and each as much as he used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine, Shape, room_for
from cloud_dispatch.spend import shares as module
from cloud_dispatch.spend.shares import (
    WHOLE,
    Share,
    Use,
    pieces_of,
    shares_of,
    use_of,
    weight_of,
)
from cloud_dispatch.spend.windows import DAY_MS

MIDNIGHT = 19_700 * DAY_MS
HOUR = 3_600_000
ADA, BEN = Payer("genes", "ada"), Payer("stars", "ben")
OWNERS = st.sampled_from([ADA, BEN, Payer("genes", "cyd"), NOBODY])
USES = st.builds(
    lambda payer, counted, weight, start, length: use_of(payer, counted, weight, start, start + length),
    OWNERS, st.booleans(), st.integers(1, WHOLE), st.integers(MIDNIGHT - 2 * DAY_MS, MIDNIGHT + 5 * DAY_MS),
    st.one_of(st.integers(0, 10), st.integers(0, 4 * DAY_MS)),
)  # fmt: skip
LIVES = st.tuples(st.integers(-DAY_MS, DAY_MS), st.one_of(st.just(0), st.integers(0, 4 * DAY_MS))).map(
    lambda life: (MIDNIGHT + life[0], MIDNIGHT + life[0] + life[1])
)
AMOUNTS = st.one_of(st.integers(0, 50), st.integers(0, 10**15)).map(Amount)


def hours(payer: Payer, start: float, end: float, *, counted: bool = True, weight: int = WHOLE) -> Use:
    """From and until hours after midnight."""
    return use_of(payer, counted, weight, MIDNIGHT + round(start * HOUR), MIDNIGHT + round(end * HOUR) - 1)


def added_up(uses: Sequence[Use]) -> list[Use]:
    """As the database hands them out."""
    groups: dict[tuple[object, ...], Use] = {}
    for use in uses:
        kind = use[:5]
        known = groups.get(kind, Use(*kind, 0, 0, 0))
        groups[kind] = Use(
            *kind, known.head_ms + use.head_ms, known.tail_ms + use.tail_ms, known.attempts + use.attempts
        )
    return list(groups.values())


@given(AMOUNTS, LIVES, st.lists(USES, max_size=12))
@settings(deadline=None)
def test_shares_sum_to_the_amount_and_none_is_negative(
    amount: Amount, life: tuple[int, int], uses: list[Use]
) -> None:  # fmt: skip
    found = shares_of(amount, *life, uses)
    assert sum(share.whole for share in found) == amount
    assert found
    for share in found:
        assert min(share.work, share.retry, share.idle, share.work_time, share.retry_time) >= 0
        assert life[0] - DAY_MS < share.day_ms <= life[1]
        assert share.day_ms % DAY_MS == 0
    assert len({(share.day_ms, share.payer) for share in found}) == len(found)
    whole = sum(use.before(use.last_day + 1) for use in uses)
    assert sum(share.work_time + share.retry_time for share in found) == whole


@given(AMOUNTS, LIVES, st.lists(USES, max_size=12), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_shares_do_not_depend_on_the_order_nor_on_who_adds_up(
    amount: Amount, life: tuple[int, int], uses: list[Use], chance: Random
) -> None:  # fmt: skip
    found = shares_of(amount, *life, uses)
    mixed = uses[:]
    chance.shuffle(mixed)
    assert shares_of(amount, *life, mixed) == found
    assert shares_of(amount, *life, added_up(mixed)) == found


@given(AMOUNTS, LIVES, st.lists(USES, max_size=12), st.integers(0, 12), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_pieces_sum_to_each_share_also_when_attempts_are_forgotten(
    amount: Amount, life: tuple[int, int], uses: list[Use], forgotten: int, chance: Random
) -> None:  # fmt: skip
    found = shares_of(amount, *life, uses)
    attempts = list(enumerate(uses))
    chance.shuffle(attempts)
    pieces = pieces_of(found, *life, attempts)
    summed: Counter[tuple[int, Payer, str]] = Counter()
    for piece in pieces:
        assert min(piece.work, piece.retry, piece.idle) >= 0
        for part in ("work", "retry", "idle"):
            summed[piece.day_ms, piece.payer, part] += getattr(piece, part)
    for share in found:
        for part in ("work", "retry", "idle"):
            assert summed[share.day_ms, share.payer, part] == getattr(share, part)
    assert pieces_of(found, *life, sorted(attempts, key=lambda one: -one[0])) == pieces
    if uses:
        assert all(piece.key is not None for piece in pieces)
    left = pieces_of(found, *life, [one for one in attempts if one[0] >= forgotten])
    assert sum(piece.work + piece.retry + piece.idle for piece in left) == amount
    for key in range(forgotten, len(uses)):
        was, now = (sum(sum(p[3:]) for p in some if p.key == key) for some in (pieces, left))
        assert abs(was - now) <= 3 * len({share.day_ms for share in found}), "a neighbour's pruning changed a price"


def test_time_and_part_of_the_machine_decide_and_idle_follows() -> None:
    """Ten hours for $10: ada has half the machine for four hours, ben all of it for two, of which one was in vain."""
    uses = [
        hours(ADA, 1, 5, weight=WHOLE // 2), hours(BEN, 5, 6), hours(BEN, 6, 7, counted=False),
    ]  # fmt: skip
    found = shares_of(Amount(10_000_000), MIDNIGHT, MIDNIGHT + 10 * HOUR, uses)
    assert [(s.payer, s.work, s.retry, s.idle) for s in found] == [
        (ADA, 2_000_000, 0, 3_000_000), (BEN, 1_000_000, 1_000_000, 3_000_000),
    ]  # fmt: skip


def test_each_day_is_paid_by_those_who_ran_on_it() -> None:
    """Three days at a dollar an hour: ada all of the first, ben an hour of the third; the second is theirs as much as
    each used in all."""
    uses = [hours(ADA, 0, 24), hours(BEN, 50, 51)]
    found = shares_of(Amount(72_000_000), MIDNIGHT, MIDNIGHT + 72 * HOUR, uses)
    days = [((s.day_ms - MIDNIGHT) // DAY_MS, s.payer, s.work, s.idle) for s in found]
    assert days == [
        (0, ADA, 24_000_000, 0),
        (1, ADA, 0, 23_040_000), (1, BEN, 0, 960_000),
        (2, BEN, 1_000_000, 23_000_000),
    ]  # fmt: skip


def test_an_attempt_over_midnight_is_paid_on_both_days() -> None:
    found = shares_of(Amount(4_000_000), MIDNIGHT + 22 * HOUR, MIDNIGHT + 26 * HOUR, [hours(ADA, 22, 25)])
    assert [(s.work, s.idle) for s in found] == [(2_000_000, 0), (1_000_000, 1_000_000)]


def test_where_nothing_ran_nobody_is_named() -> None:
    found = shares_of(Amount(48), MIDNIGHT, MIDNIGHT + 48 * HOUR, [])
    assert found == [Share(MIDNIGHT, NOBODY, 0, 0, 24), Share(MIDNIGHT + DAY_MS, NOBODY, 0, 0, 24)]
    assert shares_of(Amount(0), MIDNIGHT, MIDNIGHT, []) == [Share(MIDNIGHT, NOBODY, 0, 0, 0)]


def test_an_attempt_of_no_time_still_pays() -> None:
    """Two tasks that began and ended within a millisecond share the machine that was rented for them."""
    uses = [use_of(payer, True, WHOLE // 4, MIDNIGHT + HOUR, MIDNIGHT + HOUR) for payer in (ADA, BEN)]
    found = shares_of(Amount(1_000_000), MIDNIGHT, MIDNIGHT + 2 * HOUR, uses)
    assert [(s.payer, s.whole) for s in found] == [(ADA, 500_000), (BEN, 500_000)]


def test_more_time_than_there_was_is_shared_in_proportion() -> None:
    """Attempts that overlap, as clocks and late reports make them, are not charged twice."""
    uses = [hours(ADA, 0, 2), hours(BEN, 1, 2)]
    found = shares_of(Amount(3_000_000), MIDNIGHT, MIDNIGHT + 2 * HOUR, uses)
    assert [(s.payer, s.work, s.idle) for s in found] == [(ADA, 2_000_000, 0), (BEN, 1_000_000, 0)]


SHAPES = st.builds(
    lambda cpus, memory, gpus: Shape(Resources(cpus, memory, 0, gpus)),
    st.integers(1_000, 16_000), st.integers(0, 64 * GIB), st.integers(0, 4),
)  # fmt: skip


@given(st.lists(SHAPES, min_size=1, max_size=40), st.sampled_from([0, 1, 8]))
def test_what_fits_together_never_asks_for_more_than_the_machine(shapes: list[Shape], gpus: int) -> None:
    machine, load, weight = Machine(Resources(16_000, 64 * GIB, 0, gpus)), Load(), 0
    for shape in shapes:
        if room_for(machine, load, shape, 1):
            load, weight = load.plus(shape), weight + weight_of(machine, shape)
    assert weight <= WHOLE


@pytest.mark.parametrize(
    ("shape", "weight"),
    [
        (Shape(Resources(8_000, 16 * GIB)), 375_000),
        (Shape(Resources(8_000, 16 * GIB), exclusive=True), WHOLE),
        (Shape(Resources(16_000, 64 * GIB)), WHOLE),
        (Shape(Resources(1, 1)), 31),
    ],
)
def test_the_weight_is_the_mean_of_what_is_asked_for(shape: Shape, weight: int) -> None:
    assert weight_of(Machine(Resources(16_000, 64 * GIB)), shape) == weight


def _plain(amount: Amount, weights: Sequence[int]) -> tuple[Amount, ...]:
    """Each part rounded down: the odd micro-dollars are lost."""
    total = sum(weights)
    return tuple(Amount(amount * weight // total if total else 0) for weight in weights)


def test_a_split_that_loses_money_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the properties look for, by example: three who used as much, and a dollar."""
    uses = [hours(Payer(name), hour, hour + 1) for hour, name in enumerate("abc")]
    life = (MIDNIGHT, MIDNIGHT + 3 * HOUR)
    assert sum(share.whole for share in shares_of(Amount(1_000_000), *life, uses)) == 1_000_000
    monkeypatch.setattr(module, "split", _plain)
    assert sum(share.whole for share in shares_of(Amount(1_000_000), *life, uses)) == 999_999
