"""Launches, where the clouds differ: tokens and names, partial fills, quotas, room, creates that fail later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import CapacityUnavailable, InDoubt, InvalidRequest, QuotaExceeded, VmNotFound
from cloud_dispatch.provider.spi import LeftoverKind, VmState
from cloud_dispatch.simulation.clouds.faults import Fault, FaultKind
from cloud_dispatch.simulation.clouds.settings import Cloud, Quota, Room, Tide
from tests.simulation.clouds.scene import DEPLOYMENT, HOUR_MS, Scene, steady


async def test_ec2_gives_what_there_is_between_min_and_max() -> None:
    """Five wanted and room for three: three are made in the one call, and the shortfall names type, zone and market."""
    scene = Scene(steady(Cloud.EC2, rooms=(Room(3),)))
    request = await scene.request(5)
    result = await scene.driver.launch(request)
    assert len(result.vms) == 3
    assert isinstance(result.shortfall, CapacityUnavailable)
    scope = result.shortfall.scope
    assert (scope.type, scope.zone, scope.market) == (
        request.offering.type.name, request.offering.zone, "on-demand",
    )  # fmt: skip
    with pytest.raises(CapacityUnavailable, match="left"):
        await scene.driver.launch(await scene.request(2, min_slots=2))


async def test_ec2_refuses_a_token_with_other_parameters() -> None:
    """The same client token with other user data is IdempotentParameterMismatch, and makes nothing."""
    scene = Scene(steady(Cloud.EC2))
    request = await scene.request()
    await scene.driver.launch(request)
    with pytest.raises(InvalidRequest) as caught:
        await scene.driver.launch(replace(request, user_data="other"))
    assert caught.value.code == "IdempotentParameterMismatch"
    assert len(scene.account.inventory()) == 1


async def test_ec2_forgets_a_token_after_its_window() -> None:
    """Inside the window a repeat gives the VM that was ended, as long as that is shown, and then is told that it is
    gone; after it the same launch makes a second VM."""
    scene = Scene(steady(Cloud.EC2, token_window_ms=2 * HOUR_MS))
    request = await scene.request()
    (vm,) = (await scene.driver.launch(request)).vms
    await scene.driver.terminate(vm.id)
    await asyncio.sleep(1_800)
    (again,) = (await scene.driver.launch(request)).vms
    assert (again.id, again.state) == (vm.id, VmState.GONE)
    await asyncio.sleep(2_400)
    with pytest.raises(InDoubt) as told:
        await scene.driver.launch(request)
    assert told.value.code == "IdempotentInstanceTerminated"
    await asyncio.sleep(3_001)
    (other,) = (await scene.driver.launch(request)).vms
    assert other.id != vm.id


async def test_ec2_repeats_what_it_granted_also_where_that_was_less() -> None:
    """As long as those VMs live; where one of them has ended it tells that."""
    scene = Scene(steady(Cloud.EC2, rooms=(Room(2),)))
    request = await scene.request(3)
    first, again = [(await scene.driver.launch(request)).vms for _ in range(2)]
    assert len(first) == 2
    assert [vm.id for vm in again] == [vm.id for vm in first]
    await scene.driver.terminate(first[0].id)
    await asyncio.sleep(600)
    with pytest.raises(InDoubt):
        await scene.driver.launch(request)


@pytest.mark.parametrize("cloud", [Cloud.GCE, Cloud.ARM])
async def test_a_name_is_for_ever_while_its_vm_lives(cloud: Cloud) -> None:
    """Days later a repeat still gives the VM of that name; once that is gone, the name makes a new one."""
    scene = Scene(steady(cloud))
    request = await scene.request()
    (vm,) = (await scene.settle(request)).vms
    await asyncio.sleep(30 * 24 * 3_600)
    assert [found.created_ms for found in (await scene.settle(request)).vms] == [vm.created_ms]
    await scene.driver.terminate(vm.id)
    await asyncio.sleep(60)
    (other,) = (await scene.settle(request)).vms
    assert (other.id, other.created_ms > vm.created_ms) == (vm.id, True)


async def test_a_gce_name_is_of_one_zone_and_an_arm_name_of_all() -> None:
    """The same slot asked for in another zone is a second VM on GCE, and the first one on ARM."""
    made = {}
    for cloud in (Cloud.GCE, Cloud.ARM):
        scene = Scene(steady(cloud))
        request = await scene.request()
        await scene.settle(request)
        zone = scene.account.settings.sells[0].zones[1]
        await scene.settle(replace(request, offering=replace(request.offering, zone=zone)))
        made[cloud] = len(scene.account.inventory())
    assert made == {Cloud.GCE: 2, Cloud.ARM: 1}


@pytest.mark.parametrize("cloud", list(Cloud))
async def test_spot_has_a_quota_apart_from_on_demand(cloud: Cloud) -> None:
    """With the on-demand quota of a family used up, spot still starts, and another family too."""
    usual = steady(cloud)
    first = usual.sells[0].type
    quotas = (Quota(first.vcpus, first.family, Market.ON_DEMAND), Quota(first.vcpus, first.family, Market.SPOT))
    other = replace(usual.sells[0], type=replace(first, name="another", family="another family"))
    scene = Scene(replace(usual, sells=(*usual.sells, other), quotas=quotas))
    await scene.settle(await scene.request())
    with pytest.raises(QuotaExceeded) as caught:
        await scene.settle(await scene.request())
    assert (caught.value.scope.family, caught.value.scope.market) == (first.family, "on-demand")
    assert caught.value.scope.region == usual.region
    assert len((await scene.settle(await scene.request(market=Market.SPOT))).vms) == 1
    with pytest.raises(QuotaExceeded):
        await scene.settle(await scene.request(market=Market.SPOT))
    assert len((await scene.settle(await scene.request(offering=await scene.offering("another")))).vms) == 1
    told = {
        (quota.scope.family, quota.scope.market): (quota.limit, quota.used) for quota in await scene.driver.quotas()
    }
    assert told[first.family, "spot"] == (first.vcpus, first.vcpus)
    assert told[first.family, "on-demand"] == (first.vcpus, first.vcpus)


async def test_a_quota_of_the_region_counts_all_families() -> None:
    """A quota without a family is of everything in the region together; a VM that is gone gives its share back."""
    usual = steady(Cloud.GCE)
    scene = Scene(replace(usual, quotas=(Quota(4),)))
    (vm,) = (await scene.settle(await scene.request())).vms
    other = await scene.offering("e2-standard-4")
    with pytest.raises(QuotaExceeded):
        await scene.settle(await scene.request(offering=other))
    await scene.driver.terminate(vm.id)
    with pytest.raises(QuotaExceeded):
        await scene.settle(await scene.request(offering=other))  # it counts until it is gone
    await asyncio.sleep(30)
    assert len((await scene.settle(await scene.request(offering=other))).vms) == 1


@pytest.mark.parametrize("where", ["zone", "market", "type"])
async def test_room_is_by_type_zone_and_market(where: str) -> None:
    """A VM in another zone, on the other market or of another type takes no place here; one that is here does, and
    takes none there."""
    usual = steady(Cloud.EC2)
    name, zone = usual.sells[0].type.name, usual.sells[0].zones[0]
    scene = Scene(replace(usual, rooms=(Room(1, name, zone, Market.ON_DEMAND),)))
    elsewhere = {
        "zone": await scene.offering(name, zone=usual.sells[0].zones[1]),
        "market": await scene.offering(name, Market.SPOT, zone),
        "type": await scene.offering(usual.sells[1].type.name, zone=zone),
    }[where]
    assert len((await scene.driver.launch(await scene.request(offering=elsewhere))).vms) == 1
    assert len((await scene.driver.launch(await scene.request())).vms) == 1
    with pytest.raises(CapacityUnavailable):
        await scene.driver.launch(await scene.request())
    assert len((await scene.driver.launch(await scene.request(offering=elsewhere))).vms) == 1


PLACES = [(kind, zone, market) for kind in ("c7i.large", "m7i.large") for zone in ("us-east-1a", "us-east-1b")
          for market in (Market.ON_DEMAND, Market.SPOT)]  # fmt: skip
#: What is sold out at which steps, by type, zone and market.
Day = dict[tuple[str, str, Market], str]


async def day(tide: Tide, places: Sequence[tuple[str, str, Market]] = PLACES) -> Day:
    """A day of a cloud: of each place a `-` for an hour in which it is sold out, a `+` for one in which it is not."""
    scene = Scene(steady(Cloud.EC2, tide=tide), seed=7)
    found = dict.fromkeys(places, "")
    for _ in range(24):
        for name, zone, market in places:
            offering = await scene.offering(name, market, zone)
            try:
                (vm,) = (await scene.driver.launch(await scene.request(offering=offering))).vms
                await scene.driver.terminate(vm.id)
            except CapacityUnavailable:
                found[name, zone, market] += "-"
            else:
                found[name, zone, market] += "+"
        now = scene.clock.now() - scene.account.born_ms
        await asyncio.sleep((HOUR_MS - now % HOUR_MS) / 1_000)
    return found


async def test_capacity_comes_and_goes() -> None:
    """With tides each type is sold out by itself in each zone on each market, at the same steps for the same seed,
    whether anybody asks for the others or not."""
    tide = Tide(step_ms=HOUR_MS, dry=0.5, dry_spot=0.5)
    first = await day(tide)
    assert all({*steps} == {"+", "-"} for steps in first.values())
    assert len({*first.values()}) == len(PLACES)
    assert await day(tide) == first
    for place in (PLACES[0], PLACES[-1]):
        assert await day(tide, [place]) == {place: first[place]}


async def test_spot_has_tides_of_its_own() -> None:
    """It may be sold out all day while nothing else is, and be there all day while all else is sold out."""
    without = {Market.ON_DEMAND: "+" * 24, Market.SPOT: "-" * 24}
    assert await day(Tide(step_ms=HOUR_MS, dry_spot=1.0)) == {place: without[place[2]] for place in PLACES}
    only = {Market.ON_DEMAND: "-" * 24, Market.SPOT: "+" * 24}
    assert await day(Tide(step_ms=HOUR_MS, dry=1.0)) == {place: only[place[2]] for place in PLACES}


async def test_gce_says_inside_the_operation_that_a_zone_is_exhausted() -> None:
    """The insert is accepted; the operation ends with the pool exhausted, and the VM that was pending is gone."""
    scene = Scene(steady(Cloud.GCE, rooms=(Room(0),)))
    result = await scene.driver.launch(await scene.request())
    assert (result.vms, result.shortfall, len(result.pending)) == ((), None, 1)
    assert await scene.states() == [VmState.PENDING]
    await asyncio.sleep(4)
    answer = await scene.driver.resume(result.pending[0])
    assert isinstance(answer.shortfall, CapacityUnavailable)
    assert answer.shortfall.code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert await scene.states() == []
    assert scene.bill()[scene.account.inventory()[0].id] == 0


async def test_arm_leaves_a_failed_vm_and_its_parts_until_somebody_deletes_them() -> None:
    """AllocationFailed comes after the create was accepted: the VM is shown as stopped, its parts are leftovers; who
    resumes the operation deletes them before it says that the slot was refused."""
    scene = Scene(steady(Cloud.ARM, rooms=(Room(0),)))
    result = await scene.driver.launch(await scene.request())
    await asyncio.sleep(5)
    assert await scene.states() == [VmState.STOPPED]
    assert scene.account.inventory()[0].state is VmState.GONE
    kinds = [left.kind for left in await scene.driver.leftovers(DEPLOYMENT)]
    assert kinds == [LeftoverKind.DISK, LeftoverKind.NIC, LeftoverKind.ADDRESS]
    answer = await scene.driver.resume(result.pending[0])
    assert isinstance(answer.shortfall, CapacityUnavailable)
    assert (await scene.states(), scene.account.leftovers()) == ([], [])


async def test_arm_does_not_call_a_slot_refused_while_something_of_it_is_left() -> None:
    """When the clearing away fails the operation stays pending, and is cleared by the next look."""
    scene = Scene(steady(Cloud.ARM, rooms=(Room(0),)), [Fault(FaultKind.ERROR, "terminate", times=1)])
    result = await scene.driver.launch(await scene.request())
    await asyncio.sleep(5)
    assert (await scene.driver.resume(result.pending[0])).pending == result.pending
    assert (await scene.driver.resume(result.pending[0])).shortfall is not None
    assert await scene.states() == []


async def test_arm_refuses_spot_without_room_at_once_and_takes_its_nic_away() -> None:
    """SkuNotAvailable is the answer to the call, and nothing is left of it."""
    scene = Scene(steady(Cloud.ARM, rooms=(Room(0),)))
    with pytest.raises(CapacityUnavailable):
        await scene.driver.launch(await scene.request(market=Market.SPOT))
    assert scene.account.leftovers() == []


async def test_a_dispatcher_that_dies_between_nic_and_vm_leaves_a_nic() -> None:
    """The first call was made, the second never: the NIC is a leftover with the batch's tags; a repeat uses it up."""
    scene = Scene(steady(Cloud.ARM))
    request = await scene.request()
    launch = asyncio.ensure_future(scene.driver.launch(request))
    await asyncio.sleep(0.15)  # the NIC's request has arrived, its answer has not
    launch.cancel()
    await asyncio.sleep(60)
    (left,) = await scene.driver.leftovers(DEPLOYMENT)
    assert (left.kind, dict(left.tags)) == (LeftoverKind.NIC, dict(request.tags))
    assert scene.account.inventory() == []
    assert len((await scene.settle(request)).vms) == 1
    assert scene.account.leftovers() == []


