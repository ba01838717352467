"""Scenarios in which the statestore loses what it had, or is lost altogether, as troubles for `generate`."""

from __future__ import annotations

import msgspec

from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import Stream
from cloud_dispatch.simulation.scenario import Scenario

#: Troubles begin within this time.
_TROUBLE_MS = 240_000
#: Where there are limits: windows end meanwhile, and money does.
_SPENDING_MS = 1_500_000
_LATENESS = (1_000, 10_000, 60_000)


def older_store(scenario: Scenario, chance: Stream) -> Scenario:
    """The store comes back older than it was."""
    return _older(FaultKind.RESTORE, scenario, chance)


def lost_commits(scenario: Scenario, chance: Stream) -> Scenario:
    """The store comes back older than it was, under the dispatcher that runs on it."""
    return _older(FaultKind.FALL_BACK, scenario, chance)


def _older(kind: FaultKind, scenario: Scenario, chance: Stream) -> Scenario:
    came_back = Fault(kind, chance.between(30_000, _TROUBLE_MS), amount=chance.pick(_LATENESS))
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, came_back))


def lost_store(scenario: Scenario, chance: Stream) -> Scenario:
    """The store is gone, once or twice; it takes a while until somebody has the new one take over what runs, at worst
    longer than agents wait for it."""
    until_ms = _SPENDING_MS if scenario.budgets else _TROUBLE_MS
    lost = [
        Fault(FaultKind.LOSE, chance.between(30_000, until_ms), amount=chance.pick((2_000, 20_000, 90_000, 700_000)))
        for _ in range(chance.between(1, 2))
    ]
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, *lost))
