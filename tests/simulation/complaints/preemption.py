"""Complaints about spot machines: notices that nobody uses, preemptions that leave work behind, and zones that take
machines back again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.task import Cause, TaskState
from cloud_dispatch.provider.spi import Listing, VmState
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.records import Record
from cloud_dispatch.simulation.clouds.settings import Cloud, Life, Spread
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.simulation.world import World
from cloud_dispatch.spend.spot_past import SpotPast
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, with_account, with_pool
from tests.simulation.complaints.story import Evidence, Start, Story, all_succeeded
from tests.simulation.scenes import scene

_STRUCK_MS = 120_000
_S, _V = InstanceState, VmState
_LEAVING = (_S.DRAINING, _S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE)


def _on_spot(cloud: Cloud, notice_ms: int) -> Scenario:
    """Two machines with 200 s of work each, of which one is taken back."""
    usual = with_pool(scene(cloud, horizon_ms=30 * 60_000), markets=(Market.SPOT,))
    work = (Work(count=2, conduct=Conduct(run_ms=200_000), shape=ALONE, expected_ms=200_000),)
    struck = CloudFault(Trouble.PREEMPT, from_ms=_STRUCK_MS, times=1, amount=notice_ms)
    return with_account(msgspec.structs.replace(usual, work=work), struck)


def _running_when_struck(found: Evidence) -> dict[str, Start]:
    """What ran at the moment of the preemption, by machine."""
    over = {(e.vm, e.token) for e in found.exits if e.at_ms < _STRUCK_MS}
    return {s.vm: s for s in found.starts if s.at_ms < _STRUCK_MS and (s.vm, s.token) not in over}


def _taken_back(found: Evidence) -> Start | None:
    """What ran on the machine that the cloud took back."""
    taken = [vm.id for vm in found.vms if cast(Record, vm).preempted]
    return _running_when_struck(found).get(taken[0]) if taken else None


def _one_was_struck(found: Evidence) -> Iterator[str]:
    if len(_running_when_struck(found)) != 2 or _taken_back(found) is None:
        yield "not two machines worked when one was taken back"


# -- 12: notices are not used


def _notice_is_used(found: Evidence) -> Iterator[str]:
    """Within seconds of the notice the task is put back and another machine asked for."""
    struck = _taken_back(found)
    assert struck is not None
    said = found.first(found.registered[struck.vm], *_LEAVING)
    if said is None or said.at_ms > _STRUCK_MS + 20_000:
        yield f"the dispatcher learned of the notice at {said.at_ms if said else 'no time'} ms, it came at {_STRUCK_MS}"
    made = [found.made_ms(vm) for vm in found.vms if found.made_ms(vm) > _STRUCK_MS]
    if not made or min(made) > _STRUCK_MS + 20_000:
        yield f"the next machine was asked for at {min(made, default=0)} ms, the notice came at {_STRUCK_MS}"
    late = [s for s in found.starts if s.vm == struck.vm and s.at_ms > _STRUCK_MS]
    if late:
        yield f"task {late[0].task} was started on a machine that had its notice"


def _deaf(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer's machines do not listen for notices."""
    world.on_notice = lambda vm, ends_ms: None  # type: ignore[method-assign]


NOTICES = tuple(
    Story(
        12,
        f"a-preemption-notice-of-{notice_ms // 1000}s-moves-the-work-before-the-machine-goes",
        _on_spot(cloud, notice_ms),
        _one_was_struck,
        _notice_is_used,
        _deaf,
        "the dispatcher learned of the notice",
    )
    for cloud, notice_ms in ((Cloud.EC2, 120_000), (Cloud.GCE, 30_000))
)

# -- 13: preemption without notice is mishandled


def _work_goes_on(found: Evidence) -> Iterator[str]:
    """The attempt ends by the machine's fault, the task runs again elsewhere, and what is gone is known to be gone."""
    struck = _taken_back(found)
    assert struck is not None
    timing = found.scenario.timing
    again = [s.at_ms for s in found.starts if s.task == struck.task and s.vm != struck.vm]
    due = _STRUCK_MS + timing.silence_ms + timing.list_interval_ms + 120_000
    if not again or min(again) > due:
        yield f"task {struck.task} lost its machine and was started again at {min(again, default=None)} ms"
    causes = {cause for task, _, cause in found.attempts() if task == struck.task}
    if not causes <= {Cause.SUCCESS, Cause.INSTANCE_LOST, Cause.PREEMPTED}:
        yield f"the attempts of task {struck.task} ended as {sorted(causes)}"
    gone = found.first(found.registered[struck.vm], _S.GONE)
    if gone is None or gone.at_ms > due:
        yield f"machine {struck.vm} was taken back and still counts as there"
    if found.result.tasks.get(TaskState.SUCCEEDED) != 2:
        yield f"the work was not done: { {str(k): v for k, v in found.result.tasks.items() if v} }"


