"""Complaints about machines that are made: twice, too many, and without a word when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.instance import InstanceEvent, InstanceState
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.provider.errors import InDoubt, Transient
from cloud_dispatch.provider.funnel import Call as Asked
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.reconcile import picture
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, FOR_ONE, MINUTE, with_account
from tests.simulation.complaints.story import Evidence, Story
from tests.simulation.scenes import scene

# -- 1: a crash between create and commit orphans VMs


def _crashed(found: Evidence) -> Iterator[str]:
    if found.result.deaths != 1:
        yield "the dispatcher did not die between the launch and its commit"


def _one_machine_only(found: Evidence) -> Iterator[str]:
    """One machine was wanted."""
    if len(found.vms) != 1:
        yield f"{len(found.vms)} machines were made for the work of one, {len(found.bill)} lines stand on the bill"
    for vm in found.vms:
        if vm.state is not VmState.GONE:
            yield f"machine {vm.id} is an orphan: still {vm.state} at the end"
        if vm.id not in found.registered:
            yield f"machine {vm.id} was never used: nobody knew of it"


def _forget_what_was_not_committed(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer writes a machine down when the cloud has answered: what it was about to make, it never knew."""

    def plant(living: Incarnation) -> None:
        parts: Any = living.parts
        restore = parts.loop.restore

        async def forget() -> None:
            for row in list(parts.context.store.instances().values()):
                if row.state is InstanceState.LAUNCHING:
                    await parts.context.apply(row.id, InstanceEvent.REFUSED, cause="forgotten", ended_ms=1)
            await restore()

        parts.loop.restore = forget

    plants.dispatcher(world, plant)


CRASHES = tuple(
    Story(
        1,
        f"crash-between-create-and-commit-on-{cloud}",
        scene(cloud, work=FOR_ONE, faults=(Fault(FaultKind.CRASH, 0, amount=5_000, which=1, point="launch answered"),)),
        _crashed,
        _one_machine_only,
        _forget_what_was_not_committed,
        "2 machines were made",
    )
    for cloud in Cloud
)

# -- 6: failover leaves duplicates


def _answer_was_lost(found: Evidence) -> Iterator[str]:
    if not found.launches("ec2"):
        yield "the first cloud was never asked"


def _lost_means_refused(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer takes a connection that broke for a refusal, and goes on to the next place."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        try:
            return await driver.pass_on(name, *args)
        except InDoubt as error:
            raise Transient(error.message) from None

    plants.driver(world, answer)


FAILOVER = Story(
    6,
    "failover-makes-no-duplicates",
    with_account(scene(Cloud.EC2, Cloud.GCE, work=FOR_ONE), CloudFault(Trouble.LOST_ANSWER, "launch", times=1)),
    _answer_was_lost,
    _one_machine_only,
    _lost_means_refused,
    "2 machines were made",
)

# -- 7: pending and running counted twice over-launch


def _booted_slowly(found: Evidence) -> Iterator[str]:
    first = min((s.at_ms for s in found.starts), default=0)
    if first < MINUTE:
        yield f"the machines booted within {first} ms: no plan was made meanwhile"


def _a_machine_a_task(found: Evidence) -> Iterator[str]:
    if len(found.vms) != found.scenario.tasks:
        yield f"{len(found.vms)} machines were made for {found.scenario.tasks} tasks that want one each"


def _blind_for_what_boots(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer counts a machine as supply only once it runs."""
    take = picture.take

    def blind(*args: Any) -> Snapshot:
        snapshot = take(*args)
        coming = (InstanceState.INTENDED, InstanceState.LAUNCHING, InstanceState.BOOTING)
        return replace(snapshot, supply=tuple(s for s in snapshot.supply if s.state not in coming))

    patch.setattr(picture, "take", blind)


DOUBLE_COUNT = Story(
    7,
    "booting-machines-are-counted-once",
    with_account(
        scene(
            work=(Work(count=4, conduct=Conduct(run_ms=60_000), shape=ALONE, expected_ms=60_000),),
            caps=Caps(instances=16),
        ),
        CloudFault(Trouble.LATE, amount=60_000, until_ms=30_000),
    ),
    _booted_slowly,
    _a_machine_a_task,
    _blind_for_what_boots,
    "machines were made for 4 tasks",
)

# -- 23: failures of cloud-init are invisible


async def _read_events(world: World, evidence: Evidence) -> None:
    store = world.store
    assert store is not None
    failed = next((r.instance for r in evidence.rows if r.instance.cause == "boot-deadline"), None)
    if failed is not None:
        evidence.noted["row"] = await store.instance(failed.id)
        evidence.noted["events"] = await store.events(instance=failed.id)


def _user_data_failed(found: Evidence) -> Iterator[str]:
    if "row" not in found.noted:
        yield "no machine missed its boot deadline"


def _failure_is_told(found: Evidence) -> Iterator[str]:
    """The console is kept before the machine goes, and the reason quotes its last line."""
    said = "user data failed: exit status 1"
    row = found.noted.get("row")
    if row is None or said not in row.reason:
        yield f"the instance does not say why it failed: {row.reason if row else 'no row'}"
    if not any(e.action == "instance.console" and said in e.detail for e in found.noted.get("events", ())):
        yield "the console log was not kept"


def _console_is_not_asked_for(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer waits for the node, gives up, and deletes the console with it."""

    async def answer(driver: plants.Driver, name: Asked, *args: Any) -> Any:
        return "" if name is Asked.CONSOLE else await driver.pass_on(name, *args)

    plants.driver(world, answer)


INVISIBLE_FAILURE = Story(
    23,
    "a-failed-cloud-init-is-told-with-its-console",
    with_account(scene(Cloud.EC2, work=FOR_ONE), CloudFault(Trouble.USER_DATA_FAILS, times=1, until_ms=10 * MINUTE)),
    _user_data_failed,
    _failure_is_told,
    _console_is_not_asked_for,
    "does not say why it failed",
    finish=_read_events,
)

STORIES = (*CRASHES, FAILOVER, DOUBLE_COUNT, INVISIBLE_FAILURE)
