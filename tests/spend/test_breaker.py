"""Breakers: what a recipe that brings nothing can burn, when it is tried again, and what does not count against it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.spend import past
from cloud_dispatch.spend.breaker import (
    HISTORY_MS,
    LONGEST_MS,
    MINUTE_MS,
    MOST_FUTILE,
    UNPRICED,
    Breaker,
    Departed,
    History,
    Kind,
    News,
    Recipe,
    admitted,
    back_off_ms,
    is_used_up,
    judged,
    most_of,
    news_of,
)
from cloud_dispatch.spend.past import Past

DOLLAR = 1_000_000
NOW = 100 * HISTORY_MS


def failure(at_ms: int, amount: int = DOLLAR, began_ms: int | None = None) -> News:
    return News(at_ms, at_ms - MINUTE_MS if began_ms is None else began_ms, amount, False, InstanceId(f"vm-{at_ms}"))


def success(at_ms: int) -> News:
    return News(at_ms, at_ms - MINUTE_MS, 0, True, InstanceId("vm"))


def gone(number: int = 0, **more: Any) -> Departed:
    usual = Departed(
        InstanceId(f"b-{number}"), PoolName("p"), ProfileName("aws"), "agent", "ami", "z", NOW, None, NOW + MINUTE_MS,
        DOLLAR, 0, 0, 0, "boot-deadline",
    )  # fmt: skip
    return usual._replace(**more)


def test_it_opens_once_the_allowance_is_burnt_and_each_time_for_longer() -> None:
    """Five minutes, then twice as long after each single trial that fails, up to four hours."""
    news = [failure(NOW + n) for n in range(4)]
    assert judged(History.of(news), 5 * DOLLAR, NOW).trips == 0
    news.append(failure(NOW + 4))
    now, lengths = NOW + 4, []
    for _ in range(9):
        found = judged(History.of(news), 5 * DOLLAR, now)
        assert found.is_open(now)
        assert admitted(found, 5 * DOLLAR, [], DOLLAR, 10, now) == 0
        lengths.append((found.until_ms - now) // MINUTE_MS)
        now = found.until_ms
        assert admitted(found, 5 * DOLLAR, [], DOLLAR, 10, now) == 1
        assert admitted(found, 5 * DOLLAR, [], DOLLAR, 0, now) == 0, "none is tried that nobody wants"
        assert admitted(found, 5 * DOLLAR, [DOLLAR], DOLLAR, 10, now) == 0
        news.append(failure(now + MINUTE_MS, began_ms=now))
        now += MINUTE_MS
    assert lengths == [5, 10, 20, 40, 80, 160, 240, 240, 240]
    assert LONGEST_MS == 240 * MINUTE_MS


def test_a_success_closes_it_and_all_is_forgotten() -> None:
    news = [failure(NOW), failure(NOW + 1), success(NOW + 2), failure(NOW + 3)]
    found = judged(History.of(news), 2 * DOLLAR, NOW + 3)
    assert (found.trips, found.burnt, found.failures, found.successes) == (0, DOLLAR, 1, 1)


def test_failures_of_what_was_under_way_when_it_opened_are_no_new_ones() -> None:
    """They are counted in dollars, and the back-off stays as it is."""
    first = judged(History.of([failure(NOW, 5 * DOLLAR)]), 5 * DOLLAR, NOW)
    late = judged(History.of([failure(NOW, 5 * DOLLAR), failure(NOW + MINUTE_MS, began_ms=NOW - 1)]), 5 * DOLLAR, NOW)
    assert (late.trips, late.until_ms, late.burnt) == (1, first.until_ms, 6 * DOLLAR)


def test_what_an_operator_has_reset_and_what_is_long_past_does_not_count() -> None:
    news = [failure(NOW, 5 * DOLLAR)]
    assert judged(History.of(news), 5 * DOLLAR, NOW, reset_ms=NOW - 1).trips == 1
    assert judged(History.of(news), 5 * DOLLAR, NOW, reset_ms=NOW) == Breaker()
    assert judged(History.of(news), 5 * DOLLAR, NOW + HISTORY_MS + 1) == Breaker()


def test_what_was_noted_while_the_clock_was_ahead_counts_for_nothing() -> None:
    """Failures would hold it open until then, whatever an operator resets; successes, and a reset, would keep it
    closed. Clocks may be two minutes apart."""
    ahead = [failure(NOW + n) for n in range(5)]
    back = NOW - 24 * 60 * MINUTE_MS
    assert judged(History.of(ahead), 5 * DOLLAR, NOW).trips == 1
    assert judged(History.of(ahead), 5 * DOLLAR, NOW - 2 * MINUTE_MS + 10).trips == 1
    assert judged(History.of(ahead), 5 * DOLLAR, back) == Breaker()
    since = [failure(back - n) for n in range(5)]
    assert judged(History.of([*ahead, *since, success(NOW)]), 5 * DOLLAR, back, reset_ms=NOW).trips == 1


def test_what_costs_nothing_is_bounded_by_its_number() -> None:
    free = [failure(NOW + n, 0) for n in range(UNPRICED)]
    assert judged(History.of(free[1:]), 5 * DOLLAR, NOW).trips == 0
    assert judged(History.of(free), 5 * DOLLAR, NOW).trips == 1
    assert admitted(Breaker(), 5 * DOLLAR, [], 0, 1_000, NOW) == UNPRICED
    assert admitted(Breaker(), 5 * DOLLAR, [0] * UNPRICED, 0, 1_000, NOW) == 0
    assert admitted(Breaker(failures=3, free=3), 5 * DOLLAR, [0, DOLLAR], 0, 1_000, NOW) == UNPRICED - 4


def test_services_that_cost_next_to_nothing_are_bounded_by_their_number() -> None:
    """A health check that never passes ends VMs of a thousandth of a cent: they would be hundreds of thousands. Of
    boots only what they cost counts."""
    cheap = [failure(NOW + n, 10) for n in range(MOST_FUTILE)]
    most = most_of(Kind.FUTILITY)
    assert judged(History.of(cheap[1:]), 10 * DOLLAR, NOW, most_failures=most).trips == 0
    assert judged(History.of([*cheap, success(NOW + 9)]), 10 * DOLLAR, NOW, most_failures=most).trips == 0
    found = judged(History.of(cheap), 10 * DOLLAR, NOW, most_failures=most)
    assert (found.trips, found.failures) == (1, MOST_FUTILE)
    after = failure(found.until_ms + MINUTE_MS, 10, began_ms=found.until_ms)
    again = judged(History.of([*cheap, after]), 10 * DOLLAR, after.at_ms, most_failures=most)
    assert again.until_ms - again.opened_ms == 2 * (found.until_ms - found.opened_ms)
    assert judged(History.of(cheap), 10 * DOLLAR, NOW, most_failures=most_of(Kind.BOOT)).trips == 0


def test_what_boots_counts_as_if_it_failed() -> None:
    """Five dollars are five boots at a dollar; a machine that is dearer than the allowance boots alone."""
    assert admitted(Breaker(), 5 * DOLLAR, [], DOLLAR, 100, NOW) == 5
    assert admitted(Breaker(), 5 * DOLLAR, [DOLLAR] * 3, DOLLAR, 100, NOW) == 2
    assert admitted(Breaker(burnt=Amount(4 * DOLLAR), failures=4), 5 * DOLLAR, [DOLLAR], DOLLAR, 100, NOW) == 0
    assert admitted(Breaker(), 5 * DOLLAR, [], 30 * DOLLAR, 100, NOW) == 1
    assert admitted(Breaker(), 5 * DOLLAR, [30 * DOLLAR], 30 * DOLLAR, 100, NOW) == 0


def test_what_has_registered_may_be_repeated_on_the_same_scale() -> None:
    """Dear machines that boot well come up by doubling, not one after the other."""
    waves, up = [], 0
    while up < 1_000:
        wave = admitted(Breaker(successes=up), 5 * DOLLAR, [], 30 * DOLLAR, 1_000 - up, NOW)
        waves.append(wave)
        up += wave
    assert waves == [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 488]


@pytest.mark.parametrize(
    ("end", "boot", "futility"),
    [
        ({}, False, None),
        ({"cause": "lost"}, False, None),
        ({"cause": "killed"}, None, None),
        ({"cause": "preempted"}, None, None),
        ({"cause": "not-launched"}, None, None),
        ({"cause": "refused"}, None, None),
        ({"template": "", "cause": "boot-deadline"}, None, None),
        ({"registered_ms": NOW, "cause": "idle"}, True, None),
        ({"registered_ms": NOW, "cause": "idle", "waiting": 3}, True, False),
        ({"registered_ms": NOW, "cause": "health"}, True, False),
        ({"registered_ms": NOW, "cause": "lost", "lost": 5}, True, None),
        ({"registered_ms": NOW, "cause": "health", "tasks": 1}, True, True),
        ({"registered_ms": NOW, "cause": "stopped", "waiting": 3}, True, None),
        ({"registered_ms": NOW, "cause": "oversized", "waiting": 3}, True, None),
        ({"registered_ms": NOW, "cause": "overpriced", "waiting": 3}, True, None),
        ({"registered_ms": NOW, "cause": "budget", "waiting": 3}, True, None),
    ],
)
def test_what_an_end_says(end: dict[str, Any], boot: bool | None, futility: bool | None) -> None:
    said = {kind: news.success for kind, news in news_of(gone(**end))}
    assert said == {k: v for k, v in ((Kind.BOOT, boot), (Kind.FUTILITY, futility)) if v is not None}


def test_an_end_tells_when_it_was_and_when_what_ended_had_begun() -> None:
    """A registration is a boot's success at the moment at which it registered. A success has cost nothing, a failure
    all that the VM has."""
    (booted, served) = news_of(gone(1, registered_ms=NOW + 1, gone_ms=NOW + 9, tasks=2, cause="idle"))
    assert booted == (Kind.BOOT, News(NOW + 1, NOW, 0, True, InstanceId("b-1")))
    assert served == (Kind.FUTILITY, News(NOW + 9, NOW, 0, True, InstanceId("b-1")))
    (_, broke) = news_of(gone(2, registered_ms=NOW + 1, gone_ms=NOW + 9, cause="health"))
    assert broke == (Kind.FUTILITY, News(NOW + 9, NOW, DOLLAR, False, InstanceId("b-2")))
    assert list(news_of(gone(3, gone_ms=NOW + 9))) == [
        (Kind.BOOT, News(NOW + 9, NOW, DOLLAR, False, InstanceId("b-3")))
    ]


@pytest.mark.parametrize("what", ["profile", "template", "image", "zone", "pool"])
@pytest.mark.parametrize("kind", Kind)
def test_what_failed_elsewhere_is_no_failure_here(kind: Kind, what: str) -> None:
    """Whatever a recipe differs in; a boot does not differ by the pool that it was for."""
    here = gone(1, registered_ms=None if kind is Kind.BOOT else NOW, cause="health")
    there = here._replace(**{what: "other"})
    found = Past([here, there]).of(here.recipe(kind))
    assert len(found.failures) == (2 if (kind, what) == (Kind.BOOT, "pool") else 1)


def test_a_breaker_says_what_it_is_of_and_what_it_has_cost() -> None:
    boot = gone().recipe(Kind.BOOT)
    service = gone(image="", zone="").recipe(Kind.FUTILITY)
    assert Breaker(burnt=Amount(DOLLAR), failures=1).describe(boot) == (
        "template agent with image ami in zone z: $1.00 burnt by 1 VM of which none registered"
    )
    assert Breaker(burnt=Amount(DOLLAR), failures=2).describe(service) == (
        "template agent of pool p: $1.00 burnt by 2 VMs of which none did a task"
    )
    assert (boot.name, service.name) == ("boot/aws/agent/z/ami", "futility/p/aws/agent")


def test_the_past_is_bounded_and_knows_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes differ in zone and image; services in their pool besides, boots not."""
    monkeypatch.setattr(past, "MOST", 3)
    recipe = gone().recipe(Kind.BOOT)
    known = Past([gone(0), gone(1, pool=PoolName("q")), gone(2, zone="other"), gone(3, image="other")])
    assert [news.instance for news in known.of(recipe).failures] == ["b-1"]
    assert dict(known.failing) == {one.recipe(Kind.BOOT): one.gone_ms for one in known.all()}
    known.add(gone(4, registered_ms=NOW))
    assert recipe not in known.failing
    assert known.of(recipe) == History([], [NOW])


