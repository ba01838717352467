"""Launches that are refused, fail later or whose answers say nothing, and credentials that don't: what the driver
makes of them, on the fake."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from cloud_dispatch.domain.ids import BatchId, InstanceId
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InDoubt,
    InvalidRequest,
    ProviderError,
    Transient,
)
from cloud_dispatch.provider.spi import (
    LaunchResult,
    Level,
    Operation,
)
from tests.fakes.arm.errors import HELD
from tests.fakes.arm.fake import FakeArm
from tests.fakes.arm.gateway import Gateway
from tests.fakes.arm.records import Condition, Phase, Power
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.server import Reply, Request
from tests.providers.azure import scenes
from tests.providers.azure.steps import VM, Connect, clean, gone, launched, settled, until


async def test_a_refused_launch_leaves_no_interface(fake: FakeArm, connect: Connect) -> None:
    driver = connect()
    fake.add_faults(Fault(FaultKind.ERROR, operation="VirtualMachines_CreateOrUpdate", code="SkuNotAvailable"))
    with pytest.raises(CapacityUnavailable):
        await driver.launch(scenes.request())
    assert fake.calls["NetworkInterfaces_CreateOrUpdate"] == fake.calls["NetworkInterfaces_Delete"] == 1
    await until(lambda: clean(driver))


@pytest.mark.parametrize(
    "pace", [{"deleting_ms": 300, "latencies_ms": {"NetworkInterfaces_CreateOrUpdate": 600}}], ids=["slow"]
)
async def test_a_repeat_whose_interface_goes_with_the_one_before_is_for_later(
    fake: FakeArm, connect: Connect, pace: object
) -> None:
    """It is written while it is on its way out. Nothing is wrong with the request, nor with the offering."""
    driver = connect()
    fake.add_faults(Fault(FaultKind.ERROR, operation="VirtualMachines_CreateOrUpdate", code="SkuNotAvailable", times=1))
    with pytest.raises(CapacityUnavailable):
        await driver.launch(scenes.request())
    with pytest.raises(Transient, match="on its way out"):
        await driver.launch(scenes.request())
    await until(lambda: clean(driver))
    assert [vm.id for vm in await launched(driver)] == [VM]


@pytest.mark.parametrize("what", ["VirtualMachines", "NetworkInterfaces", "PublicIPAddresses"])
@pytest.mark.parametrize("code", ["SkuNotAvailable", "TooManyRequests", "AuthorizationFailed", "Conflict"])
async def test_a_refusal_of_a_vm_that_is_there_is_no_refusal(
    fake: FakeArm, connect: Connect, code: str, what: str
) -> None:
    """A repeat is refused, whatever of it, and the VM of the first request lives: it is the answer, and keeps what it
    has."""
    driver = connect(public_address=True)
    await launched(driver)
    fake.add_faults(Fault(FaultKind.ERROR, operation=f"{what}_CreateOrUpdate", code=code, times=1))
    assert [vm.id for vm in await launched(driver)] == [VM]
    assert fake.calls["NetworkInterfaces_Delete"] == fake.calls["PublicIPAddresses_Delete"] == 0


async def test_a_subnet_that_another_operation_holds_says_nothing_of_the_pace(fake: FakeArm, connect: Connect) -> None:
    """It is told with 429, as requests that were too many are: those stop all launches of the subscription, this one is
    asked again."""
    driver = connect()
    fake.add_faults(
        Fault(FaultKind.ERROR, operation="NetworkInterfaces_CreateOrUpdate", code=HELD, times=1, retry_after_ms=14_000)
    )
    with pytest.raises(Transient, match=HELD) as refused:
        await driver.launch(scenes.request())
    assert (type(refused.value), refused.value.retry_after_ms) == (Transient, 14_000)
    assert [vm.id for vm in await launched(driver)] == [VM]


async def test_an_interface_that_azure_does_not_show_yet_is_waited_for(
    fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was accepted, and a look that finds none says nothing of the request."""
    monkeypatch.setattr("cloud_dispatch_azure.launching._LOOK_S", 0)
    handle = Gateway.handle

    def slowly(gateway: Gateway, request: Request) -> Reply:
        reply = handle(gateway, request)
        accepted = request.method == "PUT" and "/networkInterfaces/" in request.target
        return replace(reply, body=reply.body.replace(b"Succeeded", b"Updating")) if accepted else reply

    monkeypatch.setattr(Gateway, "handle", slowly)
    fake.add_faults(Fault(FaultKind.ERROR, operation="NetworkInterfaces_Get", code="ResourceNotFound", times=1))
    assert [vm.id for vm in await launched(connect())] == [VM]
    assert fake.calls["NetworkInterfaces_Get"] == 2


