"""Complaints about money: limits that are not kept, caps that are overshot, costs that nobody can see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.agent.supervisor import LIFETIME_GRACE_MS
from cloud_dispatch.domain.ids import PoolName, TaskId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.money import Amount, cost, split
from cloud_dispatch.domain.pool import Caps, EndRules
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.tags import ENDS_AT
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.planner import caps
from cloud_dispatch.provider.funnel import Call as Asked
from cloud_dispatch.reconcile.launch import Launcher
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.record import Record, Rental
from cloud_dispatch.simulation.report import rental_cost, report
from cloud_dispatch.simulation.scenario import AgentTiming, Work
from cloud_dispatch.simulation.workload.history import record_of
from cloud_dispatch.simulation.world import World
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING
from cloud_dispatch.spend.ends import Pace
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Window
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, HOUR_MS, MINUTE, with_account, with_pool
from tests.simulation.complaints.story import Evidence, Story
from tests.simulation.scenes import scene

# -- 3: limits in dollars; without one, caps and lifetimes, kept while nobody looks

#: Pays for a few of the tasks.
_LIMIT = Amount(20_000)


def _limit_was_reached(found: Evidence) -> Iterator[str]:
    waiting = found.result.tasks.get(TaskState.QUEUED, 0)
    if not waiting or not found.billed:
        yield f"{waiting} tasks wait, {found.billed} micro-dollars were billed"


def _limit_was_kept(found: Evidence) -> Iterator[str]:
    if found.billed > _LIMIT:
        yield f"{found.billed} micro-dollars were billed, the limit is {_LIMIT}"


def _check_afterwards(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer looks at what was spent: what runs may still come to is not counted."""
    patch.setattr(Standing, "committed", lambda *args: Amount(0))


DOLLAR_LIMIT = Story(
    3,
    "a-limit-in-dollars-is-kept-by-what-may-still-be-billed",
    msgspec.structs.replace(
        scene(
            Cloud.EC2,
            work=(Work(count=12, conduct=Conduct(run_ms=3 * MINUTE), shape=ALONE, expected_ms=3 * MINUTE),),
            caps=Caps(instances=6),
            horizon_ms=3 * HOUR_MS,
        ),
        budgets=(Budget(EVERYTHING, Window.TOTAL, _LIMIT),),
        pace=Pace(lease_ms=2 * MINUTE, drain_ms=20_000),
    ),
    _limit_was_reached,
    _limit_was_kept,
    _check_afterwards,
    "micro-dollars were billed, the limit is",
)

_LIFETIME_MS = 10 * MINUTE
_DEAD_MS = 2 * HOUR_MS


def _died_with_machines(found: Evidence) -> Iterator[str]:
    if found.result.deaths != 1 or len(found.vms) < 2:
        yield f"{found.result.deaths} deaths of the dispatcher, {len(found.vms)} machines"
    if not any(end.cause == "died" for end in found.ends):
        yield "no guest hung"


def _bill_is_bounded(found: Evidence) -> Iterator[str]:
    """Two machines at the dearest price there is, until their ends, the reaper's round and the power-off."""
    settings = found.scenario.accounts[0].settings
    each_ms = _LIFETIME_MS + LIFETIME_GRACE_MS + settings.reaper_period_ms + settings.life.stop.most_ms
    dearest = max(sold.rate for sold in settings.sells)
    most = 2 * cost(dearest, each_ms) + sum(cost(e.rate, each_ms) for e in settings.extras)
    if found.billed > most:
        yield f"{found.billed} micro-dollars were billed, caps and lifetimes admit {most}"
    for line in found.bill:
        if line.billed_ms > each_ms:
            yield f"{line.vm} was billed for {line.billed_ms} ms, its life was to end within {each_ms} ms"


