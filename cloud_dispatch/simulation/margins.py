"""Scenarios in which the margins of money are used up, as a trouble for `generate`. Owns where a margin that is missing
has nowhere to hide.

What may be slow is as slow as it may be, and every time: calls, hands, ends, clocks. Nothing is rounded up, and limits
pay for hardly more or less than what is asked for. Elsewhere each of the margins stands in for another.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_dispatch.domain.money import HOUR_MS, Amount, cost
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.settings import AccountSettings, Cloud, Life, Spread
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.money import CLOCKS_MS, full_rate
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.windows import Window

_MINUTE_MS = 60_000
_PACE = Pace(120_000, 20_000)
#: As much as one VM has.
_WHOLE = Shape(Resources(2_000, GIB))


def no_slack(scenario: Scenario, chance: Stream) -> Scenario:
    """See the module: in one of three situations."""
    situation = chance.pick((_left_to_hands, _left_to_hands, _over_an_edge, _found_late))
    return situation(_slowest(scenario, chance), chance)


def _always(ms: int) -> Spread:
    """A duration that is never another."""
    return Spread(ms, 0.0, ms)


def _slowest(scenario: Scenario, chance: Stream) -> Scenario:
    """One account, one pool, and no work yet."""
    first, pool = scenario.accounts[0], scenario.pools[0]
    settings = replace(
        first.settings,
        life=Life(
            start=_always(1_000),
            boot=_always(chance.pick((2_000, 40_000))),
            stop=_always(chance.pick((0, 30_000, 300_000))),
        ),
        latency=_always(chance.pick((10, 2_000))),
        minimum_ms=0,
        increment_ms=1,
        reaper_period_ms=first.settings.reaper_period_ms and chance.pick((15_000, 300_000)),
        reaper_behind_ms=chance.pick((0, CLOCKS_MS, CLOCKS_MS)),
    )
    end = replace(pool.end, lifetime_ms=3 * HOUR_MS, idle_ms=30_000, max_tasks=0)
    pool = replace(
        pool, profiles=(first.profile,), markets=(Market.ON_DEMAND,), caps=Caps(), end=end, target_drain_ms=60_000
    )
    return msgspec.structs.replace(
        scenario,
        accounts=(msgspec.structs.replace(first, settings=settings, faults=()),),
        pools=(pool,),
        caps=Caps(instances=20),
        faults=(),
        pace=_PACE,
        horizon_ms=12 * HOUR_MS,
    )


def _boots_ms(settings: AccountSettings) -> int:
    """From the launch to the first word of the agent."""
    return settings.life.start.most_ms + settings.life.boot.most_ms + 4 * settings.latency.most_ms


def _lag_ms(settings: AccountSettings) -> int:
    """How long after its hard end a VM may bill: the hand's slowness, its own, and the clocks'."""
    hand_ms = settings.life.start.most_ms if settings.cloud is Cloud.GCE else settings.reaper_period_ms
    return hand_ms + settings.life.stop.most_ms + CLOCKS_MS


def _left_to_hands(scenario: Scenario, chance: Stream) -> Scenario:
    """Every guest hangs and the dispatcher dies, soon after an end was moved on: only hard ends are left."""
    settings, vms = scenario.accounts[0].settings, chance.between(1, 3)
    longest_ms = 60_000 if settings.cloud is Cloud.GCE else 8 * _MINUTE_MS  # there ends are never moved on
    at_ms = _boots_ms(settings) + chance.between(5_000, longest_ms)
    off_ms = chance.pick((-CLOCKS_MS, 0, CLOCKS_MS, CLOCKS_MS, CLOCKS_MS))
    lasts_ms = at_ms + max(off_ms, 0) + chance.between(0, _PACE.lease_ms) + _lag_ms(settings)
    limit = Amount(vms * cost(full_rate(settings), lasts_ms))
    hang = CloudFault(CloudFaultKind.HANG, from_ms=at_ms, until_ms=at_ms + 1, times=1_000)
    died = Fault(FaultKind.CRASH, at_ms, amount=40 * _MINUTE_MS)
    return msgspec.structs.replace(
        scenario,
        accounts=(msgspec.structs.replace(scenario.accounts[0], faults=(hang,)),),
        work=(Work(count=vms, shape=_WHOLE, conduct=Conduct(run_ms=15 * _MINUTE_MS), max_attempts=10),),
        faults=(Fault(FaultKind.CLOCK, 1, died.ends_ms, off_ms), died),
        budgets=(Budget(EVERYTHING, chance.pick((Window.TOTAL, Window.TOTAL, Window.HOUR)), limit),),
        begins_ms=HOUR_MS - chance.below(15 * _MINUTE_MS),
    )


def _over_an_edge(scenario: Scenario, chance: Stream) -> Scenario:
    """An hour's money is used up, and much work comes when it is the next hour by the dispatcher's clock alone."""
    settings, vms = scenario.accounts[0].settings, chance.between(1, 3)
    edge_ms = chance.between(25, 45) * _MINUTE_MS
    lasts_ms = chance.between(15 * _MINUTE_MS, edge_ms - 4 * _MINUTE_MS) + CLOCKS_MS + _lag_ms(settings)
    early_ms = edge_ms - CLOCKS_MS + chance.pick((1_000, 10_000))
    return msgspec.structs.replace(
        scenario,
        work=(
            Work(count=vms, shape=_WHOLE, conduct=Conduct(run_ms=edge_ms), max_attempts=10),
            Work(early_ms, 20, _WHOLE, Conduct(run_ms=90_000), expected_ms=90_000, max_attempts=10),
        ),
        faults=(Fault(FaultKind.CLOCK, 1, edge_ms + 10 * _MINUTE_MS, CLOCKS_MS),),
        budgets=(Budget(EVERYTHING, Window.HOUR, Amount(vms * cost(full_rate(settings), lasts_ms))),),
        begins_ms=HOUR_MS - edge_ms,
    )


def _found_late(scenario: Scenario, chance: Stream) -> Scenario:
    """Many live at once, and a clock that has fallen behind the biller's finds that they are over; more work waits."""
    settings, vms, run_ms = scenario.accounts[0].settings, chance.between(4, 12), chance.pick((60_000, 120_000))
    boots_ms = _boots_ms(settings)
    lasts_ms = boots_ms + run_ms + _PACE.lease_ms + CLOCKS_MS + _lag_ms(settings)
    limit = Amount(vms * cost(full_rate(settings), lasts_ms) * chance.between(80, 120) // 100)
    return msgspec.structs.replace(
        scenario,
        work=(Work(count=40, shape=_WHOLE, conduct=Conduct(run_ms=run_ms), expected_ms=run_ms, max_attempts=10),),
        faults=(Fault(FaultKind.CLOCK, boots_ms + run_ms // 2, HOUR_MS, -CLOCKS_MS),),
        budgets=(Budget(EVERYTHING, Window.TOTAL, limit),),
    )
