"""Complaints about letting machines go: with work on its way to them, too often, and without a way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.planner.plan import Drain, Plan
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.reconcile import loop as loop_module
from cloud_dispatch.reconcile.reap import Reaper
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.settings import Cloud, Spot
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, HOUR_MS, MINUTE, with_account, with_pool
from tests.simulation.complaints.story import Evidence, Story, all_succeeded, ended_at_work
from tests.simulation.scenes import scene

_S = InstanceState
_LEAVING = (_S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE)

# -- 17: work is lost at scale-down


def _waves() -> tuple[Work, ...]:
    """Tasks that come ever later after the one before, around the moment when an idle machine is let go."""
    at, works = 90_000, [Work(conduct=Conduct(run_ms=1_000))]
    for step in range(24):
        at += 17_000 + step * 350
        works.append(Work(submit_ms=at, conduct=Conduct(run_ms=1_500)))
    return tuple(works)


def _note_decisions(world: World, evidence: Evidence) -> None:
    """From when to when a plan was made that lets machines go."""
    decided: list[tuple[int, int]] = evidence.noted.setdefault("drains", [])

    def watch(living: Incarnation) -> None:
        context: Any = living.parts.context if living.parts else None
        inside = context.planning.run

        async def run(*args: Any) -> Any:
            began = world.now_ms
            plan = await inside(*args)
            if isinstance(plan, Plan) and any(isinstance(action, Drain) for action in plan.actions):
                decided.append((began, world.now_ms))
            return plan

        context.planning.run = run

    world.plants.append(watch)


def _came_in_the_window(found: Evidence) -> Iterator[str]:
    came = [at for at, commit in found.commits if commit.new_tasks]
    if not any(began < at <= ended for at in came for began, ended in found.noted["drains"]):
        yield "no task came between the look that found a machine idle and the decision to let it go"


def _work_is_kept(found: Evidence) -> Iterator[str]:
    yield from ended_at_work(found)
    yield from all_succeeded(found)
    lost = [(task, cause) for task, _, cause in found.attempts() if cause != "success"]
    if lost:
        yield f"attempts were lost: {lost}"


def _end_without_asking(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer decides on what it saw and deletes the machine, whatever has come to it since."""

    async def drain(self: Any, action: Drain) -> None:
        await self._c.apply(action.instance, InstanceEvent.TERMINATE, cause=action.cause, reason=action.reason)

    patch.setattr(loop_module.Loop, "_drain", drain)


SCALE_DOWN = Story(
    17,
    "work-that-comes-in-the-idle-window-is-not-lost",
    scene(work=_waves(), plan_ms=2_500, latency_ms=300),
    _came_in_the_window,
    _work_is_kept,
    _end_without_asking,
    "attempts were lost",
    stage=_note_decisions,
)

# -- 18: consolidation churn


def _prices_moved(found: Evidence) -> Iterator[str]:
    if len(found.starts) < 40 or found.result.virtual_ms < 20 * MINUTE:
        yield "too little work for prices to move under"


def _no_churn(found: Evidence) -> Iterator[str]:
    """Work keeps coming at one pace: what was rented for it stays, whatever the prices do."""
    if len(found.vms) > found.most_alive:
        yield f"{len(found.vms)} machines were made for steady work, {found.most_alive} at once at most"
    yield from ended_at_work(found)


def _consolidate(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer swaps a machine whenever another type has become cheaper."""

    def plant(living: Incarnation) -> None:
        context: Any = living.parts.context if living.parts else None
        inside = context.planning.run

        async def swap(work: Any, snapshot: Snapshot) -> Plan:
            decided: Plan = await inside(work, snapshot)
            cheapest = min((o.rate for o in snapshot.offerings if o.market is Market.SPOT and o.rate), default=0)
            dear = [s for s in snapshot.supply if s.state in (_S.IDLE, _S.BUSY) and (s.rate or 0) > cheapest]
            drains = tuple(Drain(s.instance, "consolidation", "another type is cheaper now") for s in dear)
            return replace(decided, actions=(*decided.actions, *drains))

        context.planning.run = swap

    plants.dispatcher(world, plant)


STEADY = Story(
    18,
    "moving-prices-do-not-churn-machines",
    with_pool(
        with_account(
            scene(
                Cloud.EC2,
                work=tuple(Work(submit_ms=i * 15_000, conduct=Conduct(run_ms=28_000)) for i in range(80)),
                horizon_ms=HOUR_MS,
            ),
            spot=Spot(step_ms=30_000, swing=0.3, notice_ms=120_000),
        ),
        markets=(Market.SPOT,),
    ),
    _prices_moved,
    _no_churn,
    _consolidate,
    "machines were made for steady work",
)

# -- 19: drained, then not terminable, and no way back

_NO_ENDS_MS = 12 * MINUTE


def _resumed_and_refused(found: Evidence) -> Iterator[str]:
    if not _resumed(found):
        yield "no drain was taken back"
    if sum(call.operation == "terminate" and bool(call.refused) for call in found.calls) < 3:
        yield "terminations were hardly refused"


def _resumed(found: Evidence) -> dict[VmId, int]:
    """Machines that came back from draining, and when."""
    before: dict[str, InstanceState] = {}
    back: dict[VmId, int] = {}
    for row in found.rows:
        if before.get(row.instance.id) is _S.DRAINING and row.instance.state in (_S.IDLE, _S.BUSY):
            back[row.instance.vm] = row.at_ms
        before[row.instance.id] = row.instance.state
    return back


def _back_to_work_and_gone_at_last(found: Evidence) -> Iterator[str]:
    yield from all_succeeded(found)
    for vm, at in _resumed(found).items():
        if not any(start.vm == vm and start.at_ms > at for start in found.starts):
            yield f"machine {vm} was resumed at {at} ms and never worked again"
    for own in found.vms:
        ended = found.ended_ms(own)
        if ended is None or ended > _NO_ENDS_MS + 2 * MINUTE:
            yield f"machine {own.id} was drained and still there two minutes after it could be ended"


def _ask_once(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer asks for the end, is refused, and has nothing in its state from which to go on."""
    asked: set[str] = set()
    end = Reaper._end

    async def once(self: Reaper, row: Any) -> None:
        if row.id not in asked:
            asked.add(row.id)
            await end(self, row)

    patch.setattr(Reaper, "_end", once)


DRAINED = Story(
    19,
    "a-drain-can-be-taken-back-and-an-end-is-asked-for-until-it-comes",
    with_account(
        scene(
            work=(
                Work(conduct=Conduct(run_ms=120_000), shape=ALONE),
                Work(submit_ms=130_000, conduct=Conduct(run_ms=20_000), shape=ALONE),
            ),
            caps=Caps(instances=1),
            faults=(Fault(FaultKind.DRAIN, 100_000), Fault(FaultKind.HOLD, 110_000, 120_000)),
        ),
        CloudFault(Trouble.ERROR, "terminate", until_ms=_NO_ENDS_MS),
    ),
    _resumed_and_refused,
    _back_to_work_and_gone_at_last,
    _ask_once,
    "still there two minutes after",
)

STORIES = (SCALE_DOWN, STEADY, DRAINED)
