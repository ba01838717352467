"""Under a cap what comes first gets a place, whatever keeps coming; and none is given up for what a limit refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate
from cloud_dispatch.domain.offering import InstanceType, Market
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud, Sold
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.record import Record
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.simulation.workload.history import record_of
from cloud_dispatch.simulation.world import World
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window

MINUTE_MS = 60_000
PROFILE = ProfileName("ec2")
SOLD = Sold(
    InstanceType("four", Resources(4_000, 16 * GIB, 100 * GIB)), ("a",), Rate(200_000_000), Rate(60_000_000)
)  # fmt: skip
LOOSE, FIRM = Shape(Resources(1_000, GIB)), Shape(Resources(1_000, GIB), preemptible=False)


def tasks(minute: float, count: int, shape: Shape, *, priority: int = 0, run: int = 10) -> Work:
    run_ms = run * MINUTE_MS
    return Work(int(minute * MINUTE_MS), count, shape, Conduct(run_ms), run_ms, priority)


def begun(*work: Work, budgets: tuple[Budget, ...] = (), hours: int = 5) -> tuple[list[float], Counter[Market]]:
    """How many minutes tasks that must not be preempted waited, and on which markets VMs were rented, under a cap of
    one: four tasks of ten minutes come in each of these, so that the spot VM always has some. No promise is broken."""
    end = EndRules(idle_ms=MINUTE_MS, lifetime_ms=2 * HOUR_MS)
    pools = tuple(Pool(PoolName(market), (PROFILE,), markets=(market,), end=end) for market in Market)
    record = done((*work, *(tasks(n * 10, 4, LOOSE) for n in range(12))), pools, budgets=budgets, hours=hours)
    firm = [task for task in record.tasks if not task.shape.preemptible]
    began = [(task.started_ms - task.submit_ms) / MINUTE_MS for task in firm if task.started_ms is not None]
    return began, Counter(rental.market for rental in record.rentals if rental.registered_ms is not None)


def done(
    work: Iterable[Work], pools: tuple[Pool, ...], *, caps: Caps = Caps(instances=1), sells: tuple[Sold, ...] = (SOLD,),
    budgets: tuple[Budget, ...] = (), hours: int = 5,
) -> Record:  # fmt: skip
    """What a run recorded that breaks no promise."""
    account = replace(defaults(Cloud.EC2), sells=sells, quotas=(), extras=())
    scenario = Scenario(
        name="turns", seed=1, accounts=(CloudAccount(PROFILE, account),), caps=caps, budgets=budgets, pools=pools,
        work=tuple(sorted(work, key=lambda one: one.submit_ms)), horizon_ms=hours * HOUR_MS,
    )  # fmt: skip
    records: list[Record] = []

    async def finish(world: World) -> None:
        assert world.store is not None
        past = await world.store.past_instances(limit=100)
        records.append(await record_of(world.store, world.clock.now(), past))

    outcome = run(scenario, finish=finish)
    assert outcome.ok, outcome.findings
    (record,) = records
    return record


@pytest.mark.parametrize(
    ("priority", "backlog", "soonest", "latest"), [(1, 20, 0, 15), (0, 0, 10, 25), (0, 24, 45, 75)]
)
def test_what_only_others_can_run_gets_a_place_while_work_keeps_coming(
    priority: int, backlog: int, soonest: float, latest: float
) -> None:
    """By priority with the end of what runs; by age when it has waited for as long as its pool plans ahead, and the
    tasks that came before it have begun. It waited until all of two hours' work was done."""
    waited, machines = begun(tasks(0, backlog, LOOSE), tasks(25, 1, FIRM, priority=priority))
    (minutes,) = waited
    assert soonest < minutes < latest
    assert machines[Market.ON_DEMAND] == 1


def test_places_are_not_given_up_again_and_again_for_what_a_limit_refuses() -> None:
    """That is only known once it is tried: once an hour, not with the end of each task (ten VMs in these two hours)."""
    nothing = Budget(Key(Scope.POOL, Market.ON_DEMAND), Window.TOTAL, Amount(1))
    waited, machines = begun(tasks(25, 1, FIRM, priority=1), budgets=(nothing,))
    assert waited == []
    assert 1 < machines[Market.SPOT] <= 3


def test_with_a_long_queue_of_both_kinds_each_is_served_for_as_long_as_its_pool_plans_ahead() -> None:
    """Two hours' work of tasks that come in turns, each of which only one of two pools runs: the one that has waited
    for longest is another with the end of each task. Not one VM for each: 54 of them did these 60."""
    end = EndRules(idle_ms=MINUTE_MS, lifetime_ms=8 * HOUR_MS)
    pools = tuple(Pool(PoolName(name), (PROFILE,), markets=(Market.SPOT,), end=end) for name in ("a", "b"))
    whole = [Shape(Resources(4_000, GIB), pool=pool.name) for pool in pools]
    record = done([tasks(n / 10, 1, whole[n % 2], run=3) for n in range(60)], pools)
    assert all(task.started_ms is not None for task in record.tasks)
    assert 4 < len(record.rentals) <= 20
