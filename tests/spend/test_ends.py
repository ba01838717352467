"""Where ends are set: nothing passes the limit, and what the limit pays for is finished."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment, Key, Scope
from cloud_dispatch.spend.ends import FirstEnds, Holder, Pace, finish_of, first_ends, last_tasks, renew
from cloud_dispatch.spend.left import Left, Taken
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.upcoming import Upcoming
from cloud_dispatch.spend.windows import Window
from tests.spend.fleet import DAY_MS, MINUTE_MS, Fleet

DOLLAR = 1_000_000
PACE = Pace()
OTHER = Key(Scope.POOL, "other")
NOW = 100 * DAY_MS


def holder(
    name: str, *, ends_in: int = 10, finish_in: int | None = None, busy: bool = True, wanted: bool = True
) -> Holder:
    """Minutes from now; a dollar an hour."""
    ends = NOW + ends_in * MINUTE_MS
    commitment = Commitment(name, (EVERYTHING,), Rate(1_000_000_000), NOW - HOUR_MS, ends)
    finish = None if finish_in is None else NOW + finish_in * MINUTE_MS
    return Holder(commitment, ends, NOW + DAY_MS, busy, wanted, finish)


def of(work_ms: int | None, count: int) -> Upcoming:
    """So many tasks that any machine can run."""
    return Upcoming([(Shape(Resources()), work_ms or 0)] * count)


def known(minutes: int) -> FirstEnds:
    return FirstEnds(*[NOW + minutes * MINUTE_MS] * 3)


def standing(limit_cents: int, *holders: Holder) -> Standing:
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(limit_cents * DOLLAR // 100))
    return Standing([budget], {}, [one.commitment for one in holders], NOW)


def test_a_hundred_ten_hour_tasks_under_a_hundred_dollars() -> None:
    fleet = Fleet(100 * DOLLAR, [10 * HOUR_MS] * 100)
    assert fleet.run() >= 8
    assert fleet.spent <= fleet.limit


def test_without_the_reserve_money_is_burnt_on_what_is_cut_off() -> None:
    """The planted mistake: launches that look only at what is committed. With ends that are moved on lease by lease,
    everything starts and nothing is finished."""
    fleet = Fleet(100 * DOLLAR, [10 * HOUR_MS] * 100, reserves=False, known=False)
    assert fleet.run() < 8
    assert fleet.spent <= fleet.limit


@given(
    st.lists(st.integers(5, 600), min_size=10, max_size=60), st.integers(1, 300), st.integers(1, 60),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_is_finished_is_most_of_what_a_clairvoyant_finishes(
    minutes: list[int], limit_hours: int, most: int
) -> None:
    """In work, where the limit pays for more than a few tasks at once."""
    fleet = Fleet(limit_hours * DOLLAR, sorted(m * MINUTE_MS for m in minutes), most=most)
    fleet.run(step_ms=MINUTE_MS)
    assert fleet.spent <= fleet.limit
    best = fleet.clairvoyant()
    if fleet.limit >= 40 * max(fleet.lengths_ms) // HOUR_MS * DOLLAR:
        assert len(fleet.finished) >= 0.85 * best


def test_busy_comes_before_idle_and_nearest_to_finishing_first() -> None:
    holders = [
        holder("idle", busy=False), holder("unknown"), holder("far", finish_in=300), holder("near", finish_in=20),
    ]  # fmt: skip
    found = renew(standing(10_000, *holders), holders, NOW, PACE)
    assert [extension.name for extension in found.extensions] == ["near", "far", "unknown", "idle"]


def test_what_the_limit_does_not_cover_is_refused_with_the_reason() -> None:
    """4 x 1 h 10 min are committed; the two nearest to their end need 40 and 20 minutes more."""
    holders = [holder("near", finish_in=20), holder("far", finish_in=300), holder("b"), holder("c")]
    found = renew(standing(550, *holders), holders, NOW, PACE)
    assert [extension.name for extension in found.extensions] == ["near"]
    assert found.extensions[0].ends_ms == NOW + 50 * MINUTE_MS
    assert set(found.refused) == {"far", "b", "c"}
    assert "the budget total has" in str(found.refused["far"])


def test_an_end_that_is_far_enough_is_left_alone() -> None:
    one = holder("vm", ends_in=20)
    assert renew(standing(10_000, one), [one], NOW, PACE).extensions == ()
    late = holder("vm", ends_in=20, finish_in=18)
    assert [e.ends_ms for e in renew(standing(10_000, late), [late], NOW, PACE).extensions] == [NOW + 48 * MINUTE_MS]


def test_what_is_not_wanted_is_not_moved_on_and_nothing_outlives_its_lifetime() -> None:
    idle = holder("idle", busy=False, wanted=False)
    old = holder("old", finish_in=3 * 24 * 60)
    found = renew(standing(100_000, idle, old), [idle, old], NOW, PACE)
    assert [(e.name, e.ends_ms) for e in found.extensions] == [("old", NOW + DAY_MS)]


def test_an_end_that_can_not_be_moved_is_right_from_the_start() -> None:
    minutes = [(None, False), (60, False), (None, True), (60, True)]
    found = [
        first_ends(NOW, MINUTE_MS, m and m * MINUTE_MS, DAY_MS, PACE, movable=movable) for m, movable in minutes
    ]  # fmt: skip
    assert found == [
        FirstEnds(NOW + DAY_MS, NOW + DAY_MS, NOW + 31 * MINUTE_MS, unknown=True),
        FirstEnds(*[NOW + 91 * MINUTE_MS] * 2, NOW + 66 * MINUTE_MS),
        FirstEnds(NOW + 31 * MINUTE_MS, NOW + DAY_MS, NOW + 31 * MINUTE_MS, unknown=True),
        FirstEnds(*[NOW + 91 * MINUTE_MS] * 2, NOW + 66 * MINUTE_MS),
    ]
    fixed = Holder(holder("vm").commitment, NOW, NOW + DAY_MS, True, True, movable=False)
    assert renew(standing(10_000, fixed), [fixed], NOW, PACE).extensions == ()


@pytest.mark.parametrize("movable", [False, True])
def test_no_first_end_lies_beyond_the_lifetime(movable: bool) -> None:
    """However long the work, the boot or the lease may take."""
    hour = NOW + HOUR_MS
    for work_ms in (None, 50 * MINUTE_MS, 5 * HOUR_MS):
        found = first_ends(NOW, 40 * MINUTE_MS, work_ms, HOUR_MS, PACE, movable=movable)
        assert (found.ends_ms, found.lasts_ms, found.least_ms) == (hour, hour, hour)


@pytest.mark.parametrize(
    ("expected", "finish"),
    [(0, None), (60, 30), (31, 1), (30, 30), (20, 30)],
)
def test_when_work_of_half_an_hour_ago_is_expected_to_be_done(expected: int, finish: int | None) -> None:
    """What takes longer than expected is expected to take as long again as it has."""
    found = finish_of(NOW, NOW - 30 * MINUTE_MS, expected * MINUTE_MS)
    assert found == (None if finish is None else NOW + finish * MINUTE_MS)


def test_launches_leave_room_to_finish_what_runs() -> None:
    """$10; one VM has cost $1 to its end in 10 minutes and runs for six hours more: $2.50 are left, not $8.83."""
    runs = holder("runs", finish_in=6 * 60)

    def fits(minutes: int) -> int:
        new = Commitment("new", (EVERYTHING,), Rate(1_000_000_000), NOW, NOW + minutes * MINUTE_MS)
        return Left(standing(1_000, runs), [runs], NOW, PACE).take([new], known(minutes), 0).slots

    assert (fits(150), fits(151)) == (1, 0)


def test_of_what_is_unknown_one_is_tried_at_a_time() -> None:
    """A day is not paid for, half an hour is: one VM, and no other while it finds out."""
    half_ms = NOW + 30 * MINUTE_MS
    ends = FirstEnds(half_ms, NOW + DAY_MS, half_ms, unknown=True)

    def new(name: str) -> Commitment:
        return Commitment(name, (EVERYTHING,), Rate(1_000_000_000), NOW, half_ms)

    left = Left(standing(1_000), [], NOW, PACE)
    assert left.take([new("a"), new("b")], ends, 0) == Taken(1, half_ms)
    assert not left.take([new("c")], ends, 0).slots
    assert "the budget total has $9.50 left" in left.why
    tries = holder("tries")
    assert not Left(standing(2_700, tries), [tries], NOW, PACE).take([new("d")], ends, 0).slots
    # One whose work is known does not keep it from trying, nor one that another limit pays for.
    knows, other = holder("knows", finish_in=5), replace(tries, commitment=replace(tries.commitment, keys=(OTHER,)))
    for holders in ([knows], [other]):
        left = Left(standing(2_500, *holders), holders, NOW, PACE)
        assert left.take([new("d")], ends, 0) == Taken(1, half_ms)


def test_where_no_lease_is_left_one_is_launched_for_just_the_work() -> None:
    """An hour's work with a lease of half an hour, under $1.20: but only where nothing else works for that money."""
    ends = FirstEnds(NOW + 90 * MINUTE_MS, NOW + 90 * MINUTE_MS, NOW + 65 * MINUTE_MS)
    new = Commitment("new", (EVERYTHING,), Rate(1_000_000_000), NOW, NOW + 90 * MINUTE_MS)

    def take(cents: int, *holders: Holder, lag_ms: int = 0) -> Taken:
        return Left(standing(cents, *holders), holders, NOW, PACE).take([new], ends, lag_ms)

    assert take(120) == Taken(1, NOW + 65 * MINUTE_MS)
    assert take(160) == Taken(1, NOW + 90 * MINUTE_MS)
    assert not take(120, lag_ms=10 * MINUTE_MS).slots
    works, idle = holder("works", finish_in=5), holder("idle", busy=False, wanted=False)
    assert not take(159 + 120, works).slots
    assert take(117 + 120, idle) == Taken(1, NOW + 65 * MINUTE_MS)


