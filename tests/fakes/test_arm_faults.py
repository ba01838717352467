"""What the fault engine does to calls of the fake Azure, as the SDK sees it; quotas and capacity."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ServiceRequestError, ServiceResponseError

from tests.fakes.arm import FakeArm, Settings
from tests.fakes.arm.errors import HELD
from tests.fakes.arm.settings import GROUP, LOCATION, Bucket
from tests.fakes.arm_asking import SIZE, SPOT, begin, names, refusal, statuses
from tests.fakes.clock import SetClock
from tests.fakes.faults import Fault, FaultKind, Market

PUT = "VirtualMachines_CreateOrUpdate"


@pytest.fixture
def azure() -> Iterator[FakeArm]:
    with FakeArm(clock=SetClock()) as fake:
        yield fake


@pytest.fixture
def compute(azure: FakeArm) -> Any:
    return azure.compute()


def failed(poller: Any) -> tuple[int, str]:
    """Status and code with which an operation fails."""
    with pytest.raises(HttpResponseError) as caught:
        poller.result()
    return caught.value.status_code or 0, caught.value.error.code


def test_a_refused_call_does_nothing(azure: FakeArm, compute: Any) -> None:
    """And only calls in the fault's scope are refused. A conflict is ResourceExistsError whatever its code."""
    scope = {"operation": PUT, "zone": "westeurope-1", "type": SIZE, "market": Market.SPOT}
    azure.add_faults(Fault(FaultKind.ERROR, code="SkuNotAvailable", **scope))
    with pytest.raises(ResourceExistsError) as caught:
        begin(compute, "a", zones=["1"], **SPOT)
    assert caught.value.error.code == "SkuNotAvailable"
    assert azure.all_vms() == []
    begin(compute, "a", zones=["1"])
    begin(compute, "b", zones=["2"], **SPOT)
    azure.clear_faults()
    begin(compute, "c", zones=["1"], **SPOT)


def test_an_operation_may_fail_after_it_was_accepted(azure: FakeArm, compute: Any) -> None:
    """The SDK tells it with status 200, a VM in state Failed stays and costs nothing, and its parts stay with it."""
    azure.add_faults(Fault(FaultKind.ASYNC_FAILURE, code="AllocationFailed", skip=1, times=1))
    pollers = [begin(compute, name) for name in "ab"]
    azure.advance(20)
    pollers[0].result()
    assert failed(pollers[1]) == (200, "AllocationFailed")
    assert statuses(compute, "b") == ["ProvisioningState/failed/AllocationFailed"]
    assert compute.virtual_machines.get(GROUP, "b").properties.provisioning_state == "Failed"
    assert (len(azure.bill()), azure.leftovers()) == (1, [azure.vm("b").id])
    compute.virtual_machines.begin_delete(GROUP, "b")
    azure.advance(20)
    assert azure.leftovers() == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, "AllocationFailed"), ({"zones": ["1"]}, "ZonalAllocationFailed"),
        (SPOT, "OverconstrainedAllocationRequest"),
        ({"zones": ["1"], **SPOT}, "OverconstrainedZonalAllocationRequest"),
    ],
)  # fmt: skip
def test_capacity_ends(azure: FakeArm, compute: Any, more: Any, code: str) -> None:
    """What is too much fails by its operation, in Azure's words for what was asked."""
    azure.add_faults(Fault(FaultKind.CAPACITY, type=SIZE, amount=1))
    pollers = [begin(compute, name, **more) for name in "ab"]
    azure.advance(20)
    pollers[0].result()
    assert failed(pollers[1]) == (200, code)


def test_capacity_may_be_denied_at_once(azure: FakeArm, compute: Any) -> None:
    azure.add_faults(Fault(FaultKind.CAPACITY, type=SIZE, amount=0, code="SkuNotAvailable"))
    assert refusal(begin, compute, "a") == (409, "SkuNotAvailable")


