"""Complaints about machines that are ended: the wrong ones, live ones, all of them, in name only, or never."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloud_dispatch.domain.instance import SERVING, InstanceEvent, InstanceState
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.funnel import Call as Asked
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.reconcile import loop as loop_module
from cloud_dispatch.reconcile.liveness import Verdict, judge
from cloud_dispatch.reconcile.reap import Reaper
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.ports import EndCause
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, HOUR_MS, MINUTE, with_account
from tests.simulation.complaints.story import Evidence, Story, ended_at_work
from tests.simulation.scenes import scene

_S = InstanceState
_LEAVING = (_S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE)

# -- 2: "terminated" while still billing


def _ends_were_troubled(found: Evidence) -> Iterator[str]:
    asked = [call for call in found.calls if call.operation == "terminate"]
    if sum(bool(call.refused) for call in asked) < 2 or len(asked) < 4:
        yield f"{len(asked)} terminations were asked for, of which too few went wrong"


def _gone_is_gone(found: Evidence) -> Iterator[str]:
    """What the store calls gone is gone at the cloud in the moment of the commit, and the meter stands still."""
    for row in found.rows:
        if row.instance.state is _S.GONE and row.truly not in (None, VmState.GONE):
            yield f"{row.instance.id} was called gone at {row.at_ms} ms, its machine was {row.truly}"
    for line in found.bill:
        if line.running:
            yield f"{line.vm} is still billed at the end"


def _believe_the_call(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer asks for the end once, whatever is answered, and calls the machine terminated."""

    async def end(self: Any, row: Any) -> None:
        provider = self._c.settings.providers[row.profile]
        try:
            await provider.terminate(row.vm)
        except ProviderError:
            pass
        await self._gone(row)

    patch.setattr(Reaper, "_end", end)


STILL_BILLING = Story(
    2,
    "gone-means-that-nothing-is-billed",
    with_account(
        scene(Cloud.ARM),
        CloudFault(Trouble.ERROR, "terminate", times=2),
        CloudFault(Trouble.LOST_ANSWER, "terminate", skip=2, times=1),
        CloudFault(Trouble.NO_ANSWER, "terminate", skip=3, times=1),
    ),
    _ends_were_troubled,
    _gone_is_gone,
    _believe_the_call,
    "was called gone",
)

# -- 14: collectors of orphans kill live workers

_LONG = Work(count=3, conduct=Conduct(run_ms=240_000), shape=ALONE, expected_ms=240_000)


def _listings_were_bad(found: Evidence) -> Iterator[str]:
    if found.result.deaths != 1 or len(found.starts) < 3:
        yield f"{found.result.deaths} deaths of the dispatcher, {len(found.starts)} tasks ran"


def _workers_live(found: Evidence) -> Iterator[str]:
    yield from ended_at_work(found)
    if len(found.starts) != found.scenario.tasks:
        yield f"{found.scenario.tasks} tasks were started {len(found.starts)} times"


