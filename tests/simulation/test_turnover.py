"""Under a cap, work that may be preempted moves from VMs on demand to spot VMs, and no place is lost to other work."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import HOUR_MS, Rate
from cloud_dispatch.domain.offering import InstanceType, Market
from cloud_dispatch.domain.pool import Caps, EndRules, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud, Room, Sold
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.run import run
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.simulation.world import World

MINUTE_MS = 60_000
TYPE = InstanceType("four", Resources(4_000, 16 * GIB, 100 * GIB))
SOLD = Sold(TYPE, ("a",), Rate(400_000_000), Rate(100_000_000))
FIRM, LOOSE = Shape(Resources(1_000, GIB), preemptible=False), Shape(Resources(1_000, GIB))


def tasks(at_minute: int, count: int, minutes: int, shape: Shape) -> Work:
    run_ms = minutes * MINUTE_MS
    return Work(at_minute * MINUTE_MS, count, shape, Conduct(run_ms=run_ms), run_ms)


def ended(*rooms: Room) -> list[Instance]:
    """All VMs, the first ones first: three at most are rented for tasks that must not be preempted; many come behind
    them that may be, and late one more that must not. No promise is broken on the way."""
    profile = ProfileName("ec2")
    account = replace(defaults(Cloud.EC2), sells=(SOLD,), rooms=rooms, quotas=(), extras=())
    both = (Market.ON_DEMAND, Market.SPOT)
    pool = Pool(PoolName("pool"), (profile,), markets=both, end=EndRules(idle_ms=MINUTE_MS), price_factor_percent=500)
    scenario = Scenario(
        name="turnover",
        seed=1,
        accounts=(CloudAccount(profile, account),),
        pools=(pool,),
        work=(tasks(0, 12, 10, FIRM), tasks(1, 120, 5, LOOSE), tasks(45, 1, 5, FIRM)),
        caps=Caps(instances=3),
        horizon_ms=6 * HOUR_MS,
    )
    found: list[Instance] = []

    async def finish(world: World) -> None:
        assert world.store is not None
        found.extend(await world.store.past_instances(limit=100))

    outcome = run(scenario, finish=finish)
    assert outcome.ok, outcome.findings
    return sorted((one for one in found if one.registered_ms is not None), key=lambda one: one.intended_ms)


def test_spot_vms_take_the_places_and_one_on_demand_stays_for_what_needs_it() -> None:
    """Two of three: the task that comes late is done by the third, and nothing is rented for it."""
    found = ended()
    assert Counter((one.market, one.cause) for one in found) == {
        (Market.ON_DEMAND, "overpriced"): 2, (Market.ON_DEMAND, "idle"): 1, (Market.SPOT, "idle"): 2,
    }  # fmt: skip


def test_where_no_spot_vms_can_be_had_one_is_lost_and_the_others_stay() -> None:
    """The refusal is remembered."""
    found = ended(Room(0, market=Market.SPOT))
    assert [one.market for one in found] == [Market.ON_DEMAND] * 4
    assert [one.cause for one in found].count("overpriced") == 1