async def test_a_subnet_that_is_not_there_is_a_request_that_is_wrong(connect: Connect) -> None:
    """Azure names the interface beside it, as what refers to it: that one is not on its way out."""
    with pytest.raises(InvalidRequest, match=r"vmsx referenced by resource .*b1-0-nic"):
        await connect(subnet=scenes.SUBNET + "x").launch(scenes.request())


async def test_after_a_refusal_nothing_is_cleared_while_nobody_says_that_there_is_no_vm(
    fake: FakeArm, connect: Connect
) -> None:
    """Carried out, though the answer says otherwise, and then Azure can't be asked."""
    driver = connect()
    fake.add_faults(
        Fault(FaultKind.LOST_ANSWER, operation="VirtualMachines_CreateOrUpdate", code="TooManyRequests", times=1),
        Fault(FaultKind.ERROR, operation="VirtualMachines_Get", code="ServerBusy", times=1),
    )
    with pytest.raises(InDoubt, match="ServerBusy"):
        await driver.launch(scenes.request())
    assert fake.calls["NetworkInterfaces_Delete"] == 0
    assert [vm.name for vm in fake.all_vms()] == [VM]


async def test_nothing_is_registered_in_the_subscription(fake: FakeArm, connect: Connect) -> None:
    """What the operator has to do once is told and not done: the fake has no registrations, and would say so."""
    code = "MissingSubscriptionRegistration"
    for operation in ("VirtualMachines_CreateOrUpdate", "VirtualMachines_List"):
        fake.add_faults(Fault(FaultKind.ERROR, operation=operation, code=code, times=1))
    driver = connect()
    with pytest.raises(InvalidRequest, match="not registered to use namespace"):
        await driver.launch(scenes.request())
    with pytest.raises(InvalidRequest, match="not registered to use namespace"):
        await driver.list("contract")
    assert fake.problems == []


@pytest.mark.parametrize("answer", ["cut-json", "page"])
async def test_an_answer_that_nobody_can_read_to_a_change_is_in_doubt(
    fake: FakeArm, connect: Connect, answer: str
) -> None:
    """It was carried out, for all that is known; a question is asked again."""
    driver = connect()
    for operation in ("NetworkInterfaces_CreateOrUpdate", "VirtualMachines_CreateOrUpdate"):
        fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation=operation, code=answer, times=1))
        with pytest.raises(InDoubt):
            await driver.launch(scenes.request())
    assert fake.calls["NetworkInterfaces_Delete"] == 0
    assert [vm.id for vm in await launched(driver)] == [VM]
    fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation="VirtualMachines_Update", code=answer, times=1))
    with pytest.raises(InDoubt):
        await driver.tag([VM], {"more": "1"})
    fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation="VirtualMachines_List", code=answer, times=1))
    with pytest.raises(Transient):
        await driver.list("contract")
    fake.add_faults(Fault(FaultKind.LOST_ANSWER, operation="Operations_Get", code=answer, times=1))
    (pending,) = (await driver.launch(scenes.request(batch=BatchId("b2"), instances=(InstanceId("b2-0"),)))).pending
    with pytest.raises(Transient):
        await driver.resume(pending)
    (vm,) = (await settled(driver, LaunchResult((), pending=(pending,)))).vms
    assert vm.id == "b2-0"


async def test_a_creation_that_fails_later_is_cleared_away(fake: FakeArm, connect: Connect) -> None:
    """AllocationFailed comes with status 200, inside an operation that was accepted; the driver deletes its VM."""
    driver = connect()
    fake.add_faults(Fault(FaultKind.ASYNC_FAILURE, code="ZonalAllocationFailed", times=1))
    result = await settled(driver, await driver.launch(scenes.request(slots=2)))
    assert len(result.vms) == 1
    assert isinstance(result.shortfall, CapacityUnavailable)
    assert result.shortfall.scope.covers(scenes.offering())
    assert result.shortfall.scope.zone == scenes.ZONE
    assert len(fake.all_vms()) == 1
    assert fake.leftovers() == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InternalExecutionError", Transient),
        ("OSProvisioningTimedOut", Transient),
        ("OSProvisioningClientError", InvalidRequest),
        ("OperationPreempted", Transient),
        ("canceled", Transient),
        ("AllocationFailed", CapacityUnavailable),
    ],
)
async def test_a_creation_that_has_failed_is_not_in_doubt(
    fake: FakeArm, connect: Connect, code: str, kind: type[ProviderError]
) -> None:
    """Azure says that it failed, and its VM is gone: whatever the reason, there is none."""
    driver = connect()
    fake.add_faults(Fault(FaultKind.ASYNC_FAILURE, code=code, times=1))
    result = await settled(driver, await driver.launch(scenes.request()))
    assert result.vms == ()
    assert type(result.shortfall) is kind
    assert fake.all_vms() == []