def _no_ends(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer's machines have no end of their own: ending them is the controller's work."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        if name is Asked.LAUNCH:
            request = args[0]
            args = (replace(request, ends_ms=0, tags={**request.tags, ENDS_AT: "0"}),)
        if name is Asked.EXTEND:
            return frozenset()
        return await driver.pass_on(name, *args)

    plants.driver(world, answer)
    plants.deaf_machines(world)


BOUNDED_SPEND = Story(
    3,
    "spending-is-bounded-by-caps-and-lifetimes-with-the-dispatcher-dead",
    with_pool(
        with_account(
            scene(
                Cloud.EC2,
                work=(Work(count=2, conduct=Conduct(run_ms=30 * MINUTE), shape=ALONE, max_attempts=1),),
                caps=Caps(instances=2),
                faults=(Fault(FaultKind.CRASH, 120_000, amount=_DEAD_MS),),
                agents=AgentTiming(kill_grace_ms=3_000, silence_ms=HOUR_MS, hang_ms=20_000),
                horizon_ms=3 * HOUR_MS,
            ),
            CloudFault(Trouble.HANG, from_ms=150_000, times=1),
        ),
        end=EndRules(idle_ms=20_000, lifetime_ms=_LIFETIME_MS),
    ),
    _died_with_machines,
    _bill_is_bounded,
    _no_ends,
    "micro-dollars were billed",
)

# -- 4: node caps overshoot

_PLENTY = (Work(count=30, conduct=Conduct(run_ms=60_000), shape=ALONE, expected_ms=60_000),)


def _cap_was_reached(found: Evidence) -> Iterator[str]:
    if found.most_alive < 3 or not found.result.deaths:
        yield f"{found.most_alive} machines at once, {found.result.deaths} deaths of the dispatcher"


def _cap_was_kept(found: Evidence) -> Iterator[str]:
    if found.most_alive > 3:
        yield f"{found.most_alive} machines were alive at once by the cloud's count, the cap is 3"


def _count_what_runs(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer counts nodes that it sees running: those on their way in or out are free."""
    patch.setattr(caps, "COUNTED", frozenset({InstanceState.IDLE, InstanceState.BUSY}))
    patch.setattr(Launcher, "_room", lambda *args: 1_000)


NODE_CAP = Story(
    4,
    "a-cap-on-machines-is-not-overshot",
    with_account(
        scene(Cloud.EC2, work=_PLENTY, faults=(Fault(FaultKind.CRASH, 90_000, amount=5_000, which=2, point="commit"),)),
        CloudFault(Trouble.LOST_ANSWER, "launch", times=1),
        CloudFault(Trouble.DEATH, from_ms=150_000, times=1),
    ),
    _cap_was_reached,
    _cap_was_kept,
    _count_what_runs,
    "machines were alive at once",
)

# -- 5: a cap over everything


def _both_clouds_wanted(found: Evidence) -> Iterator[str]:
    if {vm.pool for vm in found.vms} != {"pool", "second"} or len({vm.account for vm in found.vms}) != 2:
        yield "not both pools, each in its cloud, had machines"


def _no_cap_over_all(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer knows limits of a node pool only."""

    def plant(living: Incarnation) -> None:
        context: Any = living.parts.context if living.parts else None
        context.settings = replace(context.settings, caps=Caps())

    plants.dispatcher(world, plant)


def _two_pools() -> Any:
    usual = scene(Cloud.GCE, Cloud.ARM, caps=Caps(instances=3))
    first = replace(usual.pools[0], profiles=usual.pools[0].profiles[:1], caps=Caps(instances=3))
    second = replace(first, name=PoolName("second"), profiles=usual.pools[0].profiles[1:])
    work = tuple(
        Work(count=8, conduct=Conduct(run_ms=40_000), shape=Shape(pool=pool, exclusive=True), expected_ms=40_000)
        for pool in (first.name, second.name)
    )
    return msgspec.structs.replace(usual, pools=(first, second), work=work)


CAP_OVER_ALL = Story(
    5,
    "a-cap-over-all-pools-and-clouds",
    _two_pools(),
    _both_clouds_wanted,
    _cap_was_kept,
    _no_cap_over_all,
    "machines were alive at once",
)

# -- 25: what did it cost?

#: A machine is paid from when it runs, and is known to be gone by a listing after it went.
_KNOWN_LATE_MS = 2 * MINUTE


async def _read_history(world: World, evidence: Evidence) -> None:
    assert world.store is not None
    evidence.noted["record"] = await record_of(world.store, world.clock.now())


def _machines_were_shared(found: Evidence) -> Iterator[str]:
    record: Record = found.noted["record"]
    if len(record.rentals) < 2 or len({task.user for task in record.tasks}) < 2 or len(record.runs) < 20:
        yield f"{len(record.rentals)} machines, {len(record.runs)} runs: too little to be split"


def _costs_are_known(found: Evidence) -> Iterator[str]:
    record: Record = found.noted["record"]
    billed = {line.vm: line.amount for line in found.bill}
    for rental in record.rentals:
        known, truly = rental_cost(rental, record.end_ms), billed[rental.vm]
        slack = cost(rental.rate, _KNOWN_LATE_MS) if rental.rate else 0
        if known is None or not truly <= known <= truly + slack:
            yield f"the statestore makes {known} micro-dollars of {rental.vm}, the cloud billed {truly}"
    by_cloud = replace(record, rentals=tuple(replace(own, billed=billed[own.vm]) for own in record.rentals))
    for name, source in (("rates", record), ("the bill", by_cloud)):
        tasks, whole = _cost_of_tasks(source), report(source).cost
        if sum(tasks.values()) != whole.work:
            yield f"by {name} the tasks cost {sum(tasks.values())} together, the machines' work {whole.work}"
        if sum(tasks.values()) == 0 or min(tasks.values()) <= 0:
            yield f"by {name} a task cost nothing"


def _cost_of_tasks(record: Record) -> dict[TaskId, int]:
    """A machine's cost of work by the time of the attempts on it: the parts sum to it exactly."""
    costs: dict[TaskId, int] = {}
    for rental in record.rentals:
        runs = [run for run in record.runs if run.instance == rental.instance]
        if runs:
            weights = [(run.ended_ms or record.end_ms) - run.started_ms for run in runs]
            for run, part in zip(runs, split(_work_of(record, rental), weights), strict=True):
                costs[run.task] = costs.get(run.task, 0) + part
    return costs


def _work_of(record: Record, rental: Rental) -> Amount:
    return Amount(report(replace(record, rentals=(rental,))).cost.work)


def _stale_prices(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer reckons with a table of prices that was once true."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        result = await driver.pass_on(name, *args)
        if name is Asked.OFFERINGS:
            return tuple(replace(offering, rate=offering.rate * 4 // 5) for offering in result)
        return result

    plants.driver(world, answer)


COST = Story(
    25,
    "the-cost-of-tasks-is-known-and-sums-to-the-bill",
    scene(
        Cloud.EC2,
        work=tuple(
            Work(submit_ms=at, count=10, conduct=Conduct(run_ms=run), user=user, expected_ms=run)
            for at, run, user in ((0, 40_000, "ada"), (20_000, 25_000, "ben"), (60_000, 70_000, "cyd"))
        ),
    ),
    _machines_were_shared,
    _costs_are_known,
    _stale_prices,
    "the cloud billed",
    finish=_read_history,
)

STORIES = (DOLLAR_LIMIT, BOUNDED_SPEND, NODE_CAP, CAP_OVER_ALL, COST)
