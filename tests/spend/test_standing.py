"""The comparison that keeps limits, against a meter that bills whatever commitments allow."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.spend.booked import Booked
from cloud_dispatch.spend.budget import Budget, Stage
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment, Key, Scope
from cloud_dispatch.spend.standing import Account, Standing
from cloud_dispatch.spend.windows import DAY_MS, Window, span_at, spans
from tests.spend.history import START_MS, Admits, World, live

AWS, GCP = Key(Scope.DRIVER, "aws"), Key(Scope.DRIVER, "gcp")
POOLS = [Key(Scope.POOL, "cpu"), Key(Scope.POOL, "gpu")]
DOLLAR = 1_000_000
NOW = START_MS


def vm(
    name: str = "vm", *, hours: int = 1, keys: tuple[Key, ...] = (EVERYTHING, AWS), start_ms: int = NOW
) -> Commitment:
    return Commitment(name, keys, Rate(1_000_000_000), start_ms, start_ms + hours * HOUR_MS)


def total(limit: int, key: Key = EVERYTHING) -> Budget:
    return Budget(key, Window.TOTAL, Amount(limit * DOLLAR))


def anything(chance: Random, name: str, now_ms: int) -> Commitment:
    return Commitment(
        name,
        (EVERYTHING, chance.choice([AWS, GCP]), chance.choice(POOLS)),
        Rate(chance.choice([0, 1, 96_400_000, chance.randint(1, 40_000_000_000)])),
        now_ms,
        now_ms + chance.randint(0, 5 * HOUR_MS),
        chance.choice([0, 60_000, HOUR_MS]),
        chance.choice([1, 1_000, 60_000]),
        now_ms + chance.choice([0, 300_000]),
    )


BUDGETS = st.lists(
    st.builds(
        Budget,
        st.sampled_from([EVERYTHING, AWS, GCP, *POOLS]),
        st.sampled_from(Window),
        st.integers(min_value=0, max_value=60 * DOLLAR),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda budget: (budget.key, budget.window),
)


def by_the_rule(standing: Standing, wanted: Commitment, instead_of: Commitment | None) -> bool:
    return standing.refusal(wanted, instead_of) is None


@given(BUDGETS, st.integers(min_value=0, max_value=2**32))
@settings(max_examples=300, deadline=None)
def test_no_meter_ever_passes_a_limit(budgets: list[Budget], seed: int) -> None:
    world = World(budgets, by_the_rule)
    live(world, 60, seed, anything)
    assert world.overspent() == []
    assert world.standing().overrun() == []


@given(st.sampled_from(Window), st.integers(min_value=0, max_value=2**32), st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_what_is_committed_is_the_sum_of_the_charges(window: Window, seed: int, count: int) -> None:
    """Window for window, whatever is added and taken away, and told in advance where it is highest."""
    chance = Random(seed)
    budget = Budget(EVERYTHING, window, Amount(0))
    lives = [
        replace(
            anything(chance, f"vm-{i}", NOW + chance.randint(-DAY_MS, DAY_MS)),
            until_ms=NOW + chance.randint(0, 9 * DAY_MS),
        )
        for i in range(count)
    ]
    standing = Standing([budget], {}, lives, NOW)
    for gone in lives[: count // 3]:
        standing.remove(gone)
    for late in (anything(chance, f"late-{i}", NOW) for i in range(count // 2)):
        standing.add(late)
        lives.append(late)
    lives = lives[count // 3 :]
    touched = list(spans(window, NOW, max(life.billed_until_ms for life in lives)))
    for span in touched:
        assert standing.committed(budget, span) == sum(life.charge(span) for life in lives)
    highest = max(standing.committed(budget, span) for span in touched)
    told = {span for _, span in standing.overrun()}
    assert highest == 0 or highest == max(standing.committed(budget, span) for span in told)


def blind_to_what_lives(standing: Standing, wanted: Commitment, instead_of: Commitment | None) -> bool:
    return Standing(_budgets(standing), standing._spent, (), standing.now_ms).refusal(wanted) is None


def blind_to_what_was(standing: Standing, wanted: Commitment, instead_of: Commitment | None) -> bool:
    lived = Standing(_budgets(standing), {}, (), standing.now_ms)
    lived._committed = standing._committed
    return lived.refusal(wanted, instead_of) is None


def blind_to_prolongations(standing: Standing, wanted: Commitment, instead_of: Commitment | None) -> bool:
    return instead_of is not None or standing.refusal(wanted) is None


def by_one_window_only(standing: Standing, wanted: Commitment, instead_of: Commitment | None) -> bool:
    short = Commitment(wanted.name, wanted.keys, wanted.rate, wanted.from_ms, min(wanted.until_ms, standing.now_ms + 1))
    return standing.refusal(short, instead_of) is None


def a_micro_dollar_too_many(standing: Standing, wanted: Commitment, instead_of: Commitment | None) -> bool:
    found = standing.refusal(wanted, instead_of)
    return found is None or found.spent + found.committed + found.wanted <= found.budget.limit + 1_000


def _budgets(standing: Standing) -> list[Budget]:
    return [budget for covering in standing._budgets.values() for budget in covering]


KEYS = st.lists(
    st.sampled_from([EVERYTHING, AWS, Key(Scope.POOL, "p"), Key(Scope.POOL, "q"), Key(Scope.USER, "u")]),
    max_size=4, unique=True,
).map(tuple)  # fmt: skip


@given(st.lists(KEYS, max_size=12), st.lists(st.sampled_from(Window), min_size=1, unique=True), st.integers(0, 2**32))
@settings(max_examples=200)
def test_commitments_that_share_some_keys_count_for_each_of_theirs(
    counts_for: list[tuple[Key, ...]], windows: list[Window], seed: int
) -> None:
    """Made of all at once, or one by one, or added up by hand: the same for every budget, nobody's for none."""
    chance = Random(seed)
    lives = [
        replace(vm(f"vm{n}", hours=chance.randint(1, 60), start_ms=NOW + chance.randint(-30, 30) * HOUR_MS), keys=keys)
        for n, keys in enumerate(counts_for)
    ]
    named = [EVERYTHING, AWS, Key(Scope.POOL, "p"), Key(Scope.USER, "u")]
    budgets = [Budget(key, window, Amount(0)) for key in named for window in windows]
    at_once, one_by_one = Standing(budgets, {}, lives, NOW), Standing(budgets, {}, [], NOW)
    for one in lives:
        one_by_one.add(one)
    for budget in budgets:
        for span in spans(budget.window, NOW, NOW + 100 * HOUR_MS):
            by_hand = sum(one.charge(span) for one in lives if budget.key in one.keys)
            assert at_once.committed(budget, span) == one_by_one.committed(budget, span) == by_hand


