"""Reads that are late: VMs that are missing, linger, or carry old tags; pages that are bounded, short, or changing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cloud_dispatch.domain.tags import BEHAVIOUR
from cloud_dispatch.provider.errors import VmNotFound
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud, Reads
from cloud_dispatch.simulation.ports import EndCause
from tests.simulation.clouds.scene import DEPLOYMENT, HOUR_MS, Scene, steady

STALE_LIST = Fault(FaultKind.STALE, "list", amount=60_000)
STALE_GET = Fault(FaultKind.STALE, "get", amount=60_000)
LATE = Reads(list_ms=20_000, get_ms=10_000)


async def test_a_new_vm_is_missing_from_lists_and_gets_for_a_while() -> None:
    """Until the cloud's horizon has passed a new VM may not be there; after it, it is, whatever chance says."""
    scene = Scene(steady(Cloud.EC2, reads=LATE), [STALE_LIST, STALE_GET])
    (record,) = await scene.launch()
    horizon_ms = scene.driver.traits.consistency_ms
    assert await scene.vms() == ()
    with pytest.raises(VmNotFound):
        await scene.driver.get(record.id)
    await asyncio.sleep(horizon_ms / 1000)
    assert [vm.id for vm in await scene.vms()] == [record.id]
    assert (await scene.driver.get(record.id)).id == record.id


async def test_how_late_a_read_is_differs_from_one_to_the_next() -> None:
    """Without faults too, lists in the first seconds of a VM show it sometimes, and then again not."""
    scene = Scene(steady(Cloud.EC2, reads=LATE))
    await scene.launch()
    shown = []
    for _ in range(40):
        shown.append(len(await scene.vms()))
        await asyncio.sleep(0.1)
    assert sorted(shown) != shown
    await asyncio.sleep(scene.driver.traits.consistency_ms / 1000)
    assert {len(await scene.vms()) for _ in range(40)} == {1}


async def test_terminating_what_ec2_does_not_see_yet_looks_like_success() -> None:
    """InvalidInstanceID.NotFound is taken for gone, and the VM lives: only the horizon helps."""
    scene = Scene(steady(Cloud.EC2, reads=LATE), [Fault(FaultKind.STALE, "terminate", amount=60_000, times=1)])
    (record,) = await scene.launch()
    await scene.driver.terminate(record.id)
    await asyncio.sleep(30)
    assert record.state is VmState.RUNNING
    await scene.driver.terminate(record.id)
    await asyncio.sleep(30)
    assert record.state is VmState.GONE


async def test_a_deleted_vm_is_shown_as_up_for_a_while() -> None:
    """A stale list still has the VM running that its cloud has long ended."""
    scene = Scene(steady(Cloud.GCE, reads=Reads(list_ms=20_000)), [STALE_LIST])
    (record,) = await scene.up()
    await asyncio.sleep(60)
    await scene.driver.terminate(record.id)
    await asyncio.sleep(8)
    assert record.state is VmState.GONE
    assert await scene.states() == [VmState.RUNNING]
    with pytest.raises(VmNotFound):
        await scene.driver.get(record.id)
    await asyncio.sleep(scene.driver.traits.consistency_ms / 1000)
    assert await scene.states() == []


async def test_a_vm_that_is_gone_lingers_on_ec2_and_not_on_gce() -> None:
    """EC2 shows it as terminated for an hour; GCE shows nothing."""
    lingering = {}
    for cloud in (Cloud.EC2, Cloud.GCE):
        scene = Scene(steady(cloud))
        (record,) = await scene.up()
        await scene.driver.terminate(record.id)
        await asyncio.sleep(600)
        lingering[cloud] = await scene.states()
        await asyncio.sleep(HOUR_MS / 1000)
        assert await scene.states() == []
    assert lingering == {Cloud.EC2: [VmState.GONE], Cloud.GCE: []}


async def test_tags_are_read_late() -> None:
    """A stale list shows the tags of before; tags set meanwhile are not lost by it."""
    scene = Scene(steady(Cloud.EC2, reads=LATE), [Fault(FaultKind.STALE, "list", amount=20_000, times=1)])
    (record,) = await scene.up()
    await asyncio.sleep(60)
    await scene.driver.tag([record.id], {BEHAVIOUR: "hold"})
    (old,) = await scene.vms()
    assert old.tags[BEHAVIOUR] == "run"
    await asyncio.sleep(30)
    (new,) = await scene.vms()
    assert (new.tags[BEHAVIOUR], len(new.tags)) == ("hold", len(old.tags))