async def test_a_launch_that_was_sent_arrives_though_its_caller_gave_up() -> None:
    """Cancelled while its request is on the way, the VM is made all the same."""
    scene = Scene(steady(Cloud.EC2))
    request = await scene.request()
    launch = asyncio.ensure_future(scene.driver.launch(request))
    await asyncio.sleep(0.05)
    launch.cancel()
    assert scene.account.inventory() == []
    await asyncio.sleep(1)
    assert len(scene.account.inventory()) == 1


async def test_a_lost_answer_leaves_the_vm_and_the_doubt() -> None:
    """The cloud committed, the connection broke: InDoubt, one VM, and the repeat finds it."""
    scene = Scene(steady(Cloud.EC2), [Fault(FaultKind.LOST_ANSWER, "launch", times=1)])
    request = await scene.request()
    with pytest.raises(InDoubt):
        await scene.driver.launch(request)
    (vm,) = (await scene.driver.launch(request)).vms
    assert [made.id for made in scene.account.inventory()] == [vm.id]


async def test_a_spot_launch_below_the_price_is_refused() -> None:
    """A bid under the market's price is a lack of capacity, on the clouds that take bids."""
    for cloud in (Cloud.EC2, Cloud.ARM):
        scene = Scene(steady(cloud))
        offering = await scene.offering(market=Market.SPOT)
        assert offering.rate is not None
        low = replace(offering, max_rate=offering.rate - 1)
        with pytest.raises(CapacityUnavailable):
            await scene.driver.launch(await scene.request(offering=low))


async def test_a_vm_that_never_starts_is_gone_before_it_runs() -> None:
    """Its host fails: EC2 shows it as gone with the reason, GCE's operation fails; nobody is billed for it."""
    for cloud in (Cloud.EC2, Cloud.GCE):
        scene = Scene(steady(cloud, extras=()), [Fault(FaultKind.NEVER_STARTS)])
        request = await scene.request()
        result = await scene.settle(request)
        await asyncio.sleep(60)
        if cloud is Cloud.EC2:
            (vm,) = await scene.vms()
            assert (vm.state, "host failed" in vm.why) == (VmState.GONE, True)
        else:
            assert result.shortfall is not None
            with pytest.raises(VmNotFound):
                await scene.driver.get(scene.account.inventory()[0].id)
        assert (scene.of("boot"), list(scene.bill().values())) == ([], [0])
