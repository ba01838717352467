"""The plan in words. Owns the reasons of launches, why the rest waits, and what misses by least; decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.money import format_rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.planner.catalogue import Catalogue
from cloud_dispatch.planner.needs import Need
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.plan import Launch, Unsatisfiable, Waiting
from cloud_dispatch.planner.preempted import EVEN, WORK_MS, Passed
from cloud_dispatch.planner.scale_up import Opening
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot

_SHAPES_NAMED = 3


def launches(snapshot: Snapshot, openings: Sequence[Opening]) -> tuple[Launch, ...]:
    """`openings` as batches that their providers take, most urgent first."""
    largest = dict(snapshot.max_batch)
    found: list[Launch] = []
    for opening in openings:
        reason = _launch_reason(opening)
        left = opening.count
        batch = max(largest.get(opening.offering.profile, 1), 1)
        while left > 0:
            slots = min(left, batch)
            others = tuple(o for o in opening.alternatives if largest.get(o.profile, 1) >= slots)
            found.append(Launch(opening.kind.pool.name, opening.offering, slots, reason, others))
            left -= slots
    return tuple(found)


def _launch_reason(opening: Opening) -> str:
    rate = opening.offering.rate
    parts = []
    served = sorted(opening.served.items(), key=lambda entry: entry[0].urgency)
    if served:
        named = ", ".join(f"{_tasks(count)} of {need.shape.describe()}" for need, count in served[:_SHAPES_NAMED])
        more = len(served) - _SHAPES_NAMED
        others = f" and {more} other shapes" if more > 0 else ""
        drain = format_duration(opening.kind.pool.target_drain_ms)
        parts.append(f"{named}{others} would not be served by what runs and boots within {drain}")
    if opening.purpose:
        parts.append(opening.purpose)
    if rate is not None:
        others = f" of {len(opening.alternatives) + 1} acceptable offerings" if opening.alternatives else ""
        by = " by what work costs there" if opening.passed else ""
        parts.append(f"{opening.offering.key} at {format_rate(rate)} is the cheapest{others}{by}")
    parts.extend(map(_passed_over, opening.passed))
    return "; ".join(parts)


def _passed_over(one: Passed) -> str:
    rate, seldom = one.offering.rate, one.preempted < 1_000
    often = f"once in {1_000 // max(one.preempted, 1)} h" if seldom else f"{one.preempted / 1_000:.1f} times an hour"
    return (
        f"{one.offering.key} at {'' if rate is None else format_rate(rate)} is passed over: its VMs are preempted about"
        f" {often}, which makes work of {format_duration(one.work_ms or WORK_MS)} cost"
        f" {one.weight / EVEN:.2f} times its price there"
    )


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"


def waiting(need: Need, snapshot: Snapshot, *, unseen: Sequence[str] = ()) -> Waiting | None:
    """Why tasks of `need` wait; None when all of them start on slots that are free now."""
    count = need.item.count - need.starting
    if count <= 0:
        return None
    parts = []
    if need.following:
        parts.append(f"{need.following} follow on instances that run: all is busy, and within the target drain")
    if need.booting:
        parts.append(f"{need.booting} start on instances that are booting")
    if need.opened:
        parts.append(f"{need.opened} start on instances that this plan launches")
        parts.extend(map(_passed_over, need.passed))
    obstacles: tuple[Obstacle, ...] = ()
    if need.left:
        reason, obstacles = _in_the_way(need, snapshot, unseen)
        parts.append(f"{need.left}: {reason}" if parts else reason)
    return Waiting(need.shape, count, "; ".join(parts), need.left, obstacles, need.item.payer)


def withheld(item: DemandItem) -> Waiting:
    """Its payer's limits do not admit that any of it is begun: a VM for it would stand idle."""
    return Waiting(item.shape, item.count, item.withheld, item.count, (Obstacle.BUDGET,), item.payer)


def _in_the_way(need: Need, snapshot: Snapshot, unseen: Sequence[str]) -> tuple[str, tuple[Obstacle, ...]]:
    """Why nothing is launched for what is left of `need`."""
    if snapshot.stop.launches:
        return str(snapshot.stop), (Obstacle.STOPPED,)
    if need.why:
        return need.why, tuple(each for each in Obstacle if each in need.obstacles)
    if unseen:
        return _unseen(snapshot, unseen), (Obstacle.SILENT,)
    return "no more is launched in this plan; the next one goes on", (Obstacle.NEXT_PLAN,)


def _unseen(snapshot: Snapshot, unseen: Sequence[str]) -> str:
    why = "; ".join(problem for profile, problem in snapshot.problems if profile in unseen)
    text = f"no offerings are known yet of {', '.join(unseen)}"
    return f"{text}: {why} (`cloud-dispatch config check --online` looks for the cause)" if why else text


def gang(item: DemandItem) -> Waiting:
    """Gangs start together or not at all; until launches can promise that, none is begun."""
    reason = f"gangs of {item.gang_size} tasks that start together are not launched for yet"
    return Waiting(item.shape, item.count, reason)


def unsatisfiable(need: Need, snapshot: Snapshot, catalogue: Catalogue) -> Unsatisfiable:
    """Why nothing that any pool may rent can ever run the shape, and what misses by least."""
    shape = need.shape
    names = [pool.name for pool in snapshot.pools]
    if shape.pool and shape.pool not in names:
        known = ", ".join(names) or "none"
        return Unsatisfiable(shape, need.item.count, f"pool {shape.pool} is not configured (pools: {known})")
    closest: tuple[tuple[int, int, int, str], Machine, Offering, Pool] | None = None
    for machine, offering, pool in _machines(catalogue, shape):
        misses, gap = _distance(machine, shape)
        rank = (misses, gap, offering.rate or 0, offering.key)
        if closest is None or rank < closest[0]:
            closest = (rank, machine, offering, pool)
    if closest is None:
        return Unsatisfiable(shape, need.item.count, "no pool may rent any offering")
    _, machine, offering, pool = closest
    why = machine.misfit(shape)
    reason = f"no offering of any pool can run {shape.describe()}"
    return Unsatisfiable(shape, need.item.count, reason, f"{offering.key} in pool {pool.name}: {why}")


def _machines(catalogue: Catalogue, shape: Shape) -> Iterator[tuple[Machine, Offering, Pool]]:
    """One offering a kind; all of them where labels tell them apart."""
    for kind in catalogue.shelf(()).kinds:
        for offering in kind.stock.offerings if shape.labels else kind.stock.offerings[:1]:
            yield catalogue.host(kind.pool, offering).machine, offering, kind.pool


def _distance(machine: Machine, shape: Shape) -> tuple[int, int]:
    """How many things `machine` lacks for `shape`, and how much of the amounts, in thousandths."""
    want, have = shape.resources, machine.capacity
    pairs = (
        (want.cpus_milli, have.cpus_milli),
        (want.memory, have.memory),
        (want.disk, have.disk),
        (want.gpus, have.gpus),
        (shape.gpu_memory, machine.gpu_memory),
    )
    lacking = [(asked - had) * 1000 // asked for asked, had in pairs if asked > had]
    flaws = [
        shape.pool not in ("", machine.pool),
        shape.gpu_type not in ("", machine.gpu_type),
        machine.spot and not shape.preemptible,
        *(label not in machine.labels for label in shape.labels),
    ]
    return len(lacking) + sum(flaws), sum(lacking)