@pytest.mark.parametrize("pace", [{"provisioning_ms": 3_600_000}], ids=["slow"])
async def test_a_creation_that_another_operation_took_over_has_not_failed(
    fake: FakeArm, connect: Connect, pace: object
) -> None:
    """As a change of tags may, of a VM whose agent is there already: the VM itself tells, and nobody deletes it."""
    driver = connect()
    (operation,) = (await driver.launch(scenes.request())).pending
    creation = fake.estate.operations[fake.vm(VM).creation]
    fake.estate.finish(creation, {"code": "OperationPreempted", "message": "by a later one"})
    assert (await driver.resume(operation)).pending == (operation,)
    fake.estate.become(fake.vm(VM), Condition(Phase.SUCCEEDED, Power.RUNNING))
    assert [vm.id for vm in (await driver.resume(operation)).vms] == [VM]
    assert fake.calls["VirtualMachines_Delete"] == 0


async def test_a_change_that_fails_later_is_no_failed_creation(fake: FakeArm, connect: Connect) -> None:
    """The VM's state is that of the last thing that was done with it; how its creation ended the operation tells."""
    driver = connect()
    (operation,) = (await driver.launch(scenes.request())).pending
    await settled(driver, LaunchResult((), pending=(operation,)))
    fake.estate.become(fake.vm(VM), Condition(Phase.FAILED, Power.RUNNING))
    assert [vm.id for vm in (await driver.resume(operation)).vms] == [VM]
    assert fake.calls["VirtualMachines_Delete"] == 0


async def test_an_operation_that_azure_has_forgotten_is_told_by_its_vm(fake: FakeArm, connect: Connect) -> None:
    driver = connect()
    (operation,) = (await driver.launch(scenes.request())).pending
    await settled(driver, LaunchResult((), pending=(operation,)))
    fake.estate.operations.clear()
    (vm,) = (await driver.resume(operation)).vms
    assert vm.id == VM
    fake.remove(VM)
    await until(lambda: gone(driver))
    result = await driver.resume(operation)
    assert isinstance(result.shortfall, Transient)


async def test_a_next_page_that_is_elsewhere_is_not_asked_for(fake: FakeArm, connect: Connect) -> None:
    """Our credentials would go along."""
    driver = connect()
    await launched(driver, scenes.request(slots=2))
    fake.settings = replace(fake.settings, page=1)
    assert len((await driver.list("contract")).vms) == 2
    fake._gateway._url = lambda: "https://elsewhere.example"
    with pytest.raises(Transient, match="next page is elsewhere"):
        await driver.list("contract")


async def test_a_token_of_somebody_elses_is_sent_nowhere(connect: Connect) -> None:
    """Our credentials go along with a look: a token that names another host is none."""
    driver = connect()
    for text in ("", "x", "[]", '["a"]', '["b1-0","https://example.com/x","s","z","r","m","f"]'):
        with pytest.raises(InvalidRequest):
            await driver.resume(Operation(text, scenes.request().batch, scenes.request().instances))


async def test_tokens_that_were_revoked_are_renewed(fake: FakeArm, connect: Connect) -> None:
    """The credentials are asked for a new token, in the middle of a run."""
    driver = connect()
    await driver.list("contract")
    fake.authority.revoke()
    await driver.list("contract")
    fake.authority._good.clear()  # as if they had expired: no challenge, a bare refusal
    (operation,) = (await driver.launch(scenes.request())).pending
    fake.authority._good.clear()
    await settled(driver, LaunchResult((), pending=(operation,)))
    fake.authority._good.clear()
    assert [one.text for one in await driver.preflight("contract") if one.level is Level.ERROR] == []


async def test_credentials_that_are_refused(fake: FakeArm, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that is wrong, none at all, and rights that are missing: the profile can't be used."""
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong")
    with pytest.raises(CredentialsRejected, match="AADSTS7000215"):
        await connect().list("contract")
    monkeypatch.delenv("AZURE_CLIENT_SECRET")
    with pytest.raises(CredentialsRejected):
        await connect().list("contract")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", fake.environment()["AZURE_CLIENT_SECRET"])
    fake.denied.add("Microsoft.Compute/virtualMachines/write")
    with pytest.raises(CredentialsRejected, match="AuthorizationFailed"):
        await connect().launch(scenes.request())


async def test_an_authority_that_is_not_reached_has_refused_nobody(connect: Connect) -> None:
    """The profile is asked again, and not put aside."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Transient):
        await connect(authority_url=f"https://127.0.0.1:{port}").list("contract")