@pytest.mark.parametrize("lease_ms", [MINUTE_MS, 30 * MINUTE_MS])
def test_no_renewal_comes_so_late_that_a_drain_no_longer_fits(lease_ms: int) -> None:
    pace = Pace(lease_ms, 5 * MINUTE_MS)
    assert pace.due_ms >= 2 * pace.drain_ms


def test_a_vm_that_could_not_finish_another_task_is_told_so_before_it_takes_one() -> None:
    """Two are about to be done; of the hour that another task takes there is money for one."""
    first, second = holder("a", finish_in=1), holder("b", finish_in=2)
    later = holder("later", finish_in=60)

    def refused(cents: int, work_ms: int | None) -> set[str]:
        holders = [later, second, first]
        return set(last_tasks(standing(cents, *holders), holders, [], of(work_ms, 3), NOW, PACE))

    # 70 minutes each are committed; an hour more, with the time of a drain, ends 56 and 57 minutes later.
    committed = 3 * 117
    assert refused(committed + 100, HOUR_MS) == {"b"}
    assert refused(committed + 195, HOUR_MS) == set()
    assert refused(0, 2 * MINUTE_MS) == set()  # it fits in before the end that it has
    assert refused(0, None) == set()


def test_another_task_begins_when_the_present_one_is_done() -> None:
    """In four minutes, not at once: with its hour and a drain it ends 59 minutes later than now. And what should have
    been done long ago is not done before now: 55 minutes."""
    soon, late = holder("a", finish_in=4), holder("a", finish_in=-30)

    def refused(cents: int, one: Holder) -> set[str]:
        return set(last_tasks(standing(117 + cents, one), [one], [], of(HOUR_MS, 1), NOW, PACE))

    assert (refused(99, soon), refused(97, soon)) == (set(), {"a"})
    assert (refused(92, late), refused(90, late)) == (set(), {"a"})


