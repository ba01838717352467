"""Small snapshots for tests of the planner, and what a plan does to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Load, Machine, Shape
from cloud_dispatch.planner.plan import Drain, Launch, Plan, Terminate
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot, Supply

NOW = 10_000_000
MINUTE = 60_000
AWS, GCP = ProfileName("aws"), ProfileName("gcp")
MAIN, OTHER = PoolName("main"), PoolName("other")


def shape(cpus: float = 1, memory: float = 1, **rest: Any) -> Shape:
    """A shape of `cpus` and GiB of `memory`; `disk` in bytes and `gpus` go to its resources."""
    amounts = Resources(int(cpus * 1000), int(memory * GIB), rest.pop("disk", 0), rest.pop("gpus", 0))
    return Shape(amounts, **rest)


def offering(
    name: str = "small", cpus: float = 1, memory: float = 4, price: int | None = 100, *, zone: str = "a",
    profile: ProfileName = AWS, market: Market = Market.ON_DEMAND, gpus: int = 0, gpu: str = "", gpu_memory: int = 0,
    disk: int = 100, **rest: Any,
) -> Offering:  # fmt: skip
    """An offering at `price` thousandths of a dollar an hour."""
    kind = InstanceType(name, Resources(int(cpus * 1000), int(memory * GIB), disk * GIB, gpus), gpu, gpu_memory)
    return Offering(profile, kind, zone, market, None if price is None else Rate(price * 1_000_000), **rest)


def pool(name: PoolName = MAIN, *profiles: ProfileName, **rest: Any) -> Pool:
    return Pool(name, profiles or (AWS,), **rest)


def demand(wanted: Shape, count: int, **rest: Any) -> DemandItem:
    return DemandItem(wanted, count, **rest)


def machine_of(pools: Sequence[Pool], name: PoolName, rented: Offering) -> Machine:
    owner = next(p for p in pools if p.name == name)
    return rented.machine(name, owner.labels, reserve=owner.reserve, max_tasks=owner.max_tasks_per_instance)


def instance(
    number: int | str = 0, rented: Offering | None = None, state: InstanceState = InstanceState.IDLE, *,
    pools: Sequence[Pool] = (), of: PoolName = MAIN, load: Load = Load(), **rest: Any,
) -> Supply:  # fmt: skip
    """An instance of `rented` in pool `of`; by default just registered, idle and empty."""
    rented = rented or offering()
    values: dict[str, Any] = {
        "behaviour": Behaviour.RUN,
        "machine": machine_of(pools or (pool(of),), of, rented),
        "vcpus": rented.type.vcpus,
        "rate": rented.rate,
        "intended_ms": NOW,
        "since_ms": NOW,
        "idle_since_ms": NOW if state is InstanceState.IDLE and not load.tasks else None,
    }
    return Supply(
        InstanceId(f"batch-{number}"), of, rented.profile, rented.type.name, rented.zone, str(rented.market), state,
        load=load, **{**values, **rest},
    )  # fmt: skip


def snapshot(
    items: Iterable[DemandItem] = (), *, supply: Iterable[Supply] = (), pools: Sequence[Pool] = (pool(),),
    offerings: Sequence[Offering] | None = None, **rest: Any,
) -> Snapshot:  # fmt: skip
    """Demand on one pool that may rent 1-cpu instances, unless told otherwise; batches of any size."""
    values: dict[str, Any] = {
        "now_ms": NOW,
        "targets": (),
        "max_batch": ((AWS, 1_000_000), (GCP, 1_000_000)),
    }
    rented = (offering(),) if offerings is None else tuple(offerings)
    return Snapshot(
        demand=tuple(items), supply=tuple(supply), pools=tuple(pools), offerings=rented, **{**values, **rest}
    )


def busy(load: Shape, count: int) -> Load:
    """What runs on an instance that holds `count` tasks of `load`."""
    total = Load()
    for _ in range(count):
        total = total.plus(load)
    return total


def launches(plan: Plan) -> list[Launch]:
    return [action for action in plan.actions if isinstance(action, Launch)]


def launched(plan: Plan) -> dict[str, int]:
    """How many instances of each type the plan launches."""
    found: dict[str, int] = {}
    for action in launches(plan):
        found[action.offering.type.name] = found.get(action.offering.type.name, 0) + action.slots
    return found


def drained(plan: Plan) -> dict[str, str]:
    """The instances that the plan drains, with the cause."""
    return {action.instance: action.cause for action in plan.actions if isinstance(action, Drain)}


def terminated(plan: Plan) -> dict[str, str]:
    return {action.instance: action.cause for action in plan.actions if isinstance(action, Terminate)}


def applied(before: Snapshot, plan: Plan) -> Snapshot:
    """`before` once the launches of `plan` are booting, its drains draining and its terminations under way."""
    ends = {action.instance: InstanceState.DRAINING for action in plan.actions if isinstance(action, Drain)}
    ends.update({a.instance: InstanceState.TERMINATING for a in plan.actions if isinstance(a, Terminate)})
    supply = [replace(s, state=ends.get(s.instance, s.state)) for s in before.supply]
    for index, action in enumerate(launches(plan)):
        supply.extend(
            instance(
                f"new{index}x{slot}", action.offering, InstanceState.BOOTING, pools=before.pools, of=action.pool,
                intended_ms=before.now_ms, since_ms=before.now_ms,
            )
            for slot in range(action.slots)
        )  # fmt: skip
    return replace(before, supply=tuple(supply))
