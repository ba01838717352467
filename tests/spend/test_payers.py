"""What claims cost payers: parts of a machine, and what is committed for a claim."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine, Shape
from cloud_dispatch.domain.shape import room_for as task_room
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.payers import (
    ClaimTerms,
    Place,
    Wanted,
    admitted,
    cheapest,
    keys_of_payer,
    part_rate,
    place_of,
    room_for,
    wanted_at,
)
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import DAY_MS, Window, span_at, spans
from cloud_dispatch.testing.store_builders import instance
from tests.spend.history import START_MS

DOLLAR = 1_000_000
RATE = Rate(1_000_000_000)
BEGUN_MS = instance().intended_ms
PAYER = Payer("genomes", "ann")
PROJECT, USER = keys_of_payer(PAYER)
MACHINE = Machine(Resources(4_000, 8 * GIB))
HALF = Shape(Resources(2_000, 4 * GIB))

RESOURCES = st.builds(
    Resources, st.integers(1, 16_000), st.integers(0, 64 * GIB), st.integers(0, 10 * GIB), st.integers(0, 4)
)
SHAPES = st.builds(Shape, RESOURCES, exclusive=st.sampled_from([False, False, False, True]))


@given(
    st.builds(
        Resources, st.integers(0, 64_000), st.integers(0, 256 * GIB), st.integers(0, 100 * GIB), st.integers(0, 8)
    ),
    st.lists(SHAPES, min_size=1, max_size=12),
    st.integers(0, 50_000_000_000),
)
def test_parts_of_what_fits_together_never_exceed_the_machine(have: Resources, shapes: list[Shape], rate: int) -> None:
    """Rounding apart: less than a billionth of a dollar an hour each. What fills the machine pays for all of it."""
    machine, load, shares = Machine(have), Load(), []
    for shape in shapes:
        if task_room(machine, load, shape, 1):
            load = load.plus(shape)
            shares.append(part_rate(Rate(rate), shape.resources, exclusive=shape.exclusive, capacity=machine.capacity))
    assert sum(shares) - len(shares) <= rate
    assert all(0 <= share <= rate for share in shares)
    whole = part_rate(Rate(rate), have, exclusive=False, capacity=have)
    assert whole == rate


@given(RESOURCES, RESOURCES, st.integers(0, 50_000_000_000))
def test_a_part_is_the_mean_of_the_parts_that_a_machine_has(want: Resources, have: Resources, rate: int) -> None:
    """By fractions, which never round."""
    want = Resources(*(min(a, b) for a, b in zip(_amounts(want), _amounts(have), strict=True)))
    pairs = [(want.cpus_milli, have.cpus_milli), (want.memory, have.memory), (want.gpus, have.gpus)]
    parts = [Fraction(a, b) for a, b in pairs if b]
    exact = rate * sum(parts, Fraction(0)) / len(parts)
    part = part_rate(Rate(rate), want, exclusive=False, capacity=have)
    assert exact <= part < exact + 1
    assert part_rate(Rate(rate), want, exclusive=True, capacity=have) == rate


def _amounts(one: Resources) -> tuple[int, int, int, int]:
    return one.cpus_milli, one.memory, one.disk, one.gpus


def place(*, minutes: int = 60, lifetime_hours: int | None = 10) -> Place:
    """A dollar an hour, until so many minutes from the start."""
    latest = None if lifetime_hours is None else START_MS + lifetime_hours * HOUR_MS
    return Place(MACHINE, RATE, START_MS + minutes * 60_000, 60_000, latest)


def wanted(finish_ms: int | None, at: Place | None = None, now_ms: int = START_MS) -> Wanted:
    return wanted_at(at or place(), "task 1", PAYER, HALF, now_ms, finish_ms, 1_800_000)


@given(
    st.integers(-HOUR_MS, 5 * HOUR_MS),
    st.one_of(st.none(), st.integers(0, 20 * HOUR_MS)), st.integers(0, 30 * HOUR_MS),
    st.sampled_from(Window),
)  # fmt: skip
def test_a_row_never_costs_more_than_was_committed(
    later_ms: int, finish_ms: int | None, lived_ms: int, window: Window
) -> None:
    """In no window, whenever the claim ended before its VM: whatever was committed for it."""
    now = START_MS + later_ms
    asked = wanted(None if finish_ms is None else now + finish_ms, now_ms=now)
    for commitment in filter(None, (asked.whole, asked.trial)):
        row = replace(commitment, until_ms=min(now + lived_ms, commitment.until_ms))
        for span in spans(window, now, max(commitment.until_ms, now + 1)):
            assert row.charge(span) <= commitment.charge(span)


def test_what_is_committed_lasts_as_long_as_the_vm_and_the_work() -> None:
    """A lease and the VM's lag beyond what the task is expected to need; where that is unknown, the VM's lifetime."""
    short, long = wanted(START_MS + 60_000), wanted(START_MS + 7_200_000)
    assert short.whole is not None
    assert long.whole is not None
    assert short.whole.until_ms == START_MS + 3_600_000
    assert long.whole.until_ms == START_MS + 7_200_000 + 1_800_000 + 60_000
    assert (short.trial, long.trial) == (None, None)
    unknown = wanted(None)
    assert unknown.whole is not None
    assert unknown.trial is not None
    assert unknown.whole.until_ms == START_MS + 10 * HOUR_MS + 60_000
    assert unknown.trial.until_ms == START_MS + 3_600_000
    assert wanted(None, place(lifetime_hours=None)).whole is None
    assert short.whole.rate == RATE // 2
    assert short.whole.keys == (PROJECT, USER)


@pytest.mark.parametrize("hours", [None, 2])
def test_the_same_claim_may_begin_at_another_moment(hours: int | None) -> None:
    """It lasts as long, and is billed from then on."""
    asked = wanted(None if hours is None else START_MS + hours * HOUR_MS)
    later = asked.at(START_MS + DAY_MS)
    for before, after in ((asked.whole, later.whole), (asked.trial, later.trial)):
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            shifted = [moment + DAY_MS for moment in (before.from_ms, before.begins_by_ms, before.until_ms)]
            assert [after.from_ms, after.begins_by_ms, after.until_ms] == shifted
            assert (after.rate, after.keys, after.most_ms) == (before.rate, before.keys, before.most_ms)


def standing(*budgets: Budget) -> Standing:
    return Standing(budgets, {}, (), START_MS)


def total(dollars: float, key: Key = PROJECT) -> Budget:
    return Budget(key, Window.TOTAL, Amount(round(dollars * DOLLAR)))


def test_what_is_unknown_is_tried_one_at_a_time_where_its_lifetime_is_too_much() -> None:
    """Half a dollar an hour: five dollars for the lifetime, half of one for the trial."""
    asked = wanted(None)
    assert admitted(standing(total(6)), asked, trying=True) is asked.whole
    assert admitted(standing(total(1)), asked, trying=False) is asked.trial
    assert "another one of them is being tried" in str(admitted(standing(total(1)), asked, trying=True))
    assert "the budget user ann total has $0.40 left" in str(
        admitted(standing(total(1), total(0.4, USER)), asked, trying=False)
    )


@given(st.floats(0, 12), st.integers(0, 9), st.booleans(), st.booleans())
def test_room_is_what_one_claim_after_the_other_is_admitted(
    dollars: float, most: int, known: bool, trying: bool
) -> None:
    """The same rule for what is launched for and what is claimed."""
    asked = wanted(START_MS + HOUR_MS if known else None)
    one_by_one, count, tried = standing(total(dollars)), 0, trying
    while count < most:
        found = admitted(one_by_one, asked, trying=tried)
        if isinstance(found, str):
            break
        one_by_one.add(found)
        count, tried = count + 1, tried or not known
    together = standing(total(dollars))
    assert room_for(together, asked, most, trying=trying) == count
    budget, span = total(dollars), span_at(Window.TOTAL, START_MS)
    committed = together.committed(budget, span)
    assert 0 <= one_by_one.committed(budget, span) - committed <= count, "rounded up once"
    assert bool(committed) == bool(count)


def test_who_has_no_known_end_or_price_is_no_place_for_a_limit() -> None:
    own = instance(max_rate=RATE, end_lag_ms=60_000)
    found = place_of(own, ClaimTerms(lifetimes={PoolName("default"): HOUR_MS}))
    assert isinstance(found, Place)
    assert (found.rate, found.last_ms, found.lifetime_ms) == (RATE, own.ends_ms + 60_000, own.intended_ms + HOUR_MS)
    forever = place_of(own, ClaimTerms())
    assert isinstance(forever, Place)
    assert forever.lifetime_ms is None, "of a pool that has left the configuration nobody knows"
    assert "costs at most" in str(place_of(replace(own, max_rate=None), ClaimTerms()))
    assert "hard end" in str(place_of(replace(own, end_lag_ms=None), ClaimTerms()))


@pytest.mark.parametrize(
    ("fields", "movable", "left_ms", "whole_ms"),
    [
        ({}, True, 9 * HOUR_MS, 8 * HOUR_MS),
        ({}, False, 9 * HOUR_MS, 8 * HOUR_MS),
        ({"ends_ms": BEGUN_MS + 3 * HOUR_MS}, True, 9 * HOUR_MS, 8 * HOUR_MS),  # it will be moved on
        ({"ends_ms": BEGUN_MS + 3 * HOUR_MS}, False, 3 * HOUR_MS - HOUR_MS // 10, 8 * HOUR_MS),
        ({"registered_ms": BEGUN_MS + HOUR_MS}, True, 9 * HOUR_MS, 7 * HOUR_MS),  # it took an hour to boot
    ],
)
def test_what_is_left_of_a_life(fields: dict[str, int], movable: bool, left_ms: int, whole_ms: int) -> None:
    """Of ten hours, less one that is for leaving; of a new one's another is for coming."""
    own = replace(instance(), **fields)  # type: ignore[arg-type]
    profiles = frozenset({own.profile}) if movable else frozenset()
    terms = ClaimTerms(lifetimes={own.pool: 10 * HOUR_MS}, leave_ms=HOUR_MS, movable=profiles)
    assert terms.remaining(own, BEGUN_MS) == (left_ms, whole_ms)
    assert terms.remaining(own, BEGUN_MS + HOUR_MS) == (left_ms - HOUR_MS, whole_ms)
    assert replace(terms, leave_ms=2 * HOUR_MS).remaining(own, BEGUN_MS) == (left_ms, whole_ms), "a tenth at most"
    checked = replace(terms, ready_ms={own.pool: HOUR_MS // 2}).remaining(own, BEGUN_MS)
    assert checked == (left_ms, whole_ms - HOUR_MS // 2), "health checks may keep it from its first work for so long"
    assert replace(terms, lifetimes={}).remaining(own, BEGUN_MS) is None, "of a pool that left nobody knows"


def test_the_cheapest_place_is_where_the_part_costs_least() -> None:
    """Of those that can run it: half of a small machine may cost more than a quarter of a large one."""
    small = replace(place(), rate=Rate(900))
    large = replace(place(), machine=Machine(Resources(16_000, 32 * GIB)), rate=Rate(3_000))
    tiny = replace(place(), machine=Machine(Resources(1_000, GIB)), rate=Rate(1))
    assert cheapest([small, large, tiny], HALF) is large
    assert cheapest([tiny], HALF) is None


@pytest.mark.parametrize("payer", [Payer(), Payer("p"), Payer(user="u"), PAYER])
def test_a_payer_counts_for_its_project_and_its_user(payer: Payer) -> None:
    keys = keys_of_payer(payer)
    assert len(keys) == bool(payer.project) + bool(payer.user)
    assert all(key.name for key in keys)
    assert str(payer) == ", ".join(f"{key.scope} {key.name}" for key in keys)
    assert span_at(Window.TOTAL, START_MS).start_ms == 0
    assert Scope.POOL not in {key.scope for key in keys}