def test_what_leaves_late_is_not_counted_beyond_its_end() -> None:
    """Its work would take an hour more, its end comes in ten minutes: ten minutes are what it may still cost."""
    leaves, stays = holder("a", finish_in=60), holder("b", finish_in=1)
    short, enough = (
        set(last_tasks(standing(2 * 117 + cents, leaves, stays), [stays], [leaves], of(HOUR_MS, 1), NOW, PACE))
        for cents in (92, 94)
    )
    assert (short, enough) == ({"b"}, set())


def test_one_goes_and_the_other_works_on_with_what_it_leaves() -> None:
    """Either could be paid for if the other one ended now: not both are refused for want of what both hold."""
    first, second = holder("a", finish_in=1), holder("b", finish_in=2)

    def refused(cents: int, leaving: list[Holder]) -> set[str]:
        serving = [one for one in (second, first) if one not in leaving]
        return set(last_tasks(standing(cents, first, second), serving, leaving, of(HOUR_MS, 2), NOW, PACE))

    committed = 2 * 117
    # The one that is refused ends in six minutes, not in ten: seven cents, without which the other lacks the money.
    assert refused(committed + 90, []) == {"a"}
    assert refused(committed + 80, []) == {"a", "b"}
    assert refused(committed + 90, [first]) == set()
    assert refused(committed + 80, [first]) == {"b"}
    # One of unknown work keeps all that it may come to.
    unknown = holder("a")
    assert set(last_tasks(standing(324, unknown, second), [second], [unknown], of(HOUR_MS, 1), NOW, PACE)) == {"b"}


