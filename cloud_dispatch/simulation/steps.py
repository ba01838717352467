"""A dispatcher's clock that is set, by minutes or days. Owns by how much, and for how long it stays so."""

from __future__ import annotations

import msgspec

from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import Scenario

_MINUTE_MS = 60_000
#: A run is over so much later for it: what is held back waits for a VM that shows that the clock is right again.
_LATER_MS = 30 * _MINUTE_MS


def set_clock(scenario: Scenario, chance: Stream) -> Scenario:
    """Once or twice, forward or back, at any time and maybe from the start on. Nobody knows what limits are worth then:
    there are none."""
    faults: list[Fault] = []
    at = chance.pick((1, chance.between(1_000, 5 * _MINUTE_MS)))
    for _ in range(chance.between(1, 2)):
        until = at + chance.between(30_000, 40 * _MINUTE_MS)
        by_ms = chance.pick((-1, 1)) * chance.pick((4, 20, 70, 400, 24 * 60)) * _MINUTE_MS
        faults.append(Fault(FaultKind.CLOCK, at, until, by_ms * chance.between(50, 120) // 100))
        at = until + chance.between(1, 5 * _MINUTE_MS)
    return msgspec.structs.replace(
        scenario, faults=(*scenario.faults, *faults), horizon_ms=scenario.horizon_ms + at + _LATER_MS
    )