async def test_gce_labels_are_not_set_over_somebody_elses() -> None:
    """Two who set labels at once both succeed: the second is refused by the fingerprint, reads again, and both stay."""
    scene = Scene(steady(Cloud.GCE))
    (record,) = await scene.up()
    await asyncio.gather(scene.driver.tag([record.id], {"a": "1"}), scene.driver.tag([record.id], {"b": "2"}))
    assert (record.tags["a"], record.tags["b"]) == ("1", "2")
    assert scene.account.gate.arrived["tag"] == 3


async def test_pages_are_bounded() -> None:
    """Each page is a call of its own and holds so many VMs; the listing has each once, in order."""
    scene = Scene(steady(Cloud.EC2, reads=Reads(page=4)))
    records = await scene.up(10)
    assert [vm.id for vm in await scene.vms()] == [record.id for record in records]
    assert scene.account.gate.arrived["list"] == 3


async def test_what_ends_between_two_pages_is_not_on_the_second() -> None:
    """A listing is not of one moment: the first page shows VMs that are gone when the last page is read."""
    scene = Scene(steady(Cloud.GCE, reads=Reads(page=2)))
    first, _, third, _ = await scene.up(4)
    listing = asyncio.ensure_future(scene.driver.list(DEPLOYMENT))
    await asyncio.sleep(0.15)
    scene.account.end(first, EndCause.TERMINATED)
    scene.account.end(third, EndCause.TERMINATED)
    states = {vm.id: vm.state for vm in (await listing).vms}
    assert (states[first.id], states[third.id]) == (VmState.RUNNING, VmState.STOPPING)


async def test_a_listing_that_breaks_off_says_so() -> None:
    """After the page where it broke off the listing is not complete; the next one is."""
    scene = Scene(
        steady(Cloud.ARM, reads=Reads(page=2)), [Fault(FaultKind.INCOMPLETE, times=1, amount=1)]
    )  # fmt: skip
    await scene.up(5)
    broken = await scene.driver.list(DEPLOYMENT)
    assert (len(broken.vms), broken.complete) == (2, False)
    assert len(await scene.vms()) == 5


async def test_a_page_that_fails_makes_the_listing_incomplete() -> None:
    """Trouble on the second page keeps what the first one showed, and claims nothing of the rest."""
    scene = Scene(steady(Cloud.ARM, reads=Reads(page=2)), [Fault(FaultKind.ERROR, "list", skip=1, times=1)])
    await scene.up(5)
    broken = await scene.driver.list(DEPLOYMENT)
    assert (len(broken.vms), broken.complete) == (2, False)


async def test_listings_leave_a_living_vm_out_no_longer_than_the_horizon() -> None:
    """A hidden VM is missing from complete listings, is got all the same, and comes back within the horizon."""
    settings = steady(Cloud.GCE, reads=Reads(list_ms=20_000))
    scene = Scene(settings, [Fault(FaultKind.HIDDEN, from_ms=HOUR_MS, amount=HOUR_MS)])
    (record,) = await scene.up()
    await asyncio.sleep(HOUR_MS / 1000 - scene.clock.monotonic() / 1000 + 1)
    assert await scene.vms() == ()
    assert (await scene.driver.get(record.id)).state is VmState.RUNNING
    await asyncio.sleep(scene.driver.traits.consistency_ms / 1000)
    assert len(await scene.vms()) == 1


async def test_a_vm_moves_to_the_deployment_that_its_tags_name() -> None:
    """Lists go by the tags that the VM has, not by those it was made with."""
    scene = Scene(steady(Cloud.EC2))
    first, second = await scene.up(2)
    await scene.driver.tag([first.id], {"cloud-dispatch-deployment": "other"})
    assert [vm.id for vm in await scene.vms()] == [second.id]
    assert [vm.id for vm in (await scene.driver.list("other")).vms] == [first.id]
    await scene.driver.tag([first.id], {"cloud-dispatch-deployment": DEPLOYMENT})
    assert [vm.id for vm in await scene.vms()] == [first.id, second.id]


async def test_what_no_read_shows_any_more_is_let_go() -> None:
    """A day of VMs that came and went leaves nothing to walk over in the next listing."""
    usual = steady(Cloud.EC2)
    scene = Scene(replace(usual, life=replace(usual.life, linger_ms=60_000)))
    for _ in range(20):
        (record,) = await scene.up()
        await scene.driver.terminate(record.id)
        await asyncio.sleep(HOUR_MS / 1000)
    assert await scene.vms() == ()
    assert scene.account.register.find(record.id) is None
    assert len(scene.account.inventory()) == 20
