"""Another configuration for a while, as a fault has it: what an operator writes, and has read by a dispatcher that
runs. Owns what the configurations are. Each allows less than the scenario's own, so that what holds by that holds by
all.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.simulation.dispatcher import House
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import Scenario

_LATEST_MS = 240_000
_NO_PROFILE = 3


def other(house: House, fault: Fault) -> House:
    """The configuration of `house` as the fault has it: by its `which` fewer instances (its `amount`), without a pool,
    with a tenth of all limits, or without a profile (the one at its `amount`)."""
    match fault.which % 4:
        case 0:
            return replace(house, caps=Caps(instances=fault.amount))
        case 1:
            return replace(house, pools=house.pools[1:])
        case 2:
            return replace(house, budgets=tuple(replace(one, limit=Amount(one.limit // 10)) for one in house.budgets))
        case _:
            names = sorted(house.profile_caps)
            return _without(house, names[fault.amount % len(names)]) if names else house


def _without(house: House, gone: ProfileName) -> House:
    """It has left, and pools of which nothing is left then."""
    pools = [replace(pool, profiles=tuple(one for one in pool.profiles if one != gone)) for pool in house.pools]
    return replace(
        house,
        pools=tuple(pool for pool in pools if pool.profiles),
        profile_caps={name: caps for name, caps in house.profile_caps.items() if name != gone},
        driver_caps=tuple(
            replace(one, profiles=tuple(name for name in one.profiles if name != gone)) for one in house.driver_caps
        ),
        driver_names={name: driver for name, driver in house.driver_names.items() if name != gone},
        drivers=lambda: {name: driver for name, driver in house.drivers().items() if name != gone},
    )


def left_for_long(scenario: Scenario, chance: Stream) -> Scenario:
    """A profile leaves for longer than its VMs live, as a rule, and comes back."""
    at = chance.between(1_000, _LATEST_MS)
    left = Fault(FaultKind.CONFIGURE, at, at + chance.pick((600_000, 1_800_000)), chance.below(3), which=_NO_PROFILE)
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, left))


def other_configurations(scenario: Scenario, chance: Stream) -> Scenario:
    """Some of them, one after the other or two at once."""
    faults = []
    for _ in range(chance.between(1, 3)):
        at, lasts = chance.between(1_000, _LATEST_MS), chance.pick((4_000, 25_000, 90_000))
        faults.append(Fault(FaultKind.CONFIGURE, at, at + lasts, chance.below(2), which=chance.below(4)))
    return msgspec.structs.replace(scenario, faults=scenario.faults + tuple(faults))
