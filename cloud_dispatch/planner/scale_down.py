"""Which instances are let go. Owns draining: on an operator's word, for a changed configuration, for want of work.

A drain is confirmed by the agent and fenced, so that work which arrives meanwhile is not lost; still, no instance with
work is drained for want of it but one that is much too large for it (`oversized`), and none that a waiting task could
use, since it would be rented again at once, but one on demand whose work spot VMs would do (`overpriced`). One that is
too old for what waits makes room for another, also where its pool keeps so many. Under a cap one with work takes no
more of it where others come first (`turns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.payer import NOBODY
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.planner.bins import Host
from cloud_dispatch.planner.caps import ENDING, Ledger
from cloud_dispatch.planner.exchange import Exchange
from cloud_dispatch.planner.needs import Need, fit_empty
from cloud_dispatch.planner.overpriced import Overpriced
from cloud_dispatch.planner.oversized import Oversized
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.plan import Drain
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.snapshot import Snapshot, Supply
from cloud_dispatch.planner.turns import Turns
from cloud_dispatch.planner.wanted import Wanted

_S = InstanceState
_AT_WORK = (_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT)


def ordered(snapshot: Snapshot, pools: Mapping[PoolName, Pool]) -> Iterator[Drain]:
    """Drains that need no want of work: an operator's word, a type or pool that left the configuration."""
    if snapshot.stop.terminates:
        return
    usual = all(not a[0].stale and a[0].behaviour is Behaviour.RUN and a[0].pool in pools for a in snapshot.alike)
    if usual and not snapshot.stop.drains:
        return
    silent = frozenset(snapshot.silent)
    for supply in snapshot.supply:
        if supply.state not in _AT_WORK or supply.behaviour is Behaviour.HOLD:
            continue
        stale = supply.stale or ("" if supply.pool in pools else f"pool {supply.pool} left the configuration")
        if snapshot.stop.drains:
            yield Drain(supply.instance, "stopped", f"everything is drained: {snapshot.stop.why}")
        elif supply.behaviour is Behaviour.DRAIN:
            yield Drain(supply.instance, "behaviour", "an operator set it to drain")
        elif stale and supply.profile not in silent:
            yield Drain(supply.instance, "stale", stale)


def release(
    snapshot: Snapshot,
    pools: Mapping[PoolName, Pool],
    targets: Mapping[PoolName, Wanted],
    capacity: Capacity,
    needs: Sequence[Need],
    ledger: Ledger,
    pricing: Pricing,
    dear: Sequence[Oversized | Overpriced],
) -> Iterator[Drain]:
    """Drains for want of work, the dearest instances first, never below what a pool shall have.

    An instance goes when it was idle for its pool's timeout or asks to end, and at once when that lets one be launched
    under a cap that waiting tasks can use. Nothing goes while any instance is unknown: it may hold the work or need it.
    One that is not given these tasks, being too old or too dear for their payer, is the first to make room, also where
    its pool keeps it: it is replaced.
    """
    if snapshot.unknowns or snapshot.stop.drains:
        return
    idle = [s for alike in snapshot.alike if _is_idle(alike[0], snapshot) for s in alike]
    short = [need for need in needs if need.left and need.short]
    reasons = {s.instance: _due(s, pools[s.pool], snapshot.now_ms) for s in idle}
    if not short:
        idle = [s for s in idle if reasons[s.instance]]
    idle.sort(key=lambda s: (not _declines_any(s, short), -(s.rate or 0), s.idle_since_ms or 0, s.instance))
    surplus = {name: capacity.serving.get(name, 0) - targets[name].count for name in pools}
    useful = _useful(idle, needs, capacity)
    others: list[Supply] = []
    for supply in idle:
        target = targets[supply.pool]
        if supply.instance in useful or not target.may_drain:
            continue
        if reasons[supply.instance] and surplus[supply.pool] > 0:
            surplus[supply.pool] -= 1
            ledger.end(supply)
            yield Drain(supply.instance, "idle", f"{reasons[supply.instance]}{_besides(target)}")
        else:
            others.append(supply)
    going: set[InstanceId] = set()
    turns = Turns(snapshot, pools, targets, capacity, needs)
    if short and (others or turns.any(short)):
        for alike in snapshot.alike:
            if alike[0].state in ENDING:
                ledger.end(alike[0], len(alike))
        for supply, need in Exchange(snapshot, ledger, pricing, others, surplus, turns).makes_room(short):
            going.add(supply.instance)
            yield _makes_room(supply, need, targets[supply.pool], turns)
    left = {name: surplus[name] if targets[name].may_drain else 0 for name in pools}
    for rule in () if snapshot.stop.launches else dear:
        yield from rule.drains(left, going)


def _makes_room(supply: Supply, need: Need, target: Wanted, turns: Turns) -> Drain:
    reason = f"makes room under a cap for tasks of {need.shape.describe()}"
    if supply.state is _S.BUSY:
        return Drain(supply.instance, "turn", f"{reason}: {turns.why(supply, need)}")
    if need.index not in supply.declines:
        return Drain(supply.instance, "surplus", f"{reason}{_besides(target)}")
    payer = f", or cost {need.item.payer} too much there" if need.item.payer != NOBODY else ""
    # what has a price at most was refused for it where a claim was made
    cause = "price" if need.item.most_rate else "lifetime"
    return Drain(supply.instance, cause, f"{reason}, which take longer than is left of its life{payer}")


def _declines_any(supply: Supply, short: Sequence[Need]) -> bool:
    """Whether it is not given what a cap keeps others from being launched for."""
    return bool(supply.declines) and any(need.index in supply.declines for need in short)


def _besides(target: Wanted) -> str:
    return "; no waiting task can use it" + (f"; {target.count} stay in its pool" if target.count else "")


def _is_idle(supply: Supply, snapshot: Snapshot) -> bool:
    return supply.state is _S.IDLE and not supply.load.tasks and snapshot.may_end(supply)


def _due(supply: Supply, pool: Pool, now_ms: int) -> str:
    """Why the instance has been idle for long enough, "" when it has not."""
    if supply.asks_end:
        return "it has nothing to do and asks to end"
    since, timeout = supply.idle_since_ms, pool.end.idle_ms
    if since is None or not timeout or now_ms - since < timeout:
        return ""
    return f"idle for {(now_ms - since) // 1000}s (timeout {format_duration(timeout)})"


def _useful(idle: Sequence[Supply], needs: Sequence[Need], capacity: Capacity) -> set[InstanceId]:
    """Those of `idle` on which a waiting task could start now, one slot a task, cheap instances first."""
    alike: dict[Host, list[InstanceId]] = {}
    for supply in reversed(idle):
        alike.setdefault(capacity.host(supply.machine, supply.declines), []).append(supply.instance)
    kept = dict.fromkeys(alike, 0)
    for need in needs:
        waiting = need.item.count
        for host, members in alike.items():
            free = len(members) - kept[host]
            if free and waiting > 0 and host.room[0] >= need.cpus and host.can(need):
                slots = fit_empty(host.room, need)
                count = min(free, -(-waiting // slots))
                kept[host] += count
                waiting -= count * slots
    return {instance for host, count in kept.items() for instance in alike[host][:count]}
