"""What the driver does with what the fake answers: what the public suite does not ask of every cloud."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
import structlog

from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.reaper import overdue
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    RateLimited,
    Transient,
)
from cloud_dispatch.provider.spi import (
    LaunchResult,
    Leftover,
    LeftoverKind,
    Level,
    Operation,
    ProfileContext,
    Vm,
    VmState,
)
from cloud_dispatch_gcp import plugin
from tests.fakes.clock import RealClock, SetClock
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import FakeGce, Settings
from tests.fakes.gce.reaper import ProjectReaper
from tests.providers.gcp import scenes
from tests.providers.gcp.launching import QUICK, Connect, asked, finished


def insert_fault(kind: FaultKind, **more: Any) -> Fault:
    return Fault(kind, operation="instances.insert", **more)


async def test_all_vms_of_a_launch_are_asked_for_at_once(fake: FakeGce, connect: Connect) -> None:
    """Operations only of those that the list does not show."""
    driver = connect()
    await finished(driver, await driver.launch(asked(fake, 10)))
    assert fake.calls["zoneOperations.get"] == fake.calls["instances.get"] == 0
    assert fake.calls["instances.list"] >= 1


async def test_a_launch_is_followed_however_many_operations_there_were(tmp_path: Path) -> None:
    """Google keeps the operations of weeks, and what a filter leaves out of lists counts: asked for by a filter every
    two seconds, those of a busy project would use up the minute, and the launch would be in doubt."""
    with FakeGce(Settings(left_out=5, left_outs=1, provisioning_ms=200), RealClock()) as fake:
        said = scenes.settings(endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)), **QUICK)
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=fake.clock.now))
        for _ in range(2):
            vms = (await finished(driver, await driver.launch(asked(fake, 6)))).vms
            assert [vm.state for vm in vms] == [VmState.RUNNING] * 6
            await asyncio.gather(*(driver.terminate(vm.id) for vm in vms))
            while fake.all_instances():
                await asyncio.sleep(0.02)
        fake.add_faults(Fault(FaultKind.ASYNC_FAILURE, code="ZONE_RESOURCE_POOL_EXHAUSTED"))
        result = await finished(driver, await driver.launch(asked(fake, 6)))
        assert (result.vms, type(result.shortfall)) == ((), CapacityUnavailable)
        await driver.close()


async def test_some_of_a_launch_fail_and_the_others_are_there(fake: FakeGce, connect: Connect) -> None:
    """At once or later: each slot is a VM, or the shortfall says why not."""
    driver = connect()
    fake.add_faults(insert_fault(FaultKind.ERROR, times=1, code="503 ZONE_RESOURCE_POOL_EXHAUSTED"))
    fake.add_faults(insert_fault(FaultKind.ASYNC_FAILURE, times=1, code="ZONE_RESOURCE_POOL_EXHAUSTED"))
    result = await finished(driver, await driver.launch(asked(fake, 5)))
    assert len(result.vms) == 3
    assert isinstance(result.shortfall, CapacityUnavailable)


async def test_one_slot_in_doubt_is_a_launch_in_doubt_and_repeated_makes_nothing_twice(
    fake: FakeGce, connect: Connect
) -> None:
    driver = connect()
    fake.add_faults(insert_fault(FaultKind.LOST_ANSWER, times=1))
    with pytest.raises(InDoubt):
        await driver.launch(asked(fake, 4))
    result = await finished(driver, await driver.launch(asked(fake, 4)))
    assert sorted(vm.slot for vm in result.vms) == [0, 1, 2, 3]
    assert len(fake.ever()) == 4


@pytest.mark.parametrize("body", [b'{"kind": "compute#', b"<html>\xff</html>"], ids=["cut off", "of a proxy"])
async def test_an_answer_that_can_not_be_read_leaves_a_launch_in_doubt(
    fake: FakeGce, connect: Connect, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """It was carried out for all that anybody knows, and a listing may do better the next time."""
    driver = connect()
    request = asked(fake, offering=scenes.offering(image=scenes.settings().images["x86_64"]))
    await driver.list("contract")
    send = requests.Session.send

    def unreadable(session: requests.Session, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        answer = send(session, request, **more)
        answer._content = body
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(requests.Session, "send", unreadable)
        with pytest.raises(InDoubt):
            await driver.launch(request)
        with pytest.raises(Transient):
            await driver.list("contract")
    assert len((await finished(driver, await driver.launch(request))).vms) == len(fake.ever()) == 1


async def test_a_repeat_is_a_new_request_of_the_same_name(fake: FakeGce, connect: Connect) -> None:
    """Names say what is there; a requestId is of one call, or a VM that has ended would seem to be made."""
    driver = connect()
    (vm,) = (await finished(driver, await driver.launch(asked(fake)))).vms
    await driver.terminate(vm.id)
    while fake.all_instances():
        await asyncio.sleep(0.02)
    (again,) = (await finished(driver, await driver.launch(asked(fake)))).vms
    assert again.id == vm.id
    assert len(fake.ever()) == 2


async def test_an_operation_that_google_has_forgotten_is_answered_by_the_name(fake: FakeGce, connect: Connect) -> None:
    driver = connect()
    request = asked(fake, 2)
    (operation,) = (await driver.launch(replace(request, slots=1, instances=request.instances[:1]))).pending
    await finished(driver, LaunchResult((), None, (operation,)))
    zone, name, market, _ = operation.token.split("/")
    token = f"{zone}/{name}/{market}/operation-1,operation-2"
    answer = await driver.resume(Operation(token, request.batch, request.instances))
    assert [vm.slot for vm in answer.vms] == [0]
    assert isinstance(answer.shortfall, Transient)
    assert answer.pending == ()


async def test_names_may_begin_with_something_of_the_deployments(fake: FakeGce, connect: Connect) -> None:
    """Rights are bound by names: every VM and disk has the prefix, and each is found again by its slot."""
    driver = connect(name_prefix="lab--")
    request = asked(fake, 2)
    first = await finished(driver, await driver.launch(request))
    again = await finished(driver, await driver.launch(request))
    names = {f"lab--{slot}" for slot in request.instances}
    assert {vm.name for vm in fake.ever()} == names == {name for _, name in fake.project().disks}
    assert {vm.id for vm in first.vms} == {vm.id for vm in again.vms}
    assert {vm.id for vm in first.vms} == {driver.traits.vm_id(one, scenes.ZONE) for one in request.instances}
    assert sorted(vm.slot for vm in first.vms) == [0, 1]


@pytest.mark.parametrize("token", ["", "x", "a/b/c/d", "us-central1-a/n2-standard-2/spot/a,b"])
async def test_a_token_of_something_else_is_refused(connect: Connect, token: str) -> None:
    with pytest.raises(InvalidRequest):
        await connect().resume(Operation(token, scenes.BATCH, scenes.request().instances))


async def test_the_guests_part_of_a_launch(fake: FakeGce, connect: Connect) -> None:
    """Everything that a profile may say arrives."""
    driver = connect(
        service_account=scenes.ACCOUNT, accelerators={"n1-*": "nvidia-tesla-t4:1"}, network_tags=["batch"],
        subnets={"us-central1": "workers"}, public_address=False, local_ssds=1, secure_boot=False,
        labels={"team": "x"},
    )  # fmt: skip
    offer = next(
        one for one in await driver.offerings()
        if one.type.name == "n1-standard-4" and one.market is Market.SPOT and one.zone == scenes.ZONE
    )  # fmt: skip
    assert (offer.type.gpu_type, offer.type.capacity.gpus) == ("t4", 1)
    await finished(driver, await driver.launch(asked(fake, offering=offer)))
    (vm,) = fake.all_instances()
    said = vm.fixed
    assert said["scheduling"]["provisioningModel"] == "SPOT"
    assert said["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert int(said["scheduling"]["maxRunDuration"]["seconds"]) in range(3_590, 3_601)
    assert said["serviceAccounts"][0]["email"] == scenes.ACCOUNT
    assert said["guestAccelerators"][0]["acceleratorCount"] == 1
    assert said["networkInterfaces"][0]["subnetwork"].endswith("regions/us-central1/subnetworks/workers")
    assert "accessConfigs" not in said["networkInterfaces"][0]
    assert said["shieldedInstanceConfig"]["enableSecureBoot"] is False
    assert said["tags"]["items"] == ["batch"]
    assert [disk["autoDelete"] for disk in said["disks"]] == [True, True]


async def test_arm_machines_boot_arm_images(fake: FakeGce, connect: Connect) -> None:
    driver = connect(instance_types=["t2a-standard-1"])
    offer = next(one for one in await driver.offerings() if one.market is Market.ON_DEMAND)
    assert "arm64" in offer.image
    await finished(driver, await driver.launch(asked(fake, offering=offer)))
    assert connect(instance_types=["t2a-standard-1"], images={"x86_64": scenes.settings().images["x86_64"]})


async def test_labels_that_change_meanwhile_are_not_lost(fake: FakeGce, connect: Connect) -> None:
    """Many tags at once on one VM: each is set, as whoever comes late reads again."""
    driver = connect()
    (vm,) = (await finished(driver, await driver.launch(asked(fake)))).vms
    await asyncio.gather(*(driver.tag([vm.id], {f"cloud-dispatch-x{number}": str(number)}) for number in range(3)))
    tags = (await driver.get(vm.id)).tags
    assert [tags[f"cloud-dispatch-x{number}"] for number in range(3)] == ["0", "1", "2"]


async def test_a_zone_that_can_not_be_reached_proves_no_absence(fake: FakeGce, connect: Connect) -> None:
    """And hides nothing of the others, in whichever region it is."""
    driver = connect()
    spot = scenes.offering(market=Market.SPOT)
    (vm,) = (await finished(driver, await driver.launch(asked(fake, offering=spot)))).vms
    while any(one.status != "RUNNING" for one in fake.all_instances()):
        await asyncio.sleep(0.01)
    fake.hold_address(labels=dict(fake.all_instances()[0].labels))
    fake.preempt(vm.id.partition("/")[2], notice_ms=5_000)
    for away, complete in (({"us-central1-b", "europe-west4"}, False), ({"europe-west4-a"}, True), (set(), True)):
        fake.unreachable = away
        found = await driver.list("contract")
        assert ([(one.id, one.preempted) for one in found.vms], found.complete) == ([(vm.id, True)], complete)
        assert [one.kind for one in await driver.leftovers("contract")] == [LeftoverKind.ADDRESS]


@pytest.mark.parametrize("code", ["LIST_OVERHEAD_QUOTA_EXCEED", "PARTIAL_SUCCESS"])
async def test_a_list_that_says_it_lacks_something_proves_no_absence(
    fake: FakeGce, connect: Connect, code: str
) -> None:
    """By whatever word: Google answers such a list with 200, and without a VM that runs."""
    driver = connect()
    await finished(driver, await driver.launch(asked(fake)))
    fake.warned = {scenes.ZONE: code}
    found = await driver.list("contract")
    assert (found.vms, found.complete) == ((), False)
    for warned, complete in (({"": code}, False), ({"": "NO_RESULTS_ON_PAGE"}, True), ({"europe-west4-a": code}, True)):
        fake.warned = warned
        found = await driver.list("contract")
        assert (len(found.vms), found.complete) == (1, complete)


async def test_a_warning_of_a_page_is_of_the_places_that_it_names(fake: FakeGce, connect: Connect) -> None:
    fake.warned, fake.unreachable = {"": "PARTIAL_SUCCESS"}, {"europe-west4-a"}
    assert (await connect().list("contract")).complete
    fake.unreachable.add("us-central1-b")
    assert not (await connect().list("contract")).complete


async def test_profiles_of_one_project_have_their_regions_to_themselves(fake: FakeGce, connect: Connect) -> None:
    """One profile a region, of the same deployment: neither takes the other's VMs for its own, nor waits for its
    zones."""
    here, there = connect(), connect(regions=["europe-west4"])
    (vm,) = (await finished(here, await here.launch(asked(fake)))).vms
    assert [one.id for one in (await here.list("contract")).vms] == [vm.id]
    assert (await there.list("contract")).vms == ()
    fake.unreachable.add("us-central1-a")
    assert (await there.list("contract")).complete
    assert not (await here.list("contract")).complete


async def on_spot(fake: FakeGce, driver: Any, count: int) -> Sequence[Vm]:
    """So many spot VMs that run."""
    spot = scenes.offering(market=Market.SPOT)
    vms = (await finished(driver, await driver.launch(asked(fake, count, offering=spot)))).vms
    while any(vm.status != "RUNNING" for vm in fake.all_instances()):
        await asyncio.sleep(0.01)
    return vms


async def test_a_vm_that_was_taken_back_is_told_from_one_that_was_ended(fake: FakeGce, connect: Connect) -> None:
    driver = connect()
    vms = await on_spot(fake, driver, 2)
    fake.preempt(vms[0].id.partition("/")[2], notice_ms=5_000)
    found = {vm.slot: vm for vm in (await driver.list("contract")).vms}
    assert (found[0].state, found[0].preempted) == (VmState.STOPPING, True)
    assert (await driver.get(vms[0].id)).preempted
    assert not found[1].preempted


async def test_vms_are_listed_though_nobody_says_why_they_end(fake: FakeGce, connect: Connect) -> None:
    """What was known of it before counts, and it is told once."""
    driver = connect()
    vms = await on_spot(fake, driver, 3)
    known, late, last = (vm.id for vm in vms)
    fake.preempt(known.partition("/")[2], notice_ms=60_000)
    assert (await driver.get(known)).preempted
    for operation in ("globalOperations.aggregatedList", "zoneOperations.list"):
        fake.add_faults(Fault(FaultKind.ERROR, operation=operation, code="rateLimitExceeded"))
    fake.preempt(late.partition("/")[2], notice_ms=60_000)
    with structlog.testing.capture_logs() as records:
        found = await driver.list("contract")
        assert {vm.id: (vm.state, vm.preempted) for vm in found.vms} == {
            known: (VmState.STOPPING, True), late: (VmState.STOPPING, False), last: (VmState.RUNNING, False),
        }  # fmt: skip
        assert found.complete
        assert [(await driver.get(vm)).preempted for vm in (known, late)] == [True, False]
    assert [(one["event"], one["log_level"], one["profile"]) for one in records] == [
        ("preemptions.not_listed", "warning", "gcp")
    ]
    fake.clear_faults()
    assert {vm.id for vm in (await driver.list("contract")).vms if vm.preempted} == {known, late}


async def test_a_token_that_has_expired_is_renewed(fake: FakeGce, connect: Connect) -> None:
    """In the midst of a run, by a refusal even: nobody hears of it."""
    driver = connect()
    await driver.list("contract")
    asked_ = fake.calls["token"]
    with fake.lock:
        fake.tokens.revoke_all()
    await driver.list("contract")
    assert fake.calls["token"] == asked_ + 1


async def test_credentials_that_are_refused_are_said_to_be(fake: FakeGce, connect: Connect, tmp_path: Path) -> None:
    fake.add_faults(Fault(FaultKind.ERROR, operation="token", code="invalid_grant"))
    with pytest.raises(CredentialsRejected):
        await connect().list("contract")
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"type": "service_account", "private_key": "SECRET"}')
    with pytest.raises(CredentialsRejected) as caught:
        await connect(credentials_file=str(wrong)).list("contract")
    assert "SECRET" not in str(caught.value)
    with pytest.raises(CredentialsRejected, match="No such file"):
        await connect(credentials_file=str(tmp_path / "none.json")).list("contract")


async def test_a_limit_of_calls_is_one(fake: FakeGce, connect: Connect) -> None:
    driver = connect()
    fake.add_faults(insert_fault(FaultKind.ERROR, code="rateLimitExceeded"))
    with pytest.raises(RateLimited):
        await driver.launch(asked(fake, 3))


async def test_a_preflight_names_what_is_missing(fake: FakeGce, connect: Connect) -> None:
    """Each right, by the name that one gives it with; and a subnet, a pattern and a zone that are not there."""
    fake.denied.add("compute.instances.create")
    driver = connect(
        subnets={"us-central1": "nowhere"}, instance_types=["n2-standard-2", "n9-*"], zones=["us-central1-a"],
        root_size="10GiB",
    )  # fmt: skip
    found = await driver.preflight("contract")
    wrong = {one.about: one.text for one in found if one.level is Level.ERROR}
    assert wrong["permissions"] == "missing: compute.instances.create"
    assert "nowhere" in wrong["subnets"]
    assert any(one.about == "instance_types" and "n9-*" in one.text for one in found)
    assert any(one.about == "service_account" for one in found)


async def test_a_preflight_without_credentials_says_so_alone(fake: FakeGce, connect: Connect) -> None:
    fake.add_faults(Fault(FaultKind.ERROR, operation="token", code="invalid_grant"))
    (found,) = await connect().preflight("contract")
    assert (found.level, found.about) == (Level.ERROR, "credentials")


async def test_a_disk_in_use_is_not_deleted(fake: FakeGce, connect: Connect) -> None:
    driver = connect()
    (vm,) = (await finished(driver, await driver.launch(asked(fake)))).vms
    with pytest.raises(InvalidRequest):
        await driver.delete_leftover(Leftover(vm.id, LeftoverKind.DISK, vm.zone, {}))


async def test_ids_of_nothing_are_not_found(connect: Connect) -> None:
    driver = connect()
    await driver.terminate(VmId(""))
    await driver.terminate(VmId("us-central1-a/"))
    assert await driver.tag([VmId("x")], {"cloud-dispatch-x": "1"}) == {"x"}


async def test_another_account_is_acted_as(fake: FakeGce, connect: Connect) -> None:
    """Its tokens are asked for with one's own; who may not have them is told so."""
    driver = connect(impersonate=scenes.ACCOUNT)
    assert (await driver.list("contract")).complete
    assert fake.calls["token"] == 1
    (who, *_) = await driver.preflight("contract")
    assert (who.about, who.text) == ("credentials", scenes.ACCOUNT)
    fake.denied.add("iam.serviceAccounts.getAccessToken")
    with pytest.raises(CredentialsRejected):
        await connect(impersonate=scenes.ACCOUNT).list("contract")