def test_what_a_machine_can_not_run_does_not_come_next_for_it() -> None:
    """A task of another pool, for which no money is left, keeps nobody from a short one of his own."""
    mine, other = (Machine(Resources(), pool=pool) for pool in ("mine", "other"))
    long, short = (Shape(Resources(), pool=pool) for pool in ("other", "mine"))
    upcoming = Upcoming([(long, 100 * HOUR_MS), (short, MINUTE_MS), (short, 0)])
    assert [upcoming.next_ms(machine) for machine in (mine, other)] == [MINUTE_MS, 100 * HOUR_MS]
    here, there = (replace(holder(name, finish_in=1), machine=m) for name, m in (("a", mine), ("b", other)))
    found = last_tasks(standing(2 * 117, here, there), [here, there], [], upcoming, NOW, PACE)
    assert set(found) == {"b"}
    assert upcoming.next_ms(mine) is None  # the short one is taken, of the next nobody knows
    upcoming.take(2)
    assert upcoming.next_for(mine) is None


def test_where_no_whole_lease_is_left_what_runs_may_still_be_finished() -> None:
    """Its end comes a drain after the work, no later; less than that is refused, with what a whole lease wanted."""
    one = holder("a", ends_in=10, finish_in=40)
    committed = 117  # an hour of it has passed, ten minutes are committed
    whole, just, short = (renew(standing(committed + more, one), [one], NOW, PACE) for more in (101, 59, 57))
    assert [each.ends_ms - NOW for each in whole.extensions] == [40 * MINUTE_MS + PACE.lease_ms]
    assert [each.ends_ms - NOW for each in just.extensions] == [40 * MINUTE_MS + PACE.drain_ms]
    assert not just.refused
    assert not short.extensions
    unknown = holder("b", ends_in=10)
    both = [one, holder("c", ends_in=10, finish_in=41)]
    together = renew(standing(2 * committed + 59 + 61, *both), both, NOW, PACE)
    assert [each.ends_ms - NOW for each in together.extensions] == [
        finish * MINUTE_MS + PACE.drain_ms for finish in (40, 41)
    ]
    assert not together.refused
    assert set(renew(standing(committed, unknown), [unknown], NOW, PACE).refused) == {"b"}


@given(st.integers(1, 3_000), st.integers(1, 10**10), st.booleans())
def test_what_is_refused_says_what_else_is_too_dear(cents: int, rate: int, trial: bool) -> None:
    """Whatever costs as much an hour is refused for the same time, and what costs less is not."""

    def take(rate: int) -> tuple[Taken, int]:
        left = Left(standing(cents), [], NOW, PACE)
        new = Commitment("new", (EVERYTHING,), Rate(rate), NOW, NOW + HOUR_MS)
        lasts_ms = NOW + (2 * HOUR_MS if trial else HOUR_MS)
        return left.take([new], FirstEnds(NOW + HOUR_MS, lasts_ms, NOW + HOUR_MS, unknown=trial), 0), left.too_dear

    taken, too_dear = take(rate)
    if taken.slots:
        assert not too_dear
        return
    assert 0 < too_dear <= rate
    assert not take(too_dear + 1_000)[0].slots  # amounts are whole micro-dollars
    assert too_dear == 1 or take(too_dear - 1)[0].slots


def test_a_machine_is_filled_in_the_order_of_the_queue() -> None:
    """What it takes at first: of each shape as many as there are and as fit; the longest of that counts, and one of
    which nobody knows."""
    machine = Machine(Resources(cpus_milli=4_000, memory=8 * GIB))
    one, three = Shape(Resources(1_000, GIB)), Shape(Resources(3_000, GIB))
    gpu = Shape(Resources(1_000, GIB, gpus=1))
    assert Upcoming([]).fill_ms(machine) is None
    assert Upcoming([(gpu, 5)]).fill_ms(machine) is None
    assert Upcoming([(one, 5), (three, 9), (one, 70)]).fill_ms(machine) == 9, "the last one has no room"
    assert Upcoming([(one, 5), (three, 9)], [(4, 6), (1, 9)]).fill_ms(machine) == 6, "the others of its shape have it"
    assert Upcoming([(one, 5), (three, 9)], [(1, 8), (1, 9)]).fill_ms(machine) == 9
    assert Upcoming([(one, 5), (gpu, 0), (three, 0)]).fill_ms(machine) is None
    assert Upcoming([(one, 5), (gpu, 0)]).fill_ms(machine) == 5
