"""Scenarios in which the statestore is lost altogether, as a trouble for `generate`."""

from __future__ import annotations

import msgspec

from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import Scenario


def lost_store(scenario: Scenario, chance: Stream) -> Scenario:
    """The store is gone, once or twice; it takes a while until somebody has the new one take over what runs, at worst
    longer than agents wait for it."""
    lost = [
        Fault(FaultKind.LOSE, chance.between(30_000, 240_000), amount=chance.pick((2_000, 20_000, 90_000, 700_000)))
        for _ in range(chance.between(1, 2))
    ]
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, *lost))
