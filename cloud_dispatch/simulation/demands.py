"""Scenarios in which more kinds of work want more kinds of machines, as troubles for `generate`. Owns what is asked
for, of which machines, and by which rules pools keep these.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.money import Amount, parse_rate
from cloud_dispatch.domain.offering import InstanceType, Market
from cloud_dispatch.domain.pool import Caps, EndRules, HealthCheck, Pool, TypeFilter
from cloud_dispatch.domain.resources import GIB, MIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import MACHINE_CAUSES, Cause
from cloud_dispatch.simulation.clouds.settings import Quota, Sold
from cloud_dispatch.simulation.conduct import FLAKY, Conduct
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.windows import Window

_TROUBLE_MS = 240_000
_LONG_MS = 8 * 3_600_000
#: Proportions of the defaults, for runs of minutes.
_PACE = Pace(lease_ms=120_000, drain_ms=20_000)
#: A limit of so much stops nothing that a run could do, micro-dollars.
AMPLE = Amount(5_000_000_000)
_GPU = InstanceType(
    "gpu-4", Resources(4_000, 16 * GIB, 100 * GIB, 1), gpu_type="t4", gpu_memory=16 * GIB, family="gpus"
)
_GPUS = InstanceType(
    "gpu-16", Resources(16_000, 64 * GIB, 100 * GIB, 4), gpu_type="l4", gpu_memory=24 * GIB, family="gpus"
)
_ARM = InstanceType("arm-4", Resources(4_000, 16 * GIB, 30 * GIB), architecture="arm64", family="arms")


def many_demands(scenario: Scenario, chance: Stream) -> Scenario:
    """GPUs, memory and disk, many at once and late ones, on pools that keep some machines and have rules of their
    own."""
    pools = [_ruled(pool, chance) for pool in scenario.pools]
    if chance.chance(0.5):
        first = pools[0]
        other = replace(first, name=PoolName("other"), markets=(Market.ON_DEMAND,), caps=Caps(instances=3), minimum=0)
        pools.append(_ruled(other, chance))
    work = [_odd(chance, pools) for _ in range(chance.between(2, 6))]
    return msgspec.structs.replace(
        scenario,
        accounts=tuple(selling_more(account) for account in scenario.accounts),
        pools=tuple(pools),
        work=(*scenario.work, *work),
        caps=Caps(instances=chance.between(6, 12)),
        horizon_ms=_LONG_MS,
    )


def long_work(scenario: Scenario, chance: Stream) -> Scenario:
    """Work that takes longer than the first hard ends of its machines, known or not, under limits that pay for all of
    it: on everything, or on a part of what there is."""
    drivers = scenario.drivers
    keys = (
        EVERYTHING,
        *(Key(Scope.DRIVER, driver) for driver in dict.fromkeys(drivers.values())),
        *(Key(Scope.PROFILE, profile) for profile in drivers),
        *(Key(Scope.POOL, pool.name) for pool in scenario.pools),
    )
    asked = {(chance.pick(keys), chance.pick(tuple(Window))) for _ in range(chance.between(1, 3))}
    budgets = tuple(Budget(key, window, AMPLE) for key, window in sorted(asked))
    work = []
    for _ in range(chance.between(1, 4)):
        run_ms = chance.pick((150_000, 400_000, 900_000))
        known_ms = chance.pick((0, 0, run_ms, run_ms * 4, run_ms // 4))
        shape = Shape(Resources(chance.pick((500, 1_000, 2_000)), GIB // 2), preemptible=chance.chance(0.5))
        submit_ms = chance.pick((0, chance.below(_TROUBLE_MS)))
        work.append(Work(submit_ms, chance.between(1, 5), shape, Conduct(run_ms), known_ms, max_attempts=20))
    return msgspec.structs.replace(
        scenario, budgets=(*scenario.budgets, *budgets), work=(*scenario.work, *work), pace=_PACE, horizon_ms=_LONG_MS
    )


def selling_more(account: CloudAccount) -> CloudAccount:
    """With GPUs and another architecture on sale as well."""
    settings = account.settings
    zones = settings.sells[0].zones
    more = (
        Sold(_GPU, zones[:2], parse_rate("0.526"), parse_rate("0.158")),
        Sold(_GPUS, zones[:1], parse_rate("2.97"), None),
        Sold(_ARM, zones, parse_rate("0.13"), parse_rate("0.05")),
    )
    quotas = settings.quotas and (*settings.quotas, Quota(64, "gpus"), Quota(64, "arms"))
    return msgspec.structs.replace(account, settings=replace(settings, sells=(*settings.sells, *more), quotas=quotas))


def _ruled(pool: Pool, chance: Stream) -> Pool:
    """With machines that it keeps, rules when they end, a part of each that is not for tasks, types it does not want,
    and health that is looked after."""
    end = EndRules(
        idle_ms=chance.pick((10_000, 30_000, 90_000)),
        max_tasks=chance.pick((0, 0, 1, 5)),
        empty_claims=chance.pick((0, 0, 2)),
        lifetime_ms=chance.pick((86_400_000, 86_400_000, 500_000, 900_000)),
    )
    check = HealthCheck((FLAKY,), chance.pick((5_000, 20_000)), 4_000, chance.between(1, 3))
    return replace(
        pool,
        caps=replace(pool.caps, vcpus=None),
        minimum=chance.pick((0, 0, 1, 2)),
        reserve=chance.pick((Resources(0, 0), Resources(200, 256 * MIB), Resources(1_000, GIB))),
        types=TypeFilter(deny=chance.pick(((), ("c7i.*", "n2-highcpu-*"), ("*.large", "*-2")))),
        max_tasks_per_instance=chance.pick((0, 0, 1, 4)),
        price_factor_percent=chance.pick((100, 150, 400)),
        end=end,
        health_checks=(check,) if chance.chance(0.2) else (),
    )


def _odd(chance: Stream, pools: list[Pool]) -> Work:
    """Some work of a kind that is not usual."""
    gpu = Shape(Resources(1_000, GIB, gpus=1), gpu_memory=chance.pick((0, 8 * GIB, 20 * GIB)))
    shape = chance.pick((
        gpu,
        Shape(Resources(4_000, 2 * GIB, gpus=2), gpu_type="l4"),
        Shape(Resources(3_000, 3 * GIB, 20 * GIB)),
        Shape(Resources(500, 6 * GIB)),
        Shape(Resources(1_000, GIB), labels=(("arch", "arm64"),)),
        Shape(Resources(6_500, 2 * GIB), preemptible=False),
        Shape(Resources(1_000, GIB), max_per_instance=1),
        Shape(Resources(100, 64 * MIB)),
        Shape(Resources(1_000, GIB), exclusive=True),
    ))  # fmt: skip
    if chance.chance(0.3):
        shape = replace(shape, pool=str(chance.pick(pools).name))
    run_ms = chance.pick((20, 2_000, 15_000, 90_000, 200_000))
    fails, codes = chance.pick(((0, ()), (0, ()), (2, (1,)), (5, (1, 75))))
    end = chance.pick((Cause.SUCCESS, Cause.SUCCESS, Cause.SUCCESS, Cause.SIGNAL, Cause.OUT_OF_MEMORY))
    causes = MACHINE_CAUSES | chance.pick((frozenset(), frozenset({Cause.SIGNAL, Cause.OUT_OF_MEMORY})))
    return Work(
        submit_ms=chance.pick((0, chance.below(_TROUBLE_MS), 600_000 + chance.below(_TROUBLE_MS))),
        count=chance.pick((1, 3, 9, 40)) if run_ms < 90_000 else chance.between(1, 6),
        shape=shape,
        conduct=Conduct(run_ms, cause=end, fails=fails, ignores_term=chance.chance(0.2)),
        expected_ms=chance.pick((0, run_ms, run_ms * 4, run_ms // 4)),
        priority=chance.between(-3, 9),
        max_attempts=chance.pick((1, 3, 20)),
        causes=tuple(sorted(causes)),
        exit_codes=codes,
        max_runtime_ms=chance.pick((0, 0, 60_000)),
    )