def said_of(known: Past, recipe: Recipe) -> list[News]:
    """What all the ends that are remembered tell of `recipe`."""
    return [
        news for one in known.all() for kind, news in news_of(one) if kind is recipe.kind and one.recipe(kind) == recipe
    ]


def test_what_is_known_of_a_recipe_is_kept_as_vms_go_and_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what would be found anew after each of them."""
    monkeypatch.setattr(past, "MOST", 5)
    chance, known = Random(1), Past()
    for number in range(200):
        registered_ms = NOW + number - chance.randint(0, 9) if chance.random() < 0.6 else None
        pool = PoolName(chance.choice("pq"))
        known.add(gone(number, zone=chance.choice("yz"), pool=pool, registered_ms=registered_ms, gone_ms=NOW + number))
        anew = Past(known.all())
        assert known.failing == anew.failing
        for one in known.all():
            for recipe in map(one.recipe, Kind):
                assert known.of(recipe) == anew.of(recipe) == History.of(said_of(known, recipe))


@given(
    st.lists(st.tuples(st.integers(-2 * HISTORY_MS, 0), st.integers(-1, 3 * DOLLAR)), max_size=8),
    st.integers(-HISTORY_MS, 0),
    st.booleans(),
    st.sampled_from([None, 3]),
)
def test_less_than_the_allowance_since_the_last_success_closes_it_whatever_came_before(
    ends: list[tuple[int, int]], reset: int, forgetful: bool, most: int | None
) -> None:
    """So nobody has to look at all that ever was to know that, nor to know of every success. At the same moment the
    failure counts."""
    news = [success(NOW + at) if amount < 0 else failure(NOW + at, amount) for at, amount in ends]
    known = [one.at_ms for one in news if one.success][forgetful:]
    since = [one.amount for one in news if not one.success and one.at_ms >= max(known, default=0)]
    closed = not is_used_up(5 * DOLLAR, most, sum(since), len(since), since.count(0))
    assert not (closed and judged(History.of(news), 5 * DOLLAR, NOW, NOW + reset, most).trips)


def step_by_step(news: list[News], allowance: int, now_ms: int, reset_ms: int, most: int) -> Breaker:
    """The rule in its plainest words: through everything, one after the other."""
    state = Breaker()
    for one in sorted(news, key=lambda one: (one.at_ms, not one.success)):
        if one.at_ms < now_ms - HISTORY_MS or one.at_ms <= reset_ms:
            continue
        if one.success:
            state = Breaker(successes=state.successes + 1, last=state.last)
            continue
        state = replace(
            state, burnt=Amount(state.burnt + one.amount), failures=state.failures + 1,
            free=state.free + (one.amount == 0), last=one.instance,
        )  # fmt: skip
        new_failure = state.trips > 0 and one.began_ms >= state.until_ms
        many = state.free >= UNPRICED or state.failures >= most
        used_up = state.trips == 0 and (state.burnt >= allowance or many)
        if new_failure or used_up:
            trips = state.trips + 1
            state = replace(
                state, trips=trips, opened_ms=one.at_ms, until_ms=one.at_ms + back_off_ms(trips), successes=0
            )
    return state


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 3), st.integers(0, 40)), max_size=40),
    st.integers(0, 6),
    st.one_of(st.just(-1), st.integers(NOW, NOW + 40 * MINUTE_MS)),
    st.booleans(),
    st.integers(1, 5),
)
def test_what_is_told_from_failures_alone_is_what_all_news_tell(
    told: list[tuple[int, int, int]], allowance: int, reset_ms: int, late: bool, most: int
) -> None:
    """Whatever came when, and at the same moment too; half of the runs look when half of it is long past."""
    news = [
        News(
            NOW + at * MINUTE_MS,
            NOW + (at - began) * MINUTE_MS,
            max(amount, 0) * DOLLAR,
            amount < 0,
            InstanceId(str(n)),
        )
        for n, (at, amount, began) in enumerate(told)
    ]
    now_ms = NOW + 40 * MINUTE_MS + (HISTORY_MS - 20 * MINUTE_MS if late else 0)
    expected = step_by_step(news, allowance * DOLLAR, now_ms, reset_ms, most)
    assert judged(History.of(news), allowance * DOLLAR, now_ms, reset_ms, most) == expected
    gone = [one for one in news if not one.success or one.at_ms % 2]
    living = [one.at_ms for one in news if one.success and not one.at_ms % 2]
    assert judged(History.of(gone).besides(living), allowance * DOLLAR, now_ms, reset_ms, most) == expected


@dataclass
class Boots:
    """VMs of one recipe on paper. `burnt`: by those that never registered, since the last that did; `bound`: the most
    that the module promises that to be."""

    allowance: int
    chance: Random
    works: float
    now_ms: int = NOW
    news: list[News] = field(default_factory=list)
    booting: list[tuple[int, int]] = field(default_factory=list)  # began, what it costs
    burnt: int = 0
    worst: int = 0

    def step(self, dearest: int) -> None:
        """Launch what is admitted; then some register, some fail, and time goes on."""
        each = self.chance.randint(1, dearest)
        state = judged(History.of(self.news), self.allowance, self.now_ms)
        risk = [amount for _, amount in self.booting]
        slots = admitted(state, self.allowance, risk, each, self.chance.randint(1, 50), self.now_ms)
        self.booting += [(self.now_ms, each)] * slots
        self.worst = max(self.worst, state.successes)
        self.now_ms += self.chance.randint(1, 2 * MINUTE_MS)
        left = []
        for began, amount in self.booting:
            if self.chance.random() < 0.8:
                left.append((began, amount))
            elif self.chance.random() < self.works:
                self.news.append(success(self.now_ms))
                self.burnt = 0
            else:
                amount = self.chance.choice([amount, self.chance.randint(0, amount)])
                self.news.append(failure(self.now_ms, amount, began))
                self.burnt += amount
        self.booting = left

    def bound(self, dearest: int) -> int:
        trips = judged(History.of(self.news), self.allowance, self.now_ms).trips
        return self.allowance + (max(self.worst, 1) + trips) * dearest


@given(
    allowance=st.integers(0, 5 * DOLLAR),
    dearest=st.integers(1, 3 * DOLLAR),
    works=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_no_recipe_burns_more_than_its_allowance_and_a_boot(
    allowance: int, dearest: int, works: float, seed: int
) -> None:
    """Between two that register: the allowance, one boot or as many as have proved themselves, and one for each time
    that the breaker opened."""
    boots = Boots(allowance, Random(seed), works)
    for _ in range(60):
        boots.step(dearest)
        assert boots.burnt <= boots.bound(dearest)
    assert works or boots.worst == 0


@pytest.mark.parametrize("bug", ["no-breaker", "blind-to-boots"])
def test_the_bound_is_passed_without_the_rule(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above can fail: where nothing opens, and where what boots is not counted."""
    real = admitted
    if bug == "no-breaker":
        monkeypatch.setitem(globals(), "admitted", lambda state, allowance, risk, each, wanted, now: wanted)
    else:
        monkeypatch.setitem(globals(), "admitted", lambda s, a, risk, e, w, now: real(s, a, [], e, w, now))
    boots = Boots(5 * DOLLAR, Random(1), 0.0)
    passed = False
    for _ in range(60):
        boots.step(DOLLAR // 5)
        passed = passed or boots.burnt > boots.bound(DOLLAR // 5)
    assert passed
