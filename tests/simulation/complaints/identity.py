"""Complaints about identity: machines taken for ours that are not, and for alive that are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.ids import BatchId, ProfileName, instance_id
from cloud_dispatch.domain.instance import SERVING, InstanceState
from cloud_dispatch.domain.tags import DEPLOYMENT
from cloud_dispatch.provider.spi import LaunchRequest, Listing, VmState
from cloud_dispatch.provider.tagfilter import TagFilter
from cloud_dispatch.reconcile.reap import Reaper
from cloud_dispatch.simulation.clouds.faults import Fault as CloudFault
from cloud_dispatch.simulation.clouds.faults import FaultKind as Trouble
from cloud_dispatch.simulation.clouds.settings import Cloud, Reads
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import DEPLOYMENT as OURS
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.ports import TrueVm
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from cloud_dispatch.statestore import claims
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE, with_account
from tests.simulation.complaints.story import Evidence, Story
from tests.simulation.scenes import scene

# -- 24: an empty id filter listed the whole account

#: Whose else the account is: a deployment whose name begins as ours, one in capitals, and somebody without any tag.
_OTHERS = (f"{OURS}-2", OURS.upper(), "")


def _with_neighbours(world: World, evidence: Evidence) -> None:
    """Machines of others in the same account, made before ours; no checker and no agent has to do with them."""
    theirs = evidence.noted.setdefault("theirs", [])
    ours = {name: getattr(world, name) for name in ("on_boot", "on_end", "on_notice", "on_change")}

    def unless_theirs(name: str) -> Any:
        def tell(vm: TrueVm, *args: Any) -> None:
            if vm.deployment == OURS:
                ours[name](vm, *args)
            elif vm not in theirs:
                theirs.append(vm)

        return tell

    for name in ours:
        setattr(world, name, unless_theirs(name))
    world.go(_launch_theirs(world))


async def _launch_theirs(world: World) -> None:
    driver = world.accounts[0].driver(ProfileName("ec2"))
    offering = (await driver.offerings())[0]
    for number, deployment in enumerate(_OTHERS):
        tags = {DEPLOYMENT: deployment} if deployment else {"name": "somebody's"}
        batch = BatchId(f"theirs{number}")
        names = (instance_id(batch, 0),)
        await driver.launch(LaunchRequest(batch, 1, offering, tags, "", 0, instances=names))


async def _ask_for_nobody(world: World, evidence: Evidence) -> None:
    assert world.incarnation is not None
    assert world.incarnation.parts is not None
    (provider,) = world.incarnation.parts.context.settings.providers.values()
    for deployment in ("", OURS):
        evidence.noted[f"list of {deployment!r}"] = await provider.list(deployment)


def _others_were_there(found: Evidence) -> Iterator[str]:
    if len(found.noted["theirs"]) != len(_OTHERS) or not found.vms:
        yield "ours and theirs were not in one account"


def _others_are_untouched(found: Evidence) -> Iterator[str]:
    for vm in found.noted["theirs"]:
        if vm.state is not VmState.RUNNING:
            yield f"machine {vm.id} of {vm.deployment or 'nobody'} is {vm.state}: it was not ours to end"
    for asked in ("", OURS):
        listing: Listing | None = found.noted.get(f"list of {asked!r}")
        if listing is None:
            continue
        known = {vm.id for vm in found.vms}
        strange = [vm.id for vm in listing.vms if vm.id not in known]
        if strange or (not asked and (listing.vms or listing.complete)):
            yield f"a listing of {asked!r} shows {len(listing.vms)} machines, of which {len(strange)} are not ours"


def _empty_means_all(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer passes the ids that are to end as a filter; when there are none, the filter is empty."""
    reap = Reaper.reap

    def careless(self: Reaper) -> None:
        reap(self)
        rows = self._c.store.instances().values()
        if rows and not any(row.state is InstanceState.TERMINATING for row in rows):
            for vm in world.accounts[0].inventory():
                if vm.deployment != OURS:
                    self._c.calls.start(f"sweep:{vm.id}", end(self, vm), "sweep")

    async def end(self: Reaper, vm: TrueVm) -> None:
        (provider,) = self._c.settings.providers.values()
        await provider.terminate(vm.id)

    patch.setattr(Reaper, "reap", careless)


NOT_OURS = Story(
    24,
    "what-is-not-ours-is-neither-listed-nor-ended",
    scene(Cloud.EC2),
    _others_were_there,
    _others_are_untouched,
    _empty_means_all,
    "it was not ours to end",
    stage=_with_neighbours,
    finish=_ask_for_nobody,
)


def _trust_the_filter(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer takes what the provider's filter lets through for its own."""
    patch.setattr(TagFilter, "_ours", lambda *args: True)


FILTER = Story(
    24,
    "what-a-filter-lets-through-is-not-ours-by-that",
    with_account(scene(Cloud.EC2), reads=Reads(loose=True)),
    _others_were_there,
    _others_are_untouched,
    _trust_the_filter,
    "are not ours",
    stage=_with_neighbours,
    finish=_ask_for_nobody,
)

# -- 24: a dead instance was revived


def _came_back(found: Evidence) -> Iterator[str]:
    vm = _given_up(found)
    if vm is None:
        yield "no machine was given up while it lived"


def _given_up(found: Evidence) -> tuple[str, int] | None:
    """The machine that was cut off, and when the dispatcher gave it up."""
    for row in found.rows:
        if row.instance.state is InstanceState.FAILED and row.truly is VmState.RUNNING:
            return row.instance.vm, row.at_ms
    return None


def _dead_stay_dead(found: Evidence) -> Iterator[str]:
    given_up = _given_up(found)
    assert given_up is not None
    vm, at = given_up
    later = [start for start in found.starts if start.vm == vm and start.at_ms > at]
    if later:
        yield f"machine {vm} was given up at {at} ms and was given task {later[0].task} again"
    for row in found.rows:
        if row.instance.vm == vm and row.at_ms > at and row.instance.state in SERVING:
            yield f"the instance of machine {vm} was given up at {at} ms and is {row.instance.state} again"


def _welcome_back(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer knows a machine by its address: whoever speaks from there is the instance that it was."""
    patch.setattr(claims, "_TAKING", frozenset(InstanceState))

    def plant(living: Incarnation) -> None:
        fleet: Any = living.parts.fleet if living.parts else None
        directive = fleet.directive

        def welcome(instance: Any) -> Any:
            said = directive(instance)
            return msgspec.structs.replace(said, claiming=True, end=False)

        fleet.directive = welcome

    plants.dispatcher(world, plant)


NOT_REVIVED = Story(
    24,
    "a-machine-that-was-given-up-is-not-revived",
    with_account(
        scene(work=(Work(count=8, conduct=Conduct(run_ms=60_000), shape=ALONE),)),
        CloudFault(Trouble.CUT_OFF, from_ms=90_000, until_ms=130_000, times=1),
        CloudFault(Trouble.ERROR, "terminate", from_ms=90_000, until_ms=180_000),
    ),
    _came_back,
    _dead_stay_dead,
    _welcome_back,
    "was given up at",
)

STORIES = (NOT_OURS, FILTER, NOT_REVIVED)
