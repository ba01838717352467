"""What a limit pays for is finished: whole runs against one that knows everything beforehand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import AgentTiming, CloudAccount, Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.windows import Window
from tests.simulation.yardstick import clairvoyant

DOLLAR = 1_000_000
HOURLY = Rate(1_000_000_000)
#: The quickest that a machine boots there, from where it is billed on.
BOOT_MS = 10_000
#: Nobody hurries over hours of work: fewer steps a virtual hour.
SLOW = Timing(
    heartbeat_ms=60_000, poll_ms=120_000, lease_ms=240_000, pass_interval_ms=60_000, list_interval_ms=120_000,
)  # fmt: skip


def work(count: int, hours: float, *, known: bool = True) -> Work:
    """Tasks that take a machine each."""
    run_ms = round(hours * HOUR_MS)
    shape = Shape(Resources(2_000, GIB))
    return Work(count=count, shape=shape, conduct=Conduct(run_ms=run_ms), expected_ms=run_ms if known else 0)


def under(dollars: int, *items: Work, seed: int = 1) -> Scenario:
    """On machines at a dollar an hour, disks apart; nothing goes wrong."""
    told = defaults(Cloud.EC2)
    sold = replace(told.sells[0], rate=HOURLY, spot_rate=None)
    profile = ProfileName("ec2")
    return Scenario(
        name="useful",
        seed=seed,
        accounts=(CloudAccount(profile, replace(told, sells=(sold,), extras=())),),
        pools=(Pool(PoolName("pool"), (profile,), target_drain_ms=HOUR_MS),),
        work=items,
        caps=Caps(instances=100),
        timing=SLOW,
        agents=AgentTiming(silence_ms=600_000),
        budgets=(Budget(EVERYTHING, Window.TOTAL, Amount(dollars * DOLLAR)),),
        horizon_ms=300 * HOUR_MS,
    )


def finished(scenario: Scenario) -> tuple[int, int]:
    """How many tasks, and how many by the yardstick; what was billed is within the limit."""
    outcome = run(scenario, keep=20)
    assert outcome.ok, outcome.findings
    limit = scenario.budgets[0].limit
    assert sum(line.amount for line in outcome.bill) <= limit
    lengths = [item.conduct.run_ms for item in scenario.work for _ in range(item.count)]
    done = outcome.tasks["succeeded"]  # type: ignore[index]
    return done, clairvoyant(limit, lengths, HOURLY, BOOT_MS)


def test_a_hundred_ten_hour_tasks_under_a_hundred_dollars() -> None:
    """Started all at once they would all be cut off."""
    done, most = finished(under(100, work(100, 10)))
    assert done >= 8
    assert done >= 0.85 * most


@pytest.mark.parametrize(
    ("dollars", "items"),
    [
        (1, [work(20, 0.25)]),
        (2, [work(40, 0.1)]),
        (2, [work(20, 0.25)]),
        (2, [work(20, 0.5)]),
        (2, [work(4, 1.5, known=False)]),
        (2, [work(2, 1.5), work(5, 0.75)]),
        (3, [work(40, 0.1)]),
        (7, [work(40, 0.5)]),
        (7, [work(4, 1.5), work(7, 0.75)]),
        (7, [work(9, 0.5), work(12, 1)]),
        (11, [work(15, 0.4), work(18, 1.2)]),
        (5, [work(40, 0.25)]),
        (10, [work(60, 1)]),
        (10, [work(30, 0.25), work(20, 1), work(10, 3)]),
        (10, [work(60, 0.25, known=False)]),
        (30, [work(60, 1, known=False)]),
        (30, [work(60, 1)]),
    ],
)
@pytest.mark.parametrize("seed", [1])
def test_what_a_limit_pays_for_is_finished(dollars: int, items: list[Work], seed: int) -> None:
    done, most = finished(under(dollars, *items, seed=seed))
    assert done >= 0.85 * most, (done, most)


@pytest.mark.parametrize("first", ["long", "short"])
def test_what_no_money_is_left_for_keeps_no_other_pool_waiting(first: str) -> None:
    """Twenty hours under five dollars can't be begun; ten short tasks of another pool can be finished."""
    base = under(5, work(1, 1))
    long, short = (
        msgspec.structs.replace(item, shape=replace(item.shape, pool=pool))
        for item, pool in ((work(1, 20), "long"), (work(10, 0.1), "short"))
    )
    pools = tuple(replace(base.pools[0], name=PoolName(pool)) for pool in ("long", "short"))
    items = (long, short) if first == "long" else (short, long)
    outcome = run(msgspec.structs.replace(base, pools=pools, work=items, horizon_ms=30 * HOUR_MS), keep=20)
    assert outcome.ok, outcome.findings
    assert outcome.tasks["succeeded"] == 10  # type: ignore[index]


def test_the_yardstick_is_floor_arithmetic() -> None:
    assert clairvoyant(Amount(100 * DOLLAR), [10 * HOUR_MS] * 100, HOURLY, 0) == 10
    assert clairvoyant(Amount(100 * DOLLAR), [10 * HOUR_MS] * 100, HOURLY, 1) == 9
    assert clairvoyant(Amount(3 * DOLLAR), [HOUR_MS, HOUR_MS, 3 * HOUR_MS], HOURLY, 60_000) == 2
    assert clairvoyant(Amount(3 * DOLLAR), [3 * HOUR_MS, HOUR_MS, HOUR_MS], HOURLY, 60_000) == 0
    assert clairvoyant(Amount(DOLLAR), [], HOURLY, 0) == 0
