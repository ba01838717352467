"""Deaths of the dispatcher one by one: at every step and every effect of a scenario in turn, not at random. Owns the
enumeration.

A step is one turn of the loop by one of the dispatcher's tasks, so between any two awaits that wait there is one; what
happens between two effects of one turn is covered by the points after each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cloud_dispatch.simulation.faults import POINTS, Fault, FaultKind
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario

#: No scenario that is worth this passes a point more often.
MOST = 100_000


def crashed_at(scenario: Scenario, point: str, which: int, down_ms: int = 1_000) -> Scenario:
    """`scenario` with one more fault: the dispatcher dies when it passes `point` the `which`-th time (from 1)."""
    death = Fault(FaultKind.CRASH, 0, amount=down_ms, which=which, point=point)
    name = f"{scenario.name}, dead at {point} {which}"
    return msgspec.structs.replace(scenario, name=name, faults=(*scenario.faults, death))


def every(scenario: Scenario, point: str, *, first: int = 1, stride: int = 1) -> Iterator[Outcome]:
    """Runs of `scenario` with a death at the `first` passing of `point`, `first + stride` and so on, to the last."""
    if point not in POINTS:
        raise ValueError(f"{point!r} is no point; they are {', '.join(POINTS)}")
    for which in range(first, MOST, stride):
        outcome = run(crashed_at(scenario, point, which), keep=40)
        if not outcome.deaths:
            return
        yield outcome
