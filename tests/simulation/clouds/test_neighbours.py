"""Others in an account: they take room, are listed as theirs and are nobody's here, and who touches them is told."""

from __future__ import annotations

import asyncio

import pytest

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import QuotaExceeded
from cloud_dispatch.provider.spi import LeftoverKind, VmState
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud, Quota, Reads
from tests.simulation.clouds.scene import DEPLOYMENT, Scene, steady

OTHER = f"{DEPLOYMENT}-2"


def theirs(code: str = OTHER, **fields: int) -> Fault:
    return Fault(FaultKind.NEIGHBOUR, code=code, type="", **{"times": 2, **fields})  # type: ignore[arg-type]


async def listed(scene: Scene, deployment: str) -> list[VmId]:
    listing = await scene.driver.list(deployment)
    assert listing.complete
    return [vm.id for vm in listing.vms]


@pytest.mark.parametrize("cloud", Cloud)
async def test_they_are_seen_by_their_own_names_and_are_nobodys_here(cloud: Cloud) -> None:
    """No guest is told of them, and no meter, inventory or bill has them."""
    scene = Scene(steady(cloud), [theirs(), theirs(DEPLOYMENT, times=1), theirs("", times=1)])
    (own,) = await scene.up()
    found = await listed(scene, OTHER)
    assert len(found) == 2
    same = await scene.vms()
    assert len(same) == 2
    (foreign,) = (tags.decode(vm.tags) for vm in same if vm.id != own.id)
    assert foreign is not None
    assert foreign.store == "st-of-a-neighbour"
    assert {vm for _, _, vm, _ in scene.told} == {own.id}
    assert [vm.id for vm in scene.account.inventory()] == [own.id]
    assert {line.vm for line in scene.account.bill()} <= {own.id, *(f"{own.id}-{kind}" for kind in LeftoverKind)}
    assert [one.vm.id for one in scene.account.metered()] == [own.id]


@pytest.mark.parametrize("cloud", Cloud)
async def test_they_come_take_room_and_go(cloud: Cloud) -> None:
    """Of a quota of four vCPUs they leave nothing while they are there."""
    two = steady(cloud).sells[0].type.name
    fault = Fault(FaultKind.NEIGHBOUR, code=OTHER, type=two, times=5, from_ms=60_000, until_ms=120_000)
    scene = Scene(steady(cloud, quotas=(Quota(4),), reads=Reads(page=1)), [fault])
    assert await listed(scene, OTHER) == []
    await asyncio.sleep(61)
    assert len(await listed(scene, OTHER)) == 2, "as many as there is room for"
    with pytest.raises(QuotaExceeded):
        await scene.launch()
    await asyncio.sleep(120)
    assert len(await scene.up()) == 1
    assert scene.account.trespasses() == []


async def test_a_listing_by_prefix_shows_them() -> None:
    scene = Scene(steady(Cloud.EC2, reads=Reads(loose=True)), [theirs()])
    (own,) = await scene.up()
    assert len(await listed(scene, DEPLOYMENT)) == 3
    assert own.id in await listed(scene, DEPLOYMENT)


async def test_halfway_tags_are_no_facts() -> None:
    scene = Scene(steady(Cloud.EC2), [theirs(DEPLOYMENT, amount=1)])
    assert [tags.decode(vm.tags) for vm in await scene.vms()] == [None, None]


@pytest.mark.parametrize("cloud", Cloud)
async def test_who_ends_tags_or_deletes_what_is_theirs_is_written_down(cloud: Cloud) -> None:
    """It is done all the same, as a cloud does what it is asked for. What is one's own may be ended."""
    left = Fault(FaultKind.LEFTOVER, times=1)
    scene = Scene(steady(cloud), [theirs(times=1), left])
    (own,) = await scene.up()
    (vm,) = await listed(scene, OTHER)
    await scene.driver.tag([vm], {"mine": "yes"})
    assert scene.account.trespasses() == [f"somebody tags {vm} of {OTHER}, which is not theirs"]
    await scene.driver.terminate(vm)
    await asyncio.sleep(60)
    assert scene.account.register.find(vm).state is VmState.GONE  # type: ignore[union-attr]
    assert scene.account.trespasses()[1:] == [f"somebody ends {vm} of {OTHER}, which is not theirs"]
    assert scene.account.leftovers() == []
    (extra, *_) = await scene.driver.leftovers(OTHER)
    await scene.driver.delete_leftover(extra)
    assert scene.account.trespasses()[2:] == [f"somebody deletes {extra.id}, which is not theirs"]
    await scene.driver.terminate(own.id)
    await asyncio.sleep(60)
    assert len(scene.account.trespasses()) == 3


async def test_what_strikes_at_a_moment_spares_them() -> None:
    death = Fault(FaultKind.DEATH, from_ms=60_000, until_ms=61_000, times=9)
    scene = Scene(steady(Cloud.GCE), [theirs(), death])
    (own,) = await scene.up()
    await asyncio.sleep(60)
    assert own.state is VmState.STOPPED
    assert len(await listed(scene, OTHER)) == 2
