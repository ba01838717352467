"""The demand port and its two sources: the native queue, and the targets of pools."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.demand.native import NativeQueue, item_of
from cloud_dispatch.demand.port import DemandSource, Expiring, Wanted
from cloud_dispatch.demand.targets import PoolTargets, ScheduleRule, Targets
from cloud_dispatch.domain.errors import Unavailable
from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.snapshot import DemandItem, TargetItem
from cloud_dispatch.ports.store import ShapeDemand, Target

POOL = PoolName("default")
MINUTE = 60_000
HOUR = 60 * MINUTE


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


class Queue:
    def __init__(self, *waiting: ShapeDemand) -> None:
        self._waiting = waiting

    def waiting(self) -> tuple[ShapeDemand, ...]:
        return self._waiting


class Requests:
    def __init__(self, *targets: Target) -> None:
        self._targets = targets

    def targets(self) -> tuple[Target, ...]:
        return self._targets


class Scripted:
    """A source that answers what the test last set, or is silent."""

    name = "scripted"

    def __init__(self) -> None:
        self.answer: tuple[Wanted, ...] | None = ()

    def demand(self, now: int) -> tuple[Wanted, ...]:
        if self.answer is None:
            raise Unavailable("its database is down")
        return self.answer


def test_the_queue_says_how_many_tasks_of_each_shape_wait() -> None:
    """Each waiting shape becomes one item that carries count, urgency and age."""
    source: DemandSource = NativeQueue(Queue(ShapeDemand(Shape(), 7, (), 3, 1_000)))
    assert source.demand(5_000) == (DemandItem(Shape(), 7, 0, priority=3, oldest_ms=1_000, source="queue"),)


def test_a_shape_without_waiting_tasks_is_no_demand() -> None:
    """A shape whose last task was claimed disappears from demand."""
    assert NativeQueue(Queue(ShapeDemand(Shape(), 0, (), 0, 0))).demand(0) == ()


def test_lengths_that_differ_are_told_by_classes() -> None:
    """Means of each; not where there is one, nor where most say nothing."""
    waiting = ShapeDemand(Shape(), 6, ((100, 2), (900, 3)), 0, 0)
    assert (item_of(waiting).expected_ms, item_of(waiting).lengths) == (200, ((50, 2), (300, 3)))
    assert item_of(ShapeDemand(Shape(), 6, ((100, 3),), 0, 0)).lengths == ()
    assert item_of(ShapeDemand(Shape(), 11, ((100, 2), (900, 3)), 0, 0)).lengths == ()


def test_expected_runtime_is_the_mean_of_those_that_say_theirs() -> None:
    """Three of four tasks know their runtime: the mean of those three counts."""
    assert item_of(ShapeDemand(Shape(), 4, ((90_000, 3),), 0, 0)).expected_ms == 30_000


def test_few_known_runtimes_do_not_speak_for_the_queue() -> None:
    """One short task among a hundred unknown ones must not make the planner believe that all are short."""
    assert item_of(ShapeDemand(Shape(), 100, ((1_000, 1),), 0, 0)).expected_ms == 0


def test_a_known_runtime_of_less_than_a_millisecond_is_not_unknown() -> None:
    """0 means unknown, so that the mean of known ones is at least 1 ms."""
    assert item_of(ShapeDemand(Shape(), 2, ((1, 2),), 0, 0)).expected_ms == 1


def test_a_schedule_holds_from_its_start_until_before_its_end() -> None:
    """08:00 is in the window, 18:00 is not any more."""
    rule = ScheduleRule(target=3, days=frozenset({0}), from_minute=480, to_minute=1080)
    monday = "2024-01-01T"
    assert [rule.holds(at(monday + clock)) for clock in ("07:59", "08:00", "17:59", "18:00")] == [
        False,
        True,
        True,
        False,
    ]


def test_a_schedule_holds_on_its_days_only() -> None:
    """A mon-fri rule is silent on Saturday at the same hour."""
    rule = ScheduleRule(target=3, days=frozenset(range(5)), from_minute=480, to_minute=1080)
    assert rule.holds(at("2024-01-05T12:00"))
    assert not rule.holds(at("2024-01-06T12:00"))


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_began() -> None:
    """fri 22:00-06:00 covers early Saturday, not early Friday."""
    rule = ScheduleRule(target=1, days=frozenset({4}), from_minute=1320, to_minute=360)
    assert rule.holds(at("2024-01-05T23:00"))
    assert rule.holds(at("2024-01-06T05:59"))
    assert not rule.holds(at("2024-01-05T05:00"))
    assert not rule.holds(at("2024-01-06T06:00"))


def test_a_schedule_follows_the_clocks_of_its_zone_through_summer_time() -> None:
    """08:00 in Berlin is 07:00 UTC in winter and 06:00 UTC in summer."""
    rule = ScheduleRule(target=1, from_minute=480, to_minute=540, timezone="Europe/Berlin")
    assert rule.holds(at("2024-01-15T07:30"))
    assert rule.holds(at("2024-07-15T06:30"))
    assert not rule.holds(at("2024-07-15T07:30"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"days": frozenset({7})}, "days must be among"),
        ({"days": frozenset()}, "days must be among"),
        ({"from_minute": -1}, "minutes after midnight"),
        ({"to_minute": 1441}, "minutes after midnight"),
        ({"target": -1}, "target must not be negative"),
        ({"timezone": "Mars/Olympus"}, "unknown time zone 'Mars/Olympus'"),
        ({"timezone": "../etc/passwd"}, "unknown time zone"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_what_was_expected(
    values: dict[str, object], message: str
) -> None:
    """Every bad field is named when the rule is made, not when it is first due."""
    with pytest.raises(ValueError, match=message):
        ScheduleRule(**{"target": 1, **values})  # type: ignore[arg-type]


@given(
    start=st.integers(0, 1440), end=st.integers(0, 1440),
    days=st.frozensets(st.integers(0, 6), min_size=1), minute=st.integers(0, 7 * 1440 - 1),
)  # fmt: skip
def test_a_schedule_agrees_with_counting_minutes_of_the_week(
    start: int, end: int, days: frozenset[int], minute: int
) -> None:
    """In UTC, a rule holds in exactly the minutes that its windows cover when they are laid out one by one."""
    length = end - start if start < end else end - start + 1440
    covered = {(day * 1440 + start + offset) % (7 * 1440) for day in days for offset in range(length)}
    rule = ScheduleRule(target=1, days=days, from_minute=start, to_minute=end)
    monday = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert rule.holds(monday + minute * MINUTE) is (minute in covered)


def test_every_target_is_handed_on_under_the_name_of_who_wants_it() -> None:
    """Configuration, schedule and requests stay apart, so that a launch can name the one that counted."""
    rules = (PoolTargets(POOL, 2, (ScheduleRule(target=5, days=frozenset({0}), from_minute=480, to_minute=1080),)),)
    source: DemandSource = Targets(rules, Requests(Target(POOL, "rest", 9)))
    assert source.demand(at("2024-01-01T09:00")) == (
        TargetItem(POOL, 2, "configuration"),
        TargetItem(POOL, 5, "schedule mon 08:00-18:00 UTC"),
        TargetItem(POOL, 9, "rest"),
    )


def test_a_requested_target_expires() -> None:
    """A script that stops renewing its target stops having one, at the moment it named."""
    source = Targets((), Requests(Target(POOL, "rest", 4, expires_ms=10_000)))
    assert source.demand(9_999) == (TargetItem(POOL, 4, "rest"),)
    assert source.demand(10_000) == ()


def test_a_silent_source_keeps_its_last_answer_for_a_while_only() -> None:
    """A short outage changes nothing; a long one ends the source's demand; its return is heard at once."""
    inner = Scripted()
    source = Expiring(inner, ttl_ms=60_000)
    inner.answer = (TargetItem(POOL, 3, "scripted", may_drain=False),)
    assert source.demand(0) == inner.answer
    heard, inner.answer = inner.answer, None
    assert source.demand(60_000) == heard
    assert source.silence == "its database is down"
    assert source.demand(60_001) == ()
    inner.answer = heard
    assert source.demand(60_002) == heard
    assert source.silence == ""


def test_a_source_that_never_answered_wants_nothing() -> None:
    """Silence from the start is no demand, and no error for the others."""
    inner = Scripted()
    inner.answer = None
    assert Expiring(inner, ttl_ms=60_000).demand(0) == ()


def test_a_programmers_error_in_a_source_is_not_taken_for_silence() -> None:
    """Only `Unavailable` is silence; a bug must be seen."""

    class Broken:
        name = "broken"

        def demand(self, now: int) -> tuple[Wanted, ...]:
            raise KeyError("bug")

    with pytest.raises(KeyError):
        Expiring(Broken(), ttl_ms=1).demand(0)
