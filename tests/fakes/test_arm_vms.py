"""How VMs begin, are told and end at the fake Azure, as the SDK sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.rest import HttpRequest

from tests.fakes.arm import FakeArm, Settings, documents, models
from tests.fakes.arm.estate import Estate
from tests.fakes.arm.records import Vm
from tests.fakes.arm.settings import GROUP, LOCATION
from tests.fakes.arm_asking import SPOT, SUBNET, begin, body, crowd, names, refusal, statuses
from tests.fakes.clock import SetClock

#: Three pages of lists, the last one not full.
MANY = 1_300


@pytest.fixture
def azure() -> Iterator[FakeArm]:
    with FakeArm(clock=SetClock()) as fake:
        yield fake


@pytest.fixture
def compute(azure: FakeArm) -> Any:
    return azure.compute()


def test_a_creation_is_an_operation_that_succeeds(azure: FakeArm, compute: Any) -> None:
    """Creating, then running; the disk, the interface and the address come with it and go with it."""
    poller = begin(compute, "a", tags={"owner": "me"}, zones=["2"], **SPOT)
    assert poller.status() == "InProgress"
    assert statuses(compute, "a") == ["ProvisioningState/creating", "PowerState/starting"]
    azure.advance(20)
    made = poller.result()
    assert (made.properties.provisioning_state, made.zones, made.tags) == ("Succeeded", ["2"], {"owner": "me"})
    assert made.properties.os_profile.custom_data is None
    assert statuses(compute, "a") == ["ProvisioningState/succeeded", "PowerState/running"]
    network = azure.network()
    (nic,) = network.network_interfaces.list(GROUP)
    assert nic.virtual_machine.id.lower() == made.id.lower()
    assert len(list(network.public_ip_addresses.list(GROUP))) == len(list(compute.disks.list())) == 1
    ending = compute.virtual_machines.begin_delete(GROUP, "a")
    assert compute.virtual_machines.get(GROUP, "a").properties.provisioning_state == "Deleting"
    azure.advance(20)
    ending.result()
    assert (names(compute), azure.leftovers(), azure.estate.parts) == ([], [], {})
    assert refusal(compute.virtual_machines.get, GROUP, "a")[0] == 404
    compute.virtual_machines.begin_delete(GROUP, "a").result()  # 204: what is not there is deleted
    assert [line.ended_ms - line.running_ms for line in azure.bill()] == [0]


def test_an_operation_is_found_again_by_its_token(azure: FakeArm, compute: Any) -> None:
    """Another process that was told the token goes on waiting."""
    poller = begin(compute, "a")
    azure.advance(20)
    kept = poller.continuation_token()
    other = azure.compute().virtual_machines.begin_create_or_update(GROUP, "a", {}, continuation_token=kept)
    assert other.result().name == "a"


def test_a_name_is_made_once(azure: FakeArm, compute: Any) -> None:
    """With a condition 412 (which the SDK calls ResourceExistsError); without one a PUT of the same is the same."""
    begin(compute, "a")
    with pytest.raises(HttpResponseError) as caught:
        begin(compute, "a")
    assert (caught.value.status_code, caught.value.error.code) == (412, "PreconditionFailed")
    azure.advance(20)
    again = compute.virtual_machines.begin_create_or_update(GROUP, "A", body()).result()
    assert again.properties.vm_id == azure.vm("a").vm_id
    put = compute.virtual_machines.begin_create_or_update
    assert refusal(put, GROUP, "a", body(size="Standard_D4s_v5")) == (409, "PropertyChangeNotAllowed")
    wrong = {"etag": '"0"', "match_condition": MatchConditions.IfNotModified}
    assert refusal(compute.virtual_machines.begin_update, GROUP, "a", {"tags": {}}, **wrong)[0] == 412
    assert len(azure.all_vms()) == 1


def test_listings_have_pages_and_shout_the_group(compute: Any) -> None:
    """Of a group, of all, with how they run or with that alone; ids are told in other case than they were made."""
    with FakeArm(Settings(page=3)) as azure:
        compute = azure.compute()
        pollers = [begin(compute, f"vm{n}") for n in range(7)]
        for poller in pollers:
            poller.result()
        wanted = [f"vm{n}" for n in range(7)]
        assert names(compute) == wanted
        assert azure.calls["VirtualMachines_ListAll"] == 3
        in_group = list(compute.virtual_machines.list(GROUP, expand="instanceView"))
        assert [vm.name for vm in in_group] == wanted
        assert f"/resourceGroups/{GROUP.upper()}/" in in_group[0].id
        assert in_group[0].properties.instance_view.statuses[1].code == "PowerState/running"
        (first, *_) = compute.virtual_machines.list_all(status_only="true")
        assert first.properties.instance_view.statuses[1].code == "PowerState/running"
        assert (first.tags, first.properties.os_profile) == (None, None)


def test_tags_are_replaced_by_a_patch_and_merged_at_their_scope(azure: FakeArm, compute: Any) -> None:
    begin(compute, "a", tags={"one": "1"})
    azure.advance(20)
    assert compute.virtual_machines.begin_update(GROUP, "a", {"tags": {"two": "2"}}).result().tags == {"two": "2"}
    scope = f"{azure.vm('a').id}/providers/Microsoft.Resources/tags/default?api-version=2021-04-01"
    merge = {"operation": "Merge", "properties": {"tags": {"three": "3"}}}
    assert compute.send_request(HttpRequest("PATCH", scope, json=merge)).status_code == 200
    assert compute.virtual_machines.get(GROUP, "a").tags == {"two": "2", "three": "3"}
    assert refusal(compute.virtual_machines.begin_update, GROUP, "a", {"tags": {"a/b": ""}})[0] == 400
    many = {str(n): "" for n in range(51)}
    assert refusal(compute.virtual_machines.begin_update, GROUP, "a", {"tags": many})[0] == 400


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (body(b"x" * 65_536), (400, "InvalidParameter")),
        (body(size="Standard_None"), (400, "InvalidParameter")),
        (body(size="Standard_D2ps_v5"), (400, "BadRequest")),  # an image of another architecture
        (body(evictionPolicy="Delete"), (400, "InvalidParameter")),  # not spot
        (body(**{**SPOT, "billingProfile": {"maxPrice": 0.001}}), (409, "SpotPriceGreaterThanProvidedMaxPrice")),
        (body(size="Standard_B2s", **SPOT), (409, "OperationNotAllowed")),  # none on spot
        (body(zones=["4"]), (400, "AvailabilityZoneNotSupported")),
        (body(vmId="x"), (400, "InvalidParameter")),  # only read
        (body(nonsense=1), (400, "InvalidRequestContent")),
        (body(licenseType="RHEL_BYOS"), (501, "UnmodelledOperation")),
        ({"properties": {}}, (400, "InvalidParameter")),
    ],
)
def test_bodies_that_are_not_good_are_refused(azure: FakeArm, compute: Any, wanted: Any, told: Any) -> None:
    assert refusal(begin, compute, "a", wanted) == told
    assert azure.all_vms() == []
    azure.unmodelled.clear()


@pytest.mark.skipif(not models.DATA.exists(), reason=f"no {models.DATA.name} beside the checkout")
def test_bodies_are_held_against_azures_description() -> None:
    """Where it is: what the SDK's models let pass, it may refuse."""
    with pytest.raises(models.ArmError, match="missing"):
        models._walk_described(models._described("Microsoft.Compute/virtualMachines"), {"tags": {}}, "")