def _absent_at_first_sight(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer's collector takes what one listing lacks for gone, and ends what is left of it."""

    def plant(living: Incarnation) -> None:
        parts: Any = living.parts

        def missing(instance: Any, *args: Any) -> None:
            gone = parts.context.apply(instance, InstanceEvent.ABSENT, cause="orphan", reason="not listed")
            parts.context.calls.start(f"collect:{instance}", forget(gone), "collect")

        async def forget(gone: Any) -> None:
            await gone

        parts.loop._observer._missing = missing

    plants.dispatcher(world, plant)


LIVE_WORKERS = Story(
    14,
    "no-live-worker-is-taken-for-an-orphan",
    with_account(
        scene(Cloud.EC2, work=(_LONG,), faults=(Fault(FaultKind.CRASH, 140_000, amount=5_000),)),
        CloudFault(Trouble.HIDDEN, from_ms=90_000, times=2, amount=25_000),
        CloudFault(Trouble.HIDDEN, from_ms=145_000, times=2, amount=25_000),
        CloudFault(Trouble.INCOMPLETE, from_ms=180_000, until_ms=220_000, amount=0),
        CloudFault(Trouble.STALE, "list", from_ms=220_000, until_ms=260_000, amount=25_000),
    ),
    _listings_were_bad,
    _workers_live,
    _absent_at_first_sight,
    "tasks were started",
)

# -- 15: the wrong node is terminated


def _idle_among_busy(found: Evidence) -> Iterator[str]:
    first = min((end.at_ms for end in found.ends), default=10**9)
    last = max((s.at_ms for s in found.exits), default=0)
    if first >= last:
        yield "no machine was ended while others worked"


def _the_one_that_was_meant(found: Evidence) -> Iterator[str]:
    yield from ended_at_work(found)
    for at, vm, state in found.states:
        if state is VmState.STOPPING:
            meant = found.first(found.registered.get(vm, ""), *_LEAVING)
            if meant is None or meant.at_ms > at:
                yield f"machine {vm} was ended at {at} ms, nobody had decided so"


def _one_of_the_group(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer makes the group smaller by one, and the cloud chooses which."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        if name is Asked.TERMINATE:
            group = [vm.id for vm in world.alive.values() if vm.state is VmState.RUNNING]
            args = (next((vm for vm in group if vm != args[0]), args[0]),)
        return await driver.pass_on(name, *args)

    plants.driver(world, answer)


RIGHT_NODE = Story(
    15,
    "the-machine-that-was-meant-is-ended",
    scene(
        work=(
            Work(count=2, conduct=Conduct(run_ms=150_000), shape=ALONE, expected_ms=150_000),
            Work(count=1, conduct=Conduct(run_ms=10_000), shape=ALONE, expected_ms=10_000),
        )
    ),
    _idle_among_busy,
    _the_one_that_was_meant,
    _one_of_the_group,
    "was ended at",
)

# -- 16: one bad node shuts down all


def _one_was_bad(found: Evidence) -> Iterator[str]:
    if sum(e.cause is EndCause.DIED and bool(e.running) for e in found.ends) != 1:
        yield "not one machine hung at its work"
    if not any(vm.id not in found.registered for vm in found.vms):
        yield "every machine booted"


def _others_work_on(found: Evidence) -> Iterator[str]:
    yield from ended_at_work(found)
    hung = {e.vm for e in found.ends if e.cause is EndCause.DIED}
    for row in found.rows:
        vm = row.instance.vm
        if row.instance.state is _S.FAILED and vm in found.registered and vm not in hung:
            yield f"machine {vm} was given up although it was well: {row.instance.cause}"


def _all_or_nothing(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer takes one dead node for a dead cluster."""
    failed: list[Verdict] = []

    def alarmed(row: Any, *args: Any) -> Verdict | None:
        verdict = judge(row, *args)
        if verdict is not None and verdict.event is InstanceEvent.FAIL:
            failed.append(verdict)
        return verdict or (failed[-1] if failed and row.state in SERVING else None)

    def everybody(self: Any, monotonic: int) -> list[Any]:
        return list(self._c.store.instances().values())

    patch.setattr(loop_module, "judge", alarmed)
    patch.setattr(loop_module.Loop, "_in_question", everybody)


ONE_BAD_NODE = Story(
    16,
    "one-bad-machine-is-one-bad-machine",
    with_account(
        scene(work=(_LONG,)),
        CloudFault(Trouble.NEVER_BOOTS, from_ms=110_000, until_ms=400_000, times=1),
        CloudFault(Trouble.HANG, from_ms=110_000, times=1),
    ),
    _one_was_bad,
    _others_work_on,
    _all_or_nothing,
    "was given up although it was well",
    planted_ms=10 * MINUTE,
)

# -- 22: the controller is off, idle machines bill

_OFF_MS = 100_000


def _off_with_machines(found: Evidence) -> Iterator[str]:
    if not any(found.made_ms(vm) < _OFF_MS for vm in found.vms) or found.result.deaths != 1:
        yield "the dispatcher did not go off with machines left behind"


def _machines_end_themselves(found: Evidence) -> Iterator[str]:
    agents, life = found.scenario.agents, found.scenario.accounts[0].settings.life
    most = _OFF_MS + agents.silence_ms + agents.kill_grace_ms + life.stop.most_ms + life.boot.most_ms
    for vm in found.vms:
        ended = found.ended_ms(vm)
        if found.made_ms(vm) < _OFF_MS and (ended is None or ended > most):
            yield f"machine {vm.id} was billed until {ended} ms, the dispatcher went off at {_OFF_MS}"


def _wait_for_orders(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer's machines wait for a controller to tell them that they may go."""
    plants.deaf_machines(world)


CONTROLLER_OFF = Story(
    22,
    "machines-end-themselves-when-the-dispatcher-is-off",
    scene(
        Cloud.EC2,
        work=(Work(count=6, conduct=Conduct(run_ms=30_000), shape=Shape()),),
        faults=(Fault(FaultKind.CRASH, _OFF_MS, amount=2 * HOUR_MS),),
        horizon_ms=3 * HOUR_MS,
    ),
    _off_with_machines,
    _machines_end_themselves,
    _wait_for_orders,
    "was billed until",
)

STORIES = (STILL_BILLING, LIVE_WORKERS, RIGHT_NODE, ONE_BAD_NODE, CONTROLLER_OFF)