def _believe_the_record(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer's record says that the job runs; that its machine has gone changes nothing about the record."""

    def plant(living: Incarnation) -> None:
        parts: Any = living.parts
        observer = parts.loop._observer

        async def nothing(*args: Any) -> None:
            return None

        parts.loop._judge = nothing
        observer._ended = nothing
        observer._missing = lambda *args: None

    plants.dispatcher(world, plant)


UNANNOUNCED = Story(
    13,
    "a-preemption-without-notice-loses-no-work",
    _on_spot(Cloud.ARM, 0),
    _one_was_struck,
    _work_goes_on,
    _believe_the_record,
    "lost its machine and was started again at None",
)

# -- 13: the cheapest zone is rented in again and again, however often it takes its machines back

_ZONE, _EVERY_MS, _WORK_MS = "us-east-1a", 240_000, 600_000


def _in_a_zone_that_takes_all_back() -> Scenario:
    """Tasks of ten minutes. The cheapest zone takes its machines back every four minutes, the others cost a tenth
    more."""
    usual = with_pool(scene(Cloud.EC2), markets=(Market.SPOT,))
    work = (Work(count=6, conduct=Conduct(run_ms=_WORK_MS), shape=ALONE, expected_ms=_WORK_MS),)
    prices = [
        CloudFault(
            Trouble.PRICE, type=sold.type.name, zone=zone, amount=sold.spot_rate * (10 if zone == _ZONE else 11) // 10
        )
        for sold in usual.accounts[0].settings.sells
        for zone in sold.zones
        if sold.spot_rate is not None
    ]
    struck = [
        CloudFault(Trouble.PREEMPT, zone=_ZONE, from_ms=number * _EVERY_MS, times=100, amount=-1)
        for number in range(1, 14)
    ]
    return with_account(msgspec.structs.replace(usual, work=work), *prices, *struck)


def _zone_took_machines_back(found: Evidence) -> Iterator[str]:
    if not any(cast(Record, vm).preempted and vm.zone == _ZONE for vm in found.vms):
        yield "the cheapest zone took no machine back"


def _zone_is_left(found: Evidence) -> Iterator[str]:
    """All work is done, on machines elsewhere."""
    yield from all_succeeded(found)
    made = [found.made_ms(vm) for vm in found.vms if vm.zone == _ZONE]
    if max(made) > 2 * _EVERY_MS:
        yield f"{len(made)} machines were rented in the zone, the last one at {max(made)} ms"


def _forgetful(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer looks at prices alone."""
    patch.setattr(SpotPast, "seen", lambda past, now_ms: ())


LEFT = Story(
    13,
    "a-zone-that-takes-its-machines-back-is-left-for-another",
    _in_a_zone_that_takes_all_back(),
    _zone_took_machines_back,
    _zone_is_left,
    _forgetful,
    "0 of 6 tasks succeeded",
)

# -- 13: a machine that is taken back while it boots counts as a boot that failed

_BOOTING_MS = 20_000


def _taken_while_it_boots(cloud: Cloud, notice_ms: int) -> Scenario:
    """One task, one kind of machine in one zone; the first of them is taken back before it has booted."""
    usual = with_pool(scene(cloud), markets=(Market.SPOT,))
    settings = usual.accounts[0].settings
    sold = next(one for one in settings.sells if one.spot_rate is not None)
    work = (Work(conduct=Conduct(run_ms=30_000), shape=ALONE),)
    struck = CloudFault(Trouble.PREEMPT, from_ms=_BOOTING_MS, until_ms=10 * _BOOTING_MS, times=1, amount=notice_ms)
    return with_account(
        msgspec.structs.replace(usual, work=work),
        struck,
        sells=(replace(sold, zones=sold.zones[:1]),),
        spot=replace(settings.spot, leaves=cloud is Cloud.ARM),
        life=Life(boot=Spread(40_000)),
    )


def _taken(found: Evidence) -> list[TrueVm]:
    return [vm for vm in found.vms if cast(Record, vm).preempted]


def _a_boot_was_struck(found: Evidence) -> Iterator[str]:
    taken = _taken(found)
    if len(taken) != 1 or taken[0].id in found.registered:
        yield "no machine was taken back while it booted"


def _boot_is_no_failure(found: Evidence) -> Iterator[str]:
    """It ends as preempted, and the same is asked for again as soon as that is seen."""
    yield from all_succeeded(found)
    (taken,) = _taken(found)
    causes = {row.instance.cause for row in found.rows if row.instance.vm == taken.id and row.instance.cause}
    if causes != {"preempted"}:
        yield f"machine {taken.id} was taken back and ended as {sorted(causes)}"
    seen_ms = next(now for now, vm, state in found.states if vm == taken.id and state in (_V.STOPPING, _V.STOPPED))
    due = seen_ms + found.scenario.timing.list_interval_ms + 10_000
    made = [found.made_ms(vm) for vm in found.vms if vm is not taken]
    if not made or min(made) > due:
        yield f"the next machine was asked for at {min(made, default=None)} ms, {due} at the latest is no wait"


def _unread(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer does not read why a machine stopped."""

    async def answer(driver: plants.Driver, name: Any, *args: Any) -> Any:
        found = await driver.pass_on(name, *args)
        if isinstance(found, Listing):
            return replace(found, vms=tuple(replace(vm, preempted=False) for vm in found.vms))
        return found

    plants.driver(world, answer)


TAKEN_BOOTS = tuple(
    Story(
        13,
        f"a-machine-of-{cloud}-that-is-taken-back-while-it-boots-is-no-failed-boot",
        _taken_while_it_boots(cloud, notice_ms),
        _a_boot_was_struck,
        _boot_is_no_failure,
        _unread,
        "the next machine was asked for at",
    )
    for cloud, notice_ms in ((Cloud.GCE, 30_000), (Cloud.ARM, 0))
)

STORIES = (*NOTICES, UNANNOUNCED, LEFT, *TAKEN_BOOTS)