def test_quotas_are_of_families_of_the_location_and_of_spot(compute: Any) -> None:
    """A conflict that says OperationNotAllowed; usages tell how much is taken, and what failed takes nothing."""
    limits = {"standardDSv5Family": 4, "cores": 6, "lowPriorityCores": 2}
    with FakeArm(Settings(quotas=limits), SetClock()) as azure:
        compute = azure.compute()
        begin(compute, "a")
        begin(compute, "b")
        assert refusal(begin, compute, "c") == (409, "OperationNotAllowed")
        begin(compute, "c", size="Standard_E2s_v5")
        assert refusal(begin, compute, "d", size="Standard_E2s_v5") == (409, "OperationNotAllowed")
        begin(compute, "d", **SPOT)
        assert refusal(begin, compute, "e", **SPOT) == (409, "OperationNotAllowed")
        told = {usage.name.value: (usage.current_value, usage.limit) for usage in compute.usage.list(LOCATION)}
        assert [told[name] for name in limits] == [(4, 4), (6, 6), (2, 2)]
        compute.virtual_machines.begin_delete(GROUP, "a")
        azure.advance(40)
        begin(compute, "e")
        azure.add_faults(Fault(FaultKind.QUOTA, market=Market.SPOT, amount=0))
        assert refusal(begin, compute, "f", **SPOT) == (409, "OperationNotAllowed")


def test_what_another_operation_holds_is_told_with_429_too(azure: FakeArm) -> None:
    """The code says that it may be tried again, and a detail why."""
    operation = "NetworkInterfaces_CreateOrUpdate"
    azure.add_faults(Fault(FaultKind.ERROR, operation=operation, code=HELD, times=1, retry_after_ms=14_000))
    with pytest.raises(HttpResponseError) as caught:
        azure.network().network_interfaces.begin_create_or_update(GROUP, "a-nic", {"location": LOCATION})
    assert (caught.value.status_code, caught.value.error.code) == (429, "RetryableError")
    assert caught.value.error.details[0].code == HELD
    assert caught.value.response.headers["Retry-After"] == "14"


def test_too_many_calls_are_told_when_to_come_again(azure: FakeArm, compute: Any) -> None:
    """429 with Retry-After; Compute's code is that of a quota, and the detail says what it is."""
    azure.add_faults(Fault(FaultKind.ERROR, operation=PUT, code="TooManyRequests", times=1, retry_after_ms=1500))
    with pytest.raises(HttpResponseError) as caught:
        begin(compute, "a")
    assert (caught.value.status_code, caught.value.error.code) == (429, "OperationNotAllowed")
    assert caught.value.error.details[0].code == "TooManyRequests"
    assert caught.value.response.headers["Retry-After"] == "2"
    with FakeArm(Settings(buckets=(Bucket(PUT, 1, 1.0),)), SetClock()) as azure:
        compute = azure.compute()
        begin(compute, "a")
        assert refusal(begin, compute, "b")[0] == 429
        azure.advance(1_000)
        begin(compute, "b")


def test_a_launch_can_be_carried_out_and_its_answer_lost(azure: FakeArm, compute: Any) -> None:
    """The VM exists and the caller never hears; its name finds it."""
    azure.add_faults(Fault(FaultKind.LOST_ANSWER, operation=PUT, times=1))
    with pytest.raises((ServiceResponseError, ServiceRequestError)):
        begin(compute, "a")
    assert refusal(begin, compute, "a") == (412, "PreconditionFailed")
    azure.add_faults(Fault(FaultKind.LOST_ANSWER, operation=PUT, code="InternalServerError", times=1))
    assert refusal(begin, compute, "b") == (500, "InternalServerError")
    assert names(compute) == ["a", "b"]


def test_a_call_may_never_be_answered(azure: FakeArm) -> None:
    azure.add_faults(Fault(FaultKind.NO_ANSWER, operation=PUT))
    with pytest.raises((ServiceResponseError, ServiceRequestError)):
        begin(azure.compute(read_timeout=0.2), "a")
    assert len(azure.all_vms()) == 1


