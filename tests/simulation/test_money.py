"""For any limits, prices, faults and crashes no meter passes a limit: drawn by Hypothesis, and by seeds.

`make campaign` draws thousands; `make test` the same few each time.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps, EndRules
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.checkers.spend import Spend
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Extra, Spot
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.generate import MONEY
from cloud_dispatch.simulation.money import CLOCKS_MS, first_lease, full_rate
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.windows import DAY_MS, Window
from tests.simulation.plants import PLANTS
from tests.simulation.scenes import SELDOM, broken, scene
from tests.simulation.test_spend import edge

EXAMPLES = int(os.environ.get("MONEY_EXAMPLES", "0"))
SEEDS = 7
MINUTE_MS = 60_000
_C = CloudFaultKind
_MOMENTS = st.integers(0, 20 * MINUTE_MS)

#: What goes wrong at a cloud, for how long.
CLOUD_FAULTS = st.builds(
    lambda kind, operation, from_ms, lasts_ms, times, amount: CloudFault(
        kind, operation=operation if kind in (_C.ERROR, _C.LOST_ANSWER, _C.NO_ANSWER, _C.SLOW) else "",
        from_ms=from_ms, until_ms=from_ms + lasts_ms, times=times, amount=amount,
    ),
    st.sampled_from([
        _C.HANG, _C.USER_DATA_FAILS, _C.NEVER_BOOTS, _C.LATE, _C.ERROR, _C.LOST_ANSWER, _C.NO_ANSWER, _C.SLOW,
        _C.CUT_OFF, _C.DEATH, _C.STALE, _C.DRIFT,
    ]),
    st.sampled_from(["launch", "tag", "terminate", "list"]),
    _MOMENTS, st.integers(1, 15 * MINUTE_MS), st.integers(1, 4), st.integers(0, 50_000),
)  # fmt: skip
PRICES = st.builds(
    lambda from_ms, lasts_ms, rate: CloudFault(_C.PRICE, from_ms=from_ms, until_ms=from_ms + lasts_ms, amount=rate),
    _MOMENTS, st.integers(1, 30 * MINUTE_MS), st.integers(1, 2_000_000_000),
)  # fmt: skip


def lasting(kind: FaultKind, most_ms: int, amounts: st.SearchStrategy[int]) -> st.SearchStrategy[Fault]:
    return st.builds(
        lambda at, lasts, amount: Fault(kind, at, at + lasts, amount), _MOMENTS, st.integers(1, most_ms), amounts
    )


FAULTS = st.one_of(
    st.builds(
        lambda at, down, point, which: Fault(FaultKind.CRASH, at, amount=down, point=point, which=which),
        _MOMENTS, st.sampled_from([500, 60_000, 30 * MINUTE_MS, 4 * HOUR_MS]), st.sampled_from(POINTS),
        st.integers(0, 40),
    ),
    lasting(FaultKind.CLOCK, 20 * MINUTE_MS, st.sampled_from([-CLOCKS_MS, CLOCKS_MS, -1_000, 50_000])),
    lasting(FaultKind.PARTITION, 15 * MINUTE_MS, st.just(0)),
    lasting(FaultKind.STORE_FAILS, MINUTE_MS, st.just(0)),
    st.builds(lambda at, older: Fault(FaultKind.RESTORE, at, amount=older), _MOMENTS, st.integers(1, 10 * MINUTE_MS)),
    st.builds(lambda at, which: Fault(FaultKind.AGENT_HANG, at, which=which), _MOMENTS, st.integers(0, 5)),
)  # fmt: skip
WORK = st.builds(
    lambda submit_ms, count, run_ms, told: Work(
        submit_ms, count, conduct=Conduct(run_ms=run_ms), expected_ms=run_ms * told // 10, max_attempts=10
    ),
    _MOMENTS, st.integers(1, 12), st.sampled_from([1_000, MINUTE_MS, 10 * MINUTE_MS]), st.sampled_from([0, 1, 10]),
)  # fmt: skip


@st.composite
def accounts(draw: st.DrawFn) -> CloudAccount:
    """One of each cloud's, billing in its own way."""
    usual = scene(draw(st.sampled_from(Cloud))).accounts[0]
    told: AccountSettings = usual.settings
    bills = replace(
        told,
        minimum_ms=draw(st.sampled_from([0, 60_000, HOUR_MS])),
        increment_ms=draw(st.sampled_from([1, 1_000, 60_000, HOUR_MS])),
        extras=tuple(Extra(one.kind, Rate(one.rate * draw(st.sampled_from([1, 50])))) for one in told.extras),
        reaper_period_ms=told.reaper_period_ms and draw(st.sampled_from([15_000, 60_000, 300_000])),
        spot=replace(told.spot, step_ms=60_000, swing=draw(st.sampled_from([0.0, 0.6]))),
    )
    wrong = draw(st.lists(st.one_of(CLOUD_FAULTS, PRICES), max_size=4))
    return CloudAccount(usual.profile, bills, tuple(wrong))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    rented = draw(st.lists(accounts(), min_size=1, max_size=2, unique_by=lambda one: one.profile))
    pace = draw(st.sampled_from([Pace(120_000, 20_000), Pace(300_000, 60_000), Pace()]))
    least = min(first_lease(one.settings, pace) for one in rented)
    profile = rented[0].profile
    keys = [EVERYTHING, Key(Scope.DRIVER, profile), Key(Scope.PROFILE, profile), Key(Scope.POOL, "pool")]
    limits = st.builds(
        lambda key, window, percent: Budget(key, window, Amount(least * percent // 100)),
        st.sampled_from(keys), st.sampled_from(Window), st.integers(80, 1_000),
    )  # fmt: skip
    budgets = draw(st.lists(limits, min_size=1, max_size=3, unique_by=lambda one: (one.key, one.window)))
    edge_ms = draw(st.sampled_from([HOUR_MS, DAY_MS, 31 * DAY_MS]))
    usual = scene(*(one.settings.cloud for one in rented))
    end = EndRules(idle_ms=20_000, lifetime_ms=draw(st.sampled_from([20 * MINUTE_MS, 2 * HOUR_MS])))
    markets = draw(st.sampled_from([(Market.ON_DEMAND,), (Market.SPOT, Market.ON_DEMAND)]))
    return msgspec.structs.replace(
        usual,
        seed=draw(st.integers(0, 1_000)),
        accounts=tuple(rented),
        pools=(replace(usual.pools[0], markets=markets, end=end),),
        work=tuple(draw(st.lists(WORK, min_size=1, max_size=3))),
        faults=tuple(draw(st.lists(FAULTS, max_size=4))),
        caps=Caps(instances=6),
        budgets=tuple(budgets),
        pace=pace,
        begins_ms=edge_ms - draw(st.integers(0, 20 * MINUTE_MS)),
        horizon_ms=12 * HOUR_MS,
    )


def overspent(scenario: Scenario) -> list[str]:
    """What the clouds' meters have beyond a limit. Nothing else is asked: no other checker need look."""
    outcome = run(scenario, checkers=(Spend,), keep=20, sought=Spend.name)
    return [str(one) for one in outcome.findings if one.checker == Spend.name]


@given(scenarios())
@settings(
    max_examples=EXAMPLES or 60,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_whatever_happens_no_meter_passes_a_limit(scenario: Scenario) -> None:
    assert overspent(scenario) == []


@pytest.mark.parametrize("theme", MONEY)
def test_no_promise_is_broken_where_money_is_short(theme: str) -> None:
    """Seeds of the themes with limits: all promises, not only this one."""
    assert broken(theme, SEEDS) == ""


def tight(percent: int, *faults: Fault, cloud: Cloud = Cloud.EC2, **fields: Any) -> Scenario:
    """Work for far more VMs than `percent` of one's first lease pays for, in total unless told otherwise."""
    struck: tuple[CloudFault, ...] = fields.pop("struck", ())
    window, run_ms = fields.pop("window", Window.TOTAL), fields.pop("run_ms", 3 * MINUTE_MS)
    told_ms = fields.pop("told_ms", 0)
    usual, pace = scene(cloud), Pace(120_000, 20_000)
    slow = usual.accounts[0].settings
    slow = replace(slow, reaper_period_ms=slow.reaper_period_ms and 5 * MINUTE_MS, spot=Spot(step_ms=30_000))
    markets = fields.pop("markets", (Market.ON_DEMAND,))
    # Known and a VM each: what is launched is what is paid for.
    shape = Shape(Resources(2_000, GIB), preemptible=True)
    work = Work(count=60, shape=shape, conduct=Conduct(run_ms=run_ms), expected_ms=told_ms or run_ms, max_attempts=10)
    told = msgspec.structs.replace(
        usual,
        accounts=(CloudAccount(usual.accounts[0].profile, slow, struck),),
        pools=(replace(usual.pools[0], markets=markets),),
        work=(work,),
        faults=faults,
        caps=Caps(instances=20),
        budgets=(Budget(EVERYTHING, window, Amount(first_lease(slow, pace) * percent // 100)),),
        pace=pace,
        horizon_ms=12 * HOUR_MS,
    )
    return msgspec.structs.replace(told, **fields)


def alone(at_ms: int) -> tuple[CloudFault, Fault]:
    """From then on only hard ends are left."""
    hang = CloudFault(_C.HANG, from_ms=at_ms, until_ms=at_ms + 2 * MINUTE_MS, times=1_000)
    return hang, Fault(FaultKind.CRASH, at_ms + 1, amount=4 * HOUR_MS)


def unseen() -> Scenario:
    """A machine that hangs is launched for hours, and forgotten by a restore; its cloud can't be listed. Another one
    would serve what comes later, under an hourly limit that pays for one of the two."""
    usual = scene(Cloud.GCE, Cloud.EC2)
    (pool,), (first, second) = usual.pools, usual.accounts
    end = EndRules(idle_ms=20_000, lifetime_ms=5 * HOUR_MS)
    mute = CloudFault(_C.ERROR, operation="list", from_ms=55_000, until_ms=4 * HOUR_MS, times=100_000)
    hang = CloudFault(_C.HANG, from_ms=55_000, until_ms=2 * MINUTE_MS, times=10)

    def work(site: str, submit_ms: int, run_ms: int) -> Work:
        shape = Shape(Resources(2_000, GIB), labels=(("site", site),))
        return Work(submit_ms, 1, shape, Conduct(run_ms), expected_ms=run_ms, max_attempts=10)

    return msgspec.structs.replace(
        usual,
        accounts=(msgspec.structs.replace(first, faults=(mute, hang)), second),
        pools=tuple(
            replace(pool, name=PoolName(site), labels=(("site", site),), profiles=(one.profile,), end=end)
            for site, one in (("hidden", first), ("open", second))
        ),
        work=(work("hidden", 20_000, 4 * HOUR_MS), work("open", 2 * MINUTE_MS, 40 * MINUTE_MS)),
        faults=(Fault(FaultKind.RESTORE, 60_000, amount=50_000),),
        budgets=(
            Budget(EVERYTHING, Window.HOUR, Amount(max(map(full_rate, (first.settings, second.settings))) // 750)),
        ),
        timing=SELDOM,
        horizon_ms=12 * HOUR_MS,
    )


HANG, DEAD = alone(90_000)
LATE_HANG, LATE_DEAD = alone(4 * MINUTE_MS)
LAST_HANG, LAST_DEAD = alone(80 * MINUTE_MS)
#: For each bug scenarios in which it costs too much.
SCENES: dict[str, list[Scenario]] = {
    "admits_everything": [tight(200)],
    "forgets_the_hands_slowness": [tight(percent, DEAD, struck=(HANG,)) for percent in (200, 230, 260, 290)],
    "tells_before_it_commits": [
        tight(800, Fault(FaultKind.STORE_FAILS, 100_000, 4 * MINUTE_MS), run_ms=10 * MINUTE_MS, told_ms=MINUTE_MS)
    ],
    "books_the_price_of_the_moment": [
        tight(
            300,
            markets=(Market.SPOT,),
            struck=(
                CloudFault(_C.PRICE, type="c7i.large", until_ms=30_000, amount=5_000_000),
                CloudFault(_C.PRICE, type="c7i.large", from_ms=30_000, amount=90_000_000),
            ),
        )
    ],
    "forgets_that_it_came_from_a_backup": [
        tight(
            600,
            Fault(FaultKind.RESTORE, 60 * MINUTE_MS, amount=59 * MINUTE_MS),
            LAST_DEAD,
            struck=(LAST_HANG,),
            caps=Caps(instances=1),
        )
    ],
    "takes_the_unseen_for_unspent": [unseen()],
    "looks_at_the_first_window_alone": [
        tight(300, DEAD, struck=(HANG,), window=Window.HOUR, begins_ms=HOUR_MS - 120_000, run_ms=20 * MINUTE_MS)
    ],
    "forgets_what_is_in_doubt": [
        tight(180, LATE_DEAD, struck=(CloudFault(_C.NO_ANSWER, operation="launch"), LATE_HANG), run_ms=5 * MINUTE_MS)
    ],
    "believes_its_clock": [edge(30, 720_000)],
    "books_nothing": [tight(200)],
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is found without it."""
    assert [found for one in SCENES[name] for found in overspent(one)] == []
    PLANTS[name](monkeypatch)
    assert any(overspent(one) for one in SCENES[name])
