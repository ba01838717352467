"""Launches whose answers come as late as the agents that they tell of. Owns scenarios in which two hands reach for one
slot at the same time: whoever registers, and whoever binds what a cloud answers or lists."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.clouds.make import defaults
from cloud_dispatch.simulation.clouds.settings import Cloud, Spread
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import CloudAccount, Scenario, Work

_SUBMIT_MS = 60_000
_SLOW_UNTIL_MS = 240_000
_LAUNCHES = 6


def late_answers(scenario: Scenario, chance: Stream) -> Scenario:
    """One account at EC2, where nothing but who came first says which VM of a launch is which slot; launches of several
    VMs, answered when the first of them register; and a statestore so slow that who binds has looked long before."""
    wake_ms = chance.pick((3_000, 8_000, 15_000))
    usual = defaults(Cloud.EC2)
    life = replace(
        usual.life, start=Spread(wake_ms // 3, 0.2, wake_ms), boot=Spread(wake_ms * 2 // 3, 0.2, 2 * wake_ms)
    )
    late = tuple(
        CloudFault(
            CloudFaultKind.SLOW, operation="launch", times=1, amount=chance.between(wake_ms * 3 // 4, wake_ms * 3 // 2)
        )
        for _ in range(_LAUNCHES)
    )
    account = CloudAccount(scenario.accounts[0].profile, replace(usual, life=life), faults=late)
    pools = tuple(
        replace(pool, profiles=(account.profile,), target_drain_ms=30_000, caps=Caps()) for pool in scenario.pools
    )
    slow = Fault(FaultKind.STORE_SLOW, 0, _SLOW_UNTIL_MS, chance.pick((100, 500, 2_000)))
    more = tuple(
        Work(
            submit_ms=chance.below(_SUBMIT_MS),
            count=chance.between(4, 8),
            conduct=Conduct(run_ms=chance.pick((8_000, 25_000))),
            max_attempts=10,
        )
        for _ in range(3)
    )
    return msgspec.structs.replace(
        scenario,
        accounts=(account,),
        pools=pools,
        work=(*scenario.work, *more),
        faults=(*scenario.faults, slow),
        caps=Caps(instances=8),
    )