async def test_a_vm_that_has_powered_off_is_past_its_hard_end_until_somebody_deletes_it(tmp_path: Path) -> None:
    """Google keeps it with its disk; a listing tells of it, and what goes by tags alone finds it and can end it."""
    clock = SetClock(scenes.NOW_MS)
    with FakeGce(Settings(), clock) as fake:
        said = scenes.settings(endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)))
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=clock.now))
        await driver.launch(asked(fake))
        fake.advance(20_000)
        fake.guest_shutdown(fake.all_instances()[0].name)
        fake.advance(90 * 86_400_000)
        (vm,) = (await driver.list(scenes.TAGS[DEPLOYMENT])).vms
        assert vm.state is VmState.STOPPED
        assert overdue([(vm.id, vm.tags)], clock.now()) == [vm.id]
        await driver.terminate(vm.id)
        fake.advance(60_000)
        await driver.close()
        assert fake.all_instances() == []
        assert fake.leftovers() == []


async def test_the_projects_reaper_ends_what_has_lost_its_end(tmp_path: Path) -> None:
    """The function that Terraform ships, by the labels that the driver wrote: a stopped VM goes at its end with its
    disk, and not before; another deployment's function leaves it."""
    clock = SetClock(scenes.NOW_MS)
    with FakeGce(Settings(), clock) as fake:
        said = scenes.settings(endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)))
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=clock.now))
        request = asked(fake)
        await driver.launch(replace(request, tags={**request.tags, ENDS_AT: str(request.ends_ms)}))
        await driver.close()
        fake.advance(20_000)
        off = fake.all_instances()[0].name
        fake.guest_shutdown(off)
        own, other = (ProjectReaper(fake, deployment=name) for name in (scenes.TAGS[DEPLOYMENT], "other"))
        fake.advance(request.ends_ms - clock.now() - 1)
        assert (own.look(), other.look()) == ([], [])
        fake.advance(1)
        assert (other.look(), own.look()) == ([], [f"{scenes.ZONE}/{off}"])
        fake.advance(1_000)
        assert fake.all_instances() == []
        assert fake.leftovers() == []


async def test_the_hard_end_comes_whatever_becomes_of_us(tmp_path: Path) -> None:
    """Google ends a VM that runs at the end of its time and deletes it with its disk; until then it is left alone."""
    clock = SetClock(scenes.NOW_MS)
    with FakeGce(Settings(), clock) as fake:
        said = scenes.settings(endpoint_url=fake.url, credentials_file=str(fake.write_key(tmp_path)))
        driver = plugin.create(ProfileContext(ProfileName("gcp"), said, tmp_path, now=clock.now))
        request = asked(fake)
        (operation,) = (await driver.launch(request)).pending
        fake.advance(20)
        (vm,) = (await driver.resume(operation)).vms
        await driver.close()
        fake.advance(3_599_000)
        assert [one.name for one in fake.all_instances()] == [vm.id.partition("/")[2]]
        late = driver.traits.hard_end_period_ms + driver.traits.stop_lag_ms
        fake.advance(request.ends_ms + late - clock.now())
        assert fake.all_instances() == []
        assert fake.leftovers() == []