def test_an_ephemeral_disk_is_none_of_the_accounts(azure: FakeArm, compute: Any) -> None:
    wanted = body(size="Standard_D2ds_v5", **SPOT)
    wanted["properties"]["storageProfile"]["osDisk"] |= {"diffDiskSettings": {"option": "Local"}, "caching": "ReadOnly"}
    begin(compute, "a", wanted)
    azure.advance(20)
    assert list(compute.disks.list()) == []
    assert refusal(compute.virtual_machines.begin_deallocate, GROUP, "a") == (409, "OperationNotAllowed")
    wanted["properties"]["evictionPolicy"] = "Deallocate"
    assert refusal(begin, compute, "b", wanted) == (409, "OperationNotAllowed")
    wanted["properties"]["hardwareProfile"]["vmSize"] = "Standard_D2s_v5"  # without a place for it
    assert refusal(begin, compute, "b", wanted) == (409, "OperationNotAllowed")


def test_an_interface_and_an_address_may_be_there_before(azure: FakeArm, compute: Any) -> None:
    """They are made by themselves, belong to one VM, and stay without the option that deletes them."""
    network = azure.network()
    address = {"location": LOCATION, "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}
    public = network.public_ip_addresses.begin_create_or_update(GROUP, "address", address).result()
    inner = {"subnet": {"id": SUBNET}, "publicIPAddress": {"id": public.id}}
    interface = {"location": LOCATION, "properties": {"ipConfigurations": [{"name": "ip", "properties": inner}]}}
    nic = network.network_interfaces.begin_create_or_update(GROUP, "nic", interface).result()
    wanted = body(networkProfile={"networkInterfaces": [{"id": nic.id, "properties": {"primary": True}}]})
    begin(compute, "a", wanted)
    assert refusal(begin, compute, "b", wanted) == (400, "NicInUse")
    assert refusal(network.network_interfaces.begin_delete, GROUP, "nic") == (400, "NicInUse")
    assert refusal(network.public_ip_addresses.begin_delete, GROUP, "address")[0] == 400
    compute.virtual_machines.begin_delete(GROUP, "a")
    azure.advance(20)
    assert azure.leftovers() == [public.id, nic.id]
    network.network_interfaces.begin_delete(GROUP, "nic")
    azure.advance(20)
    assert azure.leftovers() == [public.id]


def test_a_guest_that_shuts_down_is_billed_on_until_it_is_deallocated(azure: FakeArm, compute: Any) -> None:
    begin(compute, "a")
    azure.advance(1_020)
    azure.guest_shutdown("a")
    assert statuses(compute, "a")[1] == "PowerState/stopped"
    azure.advance(1_000)
    assert len(azure.billed()) == 1
    compute.virtual_machines.begin_deallocate(GROUP, "a")
    azure.advance(20)
    assert statuses(compute, "a")[1] == "PowerState/deallocated"
    assert [line.ended_ms - line.running_ms for line in azure.bill()] == [2_000]
    assert azure.leftovers() == [azure.vm("a").id]


@pytest.mark.parametrize(("policy", "left"), [("Delete", []), ("Deallocate", ["a"])])
def test_spot_is_taken_back_after_a_notice(azure: FakeArm, compute: Any, policy: str, left: list[str]) -> None:
    begin(compute, "a", **{**SPOT, "evictionPolicy": policy})
    azure.advance(20)
    compute.virtual_machines.simulate_eviction(GROUP, "a")
    azure.advance(29_999)
    assert statuses(compute, "a")[1] == "PowerState/running"
    azure.advance(21)
    azure.advance(20)
    assert names(compute) == left
    assert [line.ended_ms - line.running_ms for line in azure.bill()] == [30_000]


def test_a_deletion_preempts_a_creation(azure: FakeArm, compute: Any) -> None:
    poller = begin(compute, "a")
    compute.virtual_machines.begin_delete(GROUP, "a")
    with pytest.raises(HttpResponseError) as caught:
        poller.result()
    assert caught.value.error.code == "OperationPreempted"
    azure.advance(20)
    assert azure.all_vms() == []


def test_what_is_locked_is_not_deleted(azure: FakeArm, compute: Any) -> None:
    begin(compute, "a")
    azure.lock_scope(azure.vm("a").id)
    assert refusal(compute.virtual_machines.begin_delete, GROUP, "a") == (409, "ScopeLocked")
    azure.unlock_scope(azure.vm("a").id)
    compute.virtual_machines.begin_delete(GROUP, "a")


def test_the_console_is_read_where_boot_diagnostics_say(azure: FakeArm, compute: Any) -> None:
    import ssl
    import urllib.request

    begin(compute, "a")
    azure.write_console("a", "it boots\n")
    place = compute.virtual_machines.retrieve_boot_diagnostics_data(GROUP, "a").serial_console_log_blob_uri
    with urllib.request.urlopen(place, context=ssl.create_default_context(cafile=azure.ca_file)) as answer:
        assert answer.read() == b"it boots\n"


def test_eventual_consistency_is_of_listings_alone(compute: Any) -> None:
    """A GET shows what is; a listing shows it later."""
    with FakeArm(Settings(appears_ms=500, tags_ms=300, changes_ms=200), SetClock()) as azure:
        compute = azure.compute()
        begin(compute, "a")
        azure.advance(20)
        assert (names(compute), compute.virtual_machines.get(GROUP, "a").name) == ([], "a")
        azure.advance(500)
        compute.virtual_machines.begin_update(GROUP, "a", {"tags": {"late": ""}})
        (seen,) = compute.virtual_machines.list_all()
        assert not seen.tags
        compute.virtual_machines.begin_delete(GROUP, "a")
        azure.advance(100)
        assert names(compute) == ["a"]
        with pytest.raises(ResourceNotFoundError):
            compute.virtual_machines.get(GROUP, "a")
        azure.advance(200)
        assert names(compute) == []


def test_many_are_listed_whole_and_made_into_json_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a VM is put together once, not by every list: the fake's own part is small."""
    made: list[str] = []
    real = documents._document

    def counted(estate: Estate, vm: Vm, *told: Any) -> dict[str, Any]:
        made.append(vm.name)
        return real(estate, vm, *told)

    monkeypatch.setattr(documents, "_document", counted)
    with FakeArm(Settings(), SetClock()) as azure:
        compute = azure.compute()
        crowd(azure, MANY)
        azure.advance(60_000)  # all of them run, and nothing changes any more
        made.clear()
        vms = f"{SUBNET.partition('/resourceGroups')[0]}/providers/Microsoft.Compute/virtualMachines"
        first = f"{vms}?api-version=2026-04-01&$expand=instanceView"
        link, found = first, 0
        while link:
            page = compute.send_request(HttpRequest("GET", link)).json()
            found, link = found + len(page["value"]), page.get("nextLink")
        assert found == len(azure.all_vms()) == MANY
        assert (len(made), len(set(made))) == (MANY, MANY)
        assert 0 < len(compute.send_request(HttpRequest("GET", first)).json()["value"]) < found
        assert len(made) == MANY
