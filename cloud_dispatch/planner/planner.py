"""The planner: from a snapshot to a plan. Owns the order of the steps; each step is a module of its own.

Pure and deterministic: equal snapshots give equal plans, so that a stored one can be replayed. Its cost follows the
number of shapes, kinds of offerings and different instances; never the number of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_dispatch.planner import explain, scale_down
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Catalogue
from cloud_dispatch.planner.collect import collect
from cloud_dispatch.planner.instead import Instead
from cloud_dispatch.planner.needs import Need, Paces
from cloud_dispatch.planner.overpriced import Overpriced
from cloud_dispatch.planner.oversized import Oversized
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.plan import Plan, Unsatisfiable, Waiting
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.quotas import Quotas
from cloud_dispatch.planner.scale_up import Opening, ScaleUp
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.planner.wanted import open_wanted, wanted

#: How often launches are checked by placing all demand again with them; what is wrong by then is put right next pass.
#: Most plans are right at once; of 4,000 mixtures of shapes with and without GPUs one in a hundred took more than six.
MAX_CHECKS = 40


def plan(snapshot: Snapshot) -> Plan:
    """What to launch, drain and terminate now, each with its reason, and why the rest waits.

    Actions come in the order in which to take them: terminations, launches (the most urgent first), drains.
    """
    pools = {pool.name: pool for pool in snapshot.pools}
    paces = Paces()
    capacity = Capacity(snapshot, pools, paces)
    catalogue = Catalogue(snapshot, paces)
    ledger = Ledger(snapshot)
    pricing = Pricing(catalogue, ledger, capacity, Quotas(snapshot.quotas), snapshot.max_batch)
    scale_up = ScaleUp(catalogue, pricing)
    needs = [
        Need(i, item)
        for i, item in enumerate(snapshot.demand)
        if item.count > 0 and item.gang_size <= 1 and not item.withheld
    ]

    openings = _serve(needs, capacity, scale_up, stopped=snapshot.stop.launches)
    targets = wanted(snapshot)
    more, shortfalls = open_wanted(snapshot, targets, capacity.serving, openings, scale_up, pricing)
    instead = Instead(catalogue, pricing)
    dear = [rule(snapshot, pools, capacity, needs, instead, ledger, pricing) for rule in (Oversized, Overpriced)]
    still, never = _unserved(snapshot, needs, catalogue, capacity)
    return Plan(
        actions=(
            *collect(snapshot),
            *explain.launches(snapshot, [*openings, *more]),
            *scale_down.ordered(snapshot, pools),
            *scale_down.release(snapshot, pools, targets, capacity, needs, ledger, pricing, dear),
        ),
        waiting=tuple(still),
        unsatisfiable=tuple(never),
        shortfalls=tuple(shortfalls),
    )


def _serve(needs: Sequence[Need], capacity: Capacity, scale_up: ScaleUp, *, stopped: bool) -> list[Opening]:
    """Place `needs` on what exists and rent for the rest.

    What is rented is placed on again, exactly as the next plan will see it booting: so that the next plan, if nothing
    else changes, rents nothing. What that leaves unused is given back, what it leaves unserved is rented for.
    """
    by_urgency = sorted(needs, key=lambda need: need.urgency)
    capacity.fill_running(sorted(needs, key=lambda need: need.difficulty))
    beyond = {need: need.left for need in needs}
    openings: list[Opening] = []
    for check in range(MAX_CHECKS + 1):
        for need, left in beyond.items():
            need.left, need.booting, need.opened = left, 0, 0
        capacity.fill_booting(needs, scale_up.bins(openings))
        unused = [opening for opening in openings if opening.used < opening.count]
        for opening in unused:
            scale_up.give_back(opening, opening.count - opening.used)
        openings = [opening for opening in openings if opening.count]
        if stopped or check == MAX_CHECKS:
            break
        found = scale_up.open_all(by_urgency)
        if not found and not unused:
            break
        openings.extend(found)
    return openings


def _unserved(
    snapshot: Snapshot, needs: Sequence[Need], catalogue: Catalogue, capacity: Capacity
) -> tuple[list[Waiting], list[Unsatisfiable]]:
    """Every shape that does not all start now, in the order of the demand, with why."""
    waiting: list[Waiting] = []
    never: list[Unsatisfiable] = []
    by_index = {need.index: need for need in needs}
    for index, item in enumerate(snapshot.demand):
        need = by_index.get(index)
        if need is None:
            if item.count > 0:
                waiting.append(explain.withheld(item) if item.withheld else explain.gang(item))
        elif need.left == item.count and not need.why and not catalogue.can_run(need) and not capacity.can_run(need):
            if catalogue.unseen:
                waiting.extend(filter(None, [explain.waiting(need, snapshot, unseen=catalogue.unseen)]))
            else:
                never.append(explain.unsatisfiable(need, snapshot, catalogue))
        else:
            waiting.extend(filter(None, [explain.waiting(need, snapshot)]))
    return waiting, never