def test_an_answer_may_be_late(azure: FakeArm, compute: Any) -> None:
    names(compute)
    azure.add_faults(Fault(FaultKind.SLOW, operation="VirtualMachines_ListAll", amount=80, times=1))
    began = time.monotonic()
    names(compute)
    assert time.monotonic() - began >= 0.08


def test_a_vm_may_never_start_or_start_late(azure: FakeArm, compute: Any) -> None:
    azure.add_faults(Fault(FaultKind.NEVER_STARTS, times=1), Fault(FaultKind.LATE, amount=100, times=1))
    pollers = [begin(compute, name) for name in "abc"]
    azure.advance(20)
    assert [vm.phase for vm in azure.all_vms()] == ["Creating", "Creating", "Succeeded"]
    azure.advance(100)
    assert [vm.phase for vm in azure.all_vms()] == ["Creating", "Succeeded", "Succeeded"]
    assert [poller.polling_method().status() for poller in pollers[:1]] == ["InProgress"]


def test_a_listing_may_show_the_world_of_some_time_ago() -> None:
    """States, tags, what was not there then, and what is gone now."""
    with FakeArm(Settings(), SetClock()) as azure:
        compute = azure.compute()
        begin(compute, "old")
        azure.advance(10_000)
        begin(compute, "new")
        compute.virtual_machines.begin_update(GROUP, "old", {"tags": {"late": ""}})
        compute.virtual_machines.begin_delete(GROUP, "old")
        azure.advance(1_000)
        assert names(compute) == ["new"]
        azure.add_faults(Fault(FaultKind.STALE, operation="VirtualMachines_ListAll", amount=2_000, times=1))
        (seen,) = compute.virtual_machines.list_all()
        assert (seen.name, seen.tags, seen.properties.provisioning_state) == ("old", None, "Succeeded")


def test_a_listing_may_break_off() -> None:
    """The first page comes, the next does not."""
    with FakeArm(Settings(page=2), SetClock()) as azure:
        compute = azure.compute()
        for name in "abcde":
            begin(compute, name)
        listing = "VirtualMachines_ListAll"
        azure.add_faults(Fault(FaultKind.INCOMPLETE, operation=listing, amount=1, code="ServerTimeout", times=1))
        pages = compute.virtual_machines.list_all().by_page()
        assert len(list(next(pages))) == 2
        assert refusal(next, pages) == (504, "ServerTimeout")
        assert len(names(compute)) == 5


NIC = ["networkInterfaces", "publicIPAddresses"]  # which keeps its address


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("disk", ["disks"]),
        ("network-interface", NIC),
        ("public-address", ["publicIPAddresses"]),
        ("", ["disks", *NIC]),
    ],
)
def test_what_came_with_a_vm_may_stay_behind(azure: FakeArm, compute: Any, code: str, left: list[str]) -> None:
    azure.add_faults(Fault(FaultKind.LEFTOVER, code=code, times=1))
    for name in "ab":
        begin(compute, name)
        compute.virtual_machines.begin_delete(GROUP, name)
    azure.advance(20)
    assert sorted(identity.split("/")[-2] for identity in azure.leftovers()) == left


def test_a_vm_may_be_hidden_from_reads(azure: FakeArm, compute: Any) -> None:
    begin(compute, "a")
    azure.hide("a", 1_000)
    assert (names(compute), refusal(compute.virtual_machines.get, GROUP, "a")[0]) == ([], 404)
    azure.advance(1_000)
    assert names(compute) == ["a"]


def test_tokens_may_be_refused(azure: FakeArm, compute: Any) -> None:
    """A fault of the authority; no call reaches ARM."""
    azure.add_faults(Fault(FaultKind.ERROR, operation="Token", code="ServiceUnavailable"))
    with pytest.raises(Exception, match=r"."):
        names(compute)
    assert azure.calls["VirtualMachines_ListAll"] == 0
