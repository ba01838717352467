"""How many instances a pool shall have whatever waits. Owns the rule that joins its minimum with everybody's targets.

The highest counts: sources do not know of each other, and two that want three instances each are both content with
three. A pool may be shrunk only when every source of a target for it says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.planner.plan import Shortfall
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.scale_up import Opening, ScaleUp
from cloud_dispatch.planner.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Wanted:
    """`count` instances, because of `source`; `may_drain`: whether more than that may be ended for want of work."""

    count: int
    source: str
    may_drain: bool


def wanted(snapshot: Snapshot) -> dict[PoolName, Wanted]:
    """What each pool shall have at least."""
    found: dict[PoolName, Wanted] = {}
    for pool in snapshot.pools:
        best, may_drain = Wanted(pool.minimum, "its minimum", True), True
        for target in snapshot.targets:
            if target.pool == pool.name:
                may_drain = may_drain and target.may_drain
                if target.count > best.count:
                    best = Wanted(target.count, f"the target of {target.source}", True)
        found[pool.name] = Wanted(best.count, best.source, may_drain)
    return found


def open_wanted(
    snapshot: Snapshot,
    targets: dict[PoolName, Wanted],
    serving: dict[PoolName, int],
    openings: list[Opening],
    scale_up: ScaleUp,
    pricing: Pricing,
) -> tuple[list[Opening], list[Shortfall]]:
    """Openings that bring pools up to what they shall have, and where that can't be done; `serving` counts what runs
    or boots, `openings` what the plan rents for demand already."""
    opened: list[Opening] = []
    shortfalls: list[Shortfall] = []
    have = dict(serving)
    for opening in openings:
        have[opening.kind.pool.name] = have.get(opening.kind.pool.name, 0) + opening.count
    for pool in snapshot.pools:
        target = targets[pool.name]
        missing = target.count - have.get(pool.name, 0)
        if missing <= 0:
            continue
        more = [] if snapshot.stop.launches else scale_up.open_plain(pool.name, missing)
        for opening in more:
            opening.purpose = f"pool {pool.name} shall have {target.count} instances ({target.source})"
            missing -= opening.count
        opened.extend(more)
        if missing > 0:
            why = str(snapshot.stop) if snapshot.stop.launches else pricing.why_plain(pool.name)
            shortfalls.append(Shortfall(pool.name, missing, f"{target.source} wants {target.count} instances; {why}"))
    return opened, shortfalls