@pytest.mark.parametrize(
    "rule",
    [blind_to_what_lives, blind_to_what_was, blind_to_prolongations, by_one_window_only, a_micro_dollar_too_many],
)
def test_the_property_finds_rules_that_do_not_hold(rule: Admits) -> None:
    """Each planted mistake is seen within a few histories."""
    budgets = [Budget(EVERYTHING, Window.TOTAL, Amount(5 * DOLLAR)), Budget(AWS, Window.DAY, Amount(DOLLAR))]
    if rule is a_micro_dollar_too_many:
        budgets = [Budget(EVERYTHING, Window.TOTAL, Amount(500))]
    for seed in range(200):
        world = World(budgets, rule)
        live(world, 60, seed, _cheap if rule is a_micro_dollar_too_many else anything)
        if world.overspent():
            return
    raise AssertionError("no history shows the mistake")


def _cheap(chance: Random, name: str, now_ms: int) -> Commitment:
    return Commitment(name, (EVERYTHING,), Rate(1_000_000), now_ms, now_ms + chance.randint(1, HOUR_MS // 10))


def test_a_refusal_names_the_budget_and_the_amounts() -> None:
    standing = Standing([total(5)], {Account(EVERYTHING, Window.TOTAL, 0): Amount(2 * DOLLAR)}, [vm(hours=2)], NOW)
    assert str(standing.refusal(vm("more", hours=2))) == (
        "the budget total has $1.00 left of $5.00 ($2.00 spent, $2.00 committed), $2.00 wanted"
    )
    assert standing.refusal(vm("more", hours=1)) is None


def test_a_limit_of_one_driver_leaves_the_others_working() -> None:
    standing = Standing([total(1, AWS), total(100)], {}, [vm(hours=1)], NOW)
    found = standing.refusal(vm("more"))
    assert found is not None
    assert found.budget.name == "driver aws total"
    assert standing.refusal(vm("more", keys=(EVERYTHING, GCP))) is None


def test_a_prolongation_counts_only_what_is_new() -> None:
    standing = Standing([total(3)], {}, [vm(hours=2)], NOW)
    assert standing.refusal(vm(hours=3), vm(hours=2)) is None
    assert standing.refusal(vm(hours=4), vm(hours=2)) is not None


def test_a_later_window_can_refuse_what_the_present_one_would_admit() -> None:
    """A day's limit holds for tomorrow too, whenever the VM was launched."""
    midnight = span_at(Window.DAY, NOW).end_ms
    daily = Budget(EVERYTHING, Window.DAY, Amount(2 * DOLLAR))
    living = vm("tomorrow's", hours=2, start_ms=midnight)
    standing = Standing([daily], {}, [living], midnight - HOUR_MS)
    assert standing.refusal(vm("now", hours=1, start_ms=midnight - HOUR_MS)) is None
    found = standing.refusal(vm("now", hours=2, start_ms=midnight - HOUR_MS))
    assert found is not None
    assert found.span.start_ms == midnight


def test_room_is_how_many_are_admitted_one_by_one() -> None:
    budgets = [total(10), Budget(AWS, Window.HOUR, Amount(DOLLAR * 7 // 2))]
    standing = Standing(budgets, {}, [vm("a")], NOW)
    most = standing.room(vm(hours=3), 100)
    for number in range(most):
        assert standing.refusal(vm(f"more-{number}", hours=3)) is None
        standing.add(vm(f"more-{number}", hours=3))
    assert standing.refusal(vm("last", hours=3)) is not None
    assert standing.room(vm(hours=3), 1) == 0
    assert Standing(budgets, {}, [], NOW).room(vm(hours=3, keys=(GCP,)), 100) == 100


def test_what_is_taken_away_leaves_nothing_behind() -> None:
    one, other = vm("a", hours=40), vm("b", hours=3)
    standing = Standing([total(100), Budget(AWS, Window.DAY, Amount(100 * DOLLAR))], {}, [one, other], NOW)
    standing.remove(one)
    only = Standing([total(100), Budget(AWS, Window.DAY, Amount(100 * DOLLAR))], {}, [other], NOW)
    for budget in (total(100), Budget(AWS, Window.DAY, Amount(100 * DOLLAR))):
        for moment in (NOW, NOW + DAY_MS):
            span = span_at(budget.window, moment)
            assert standing.committed(budget, span) == only.committed(budget, span)


@pytest.mark.parametrize("window", [Window.HOUR, Window.DAY, Window.MONTH])
def test_no_window_is_remembered_of_what_has_come_and_gone(window: Window) -> None:
    """Claims come and go for as long as the dispatcher runs: those of a year ago cost no time and no memory."""
    booked = Booked(window)
    for hour in range(0, 20_000, 777):
        start_ms = NOW + hour * HOUR_MS
        first, last = span_at(window, start_ms).start_ms, span_at(window, start_ms + 90 * DAY_MS).start_ms
        for sign in (1, -1):
            booked.merge({first: sign * 7, last: sign * 5}, {first: sign * 9, last: sign * -9})
    assert list(booked.turning_points(NOW)) == [span_at(window, NOW).start_ms]
    assert (booked.at(NOW), booked.at(start_ms)) == (0, 0)
    booked.merge({start_ms: 3}, {})
    assert booked.at(start_ms) == 3


def test_an_overrun_is_told_with_its_window() -> None:
    adopted = vm(hours=2)
    standing = Standing([total(1)], {}, [adopted], NOW)
    assert [(budget.name, span.start_ms) for budget, span in standing.overrun()] == [("total", 0)]


@pytest.mark.parametrize(
    ("spent", "stage"),
    [
        (0, Stage.CALM),
        (79, Stage.CALM),
        (80, Stage.NOTIFY),
        (90, Stage.NO_LAUNCH),
        (95, Stage.DRAIN),
        (100, Stage.LIMIT),
    ],
)
def test_stages_come_one_after_the_other(spent: int, stage: Stage) -> None:
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(100), 80, 90, 95)
    assert budget.stage(Amount(spent)) is stage


def test_a_stage_comes_with_the_micro_dollar_that_reaches_it() -> None:
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(100 * DOLLAR), 80, 90, 95)
    for percent in (80, 90, 95, 100):
        reached = percent * DOLLAR
        assert budget.stage(Amount(reached - 1)) is not budget.stage(Amount(reached))
        assert budget.stage(Amount(reached - 1)) is budget.stage(Amount(reached - 2))


def test_a_threshold_of_zero_is_none() -> None:
    budget = Budget(EVERYTHING, Window.TOTAL, Amount(100), 0, 0, 0)
    assert budget.stage(Amount(99)) is Stage.CALM
    assert budget.stage(Amount(100)) is Stage.LIMIT
