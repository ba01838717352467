"""Between ARM's documents and ours: what a creation says, and what is read from a VM."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch_azure import catalogue, policy, translate
from cloud_dispatch_azure.catalogue import Sold
from cloud_dispatch_azure.driver import traits
from cloud_dispatch_azure.images import Image
from cloud_dispatch_azure.operations import Token
from tests.fakes.arm.settings import SUBSCRIPTION
from tests.providers.azure import scenes

IMAGE = Image("Canonical:ubuntu-24_04-lts:server:24.04.1", "x86_64")
SOLD = Sold(scenes.offering().type, frozenset({scenes.ZONE}), frozenset(Market), placement="CacheDisk")
SECRET = "#cloud-config\n# join-token\n"


def body(market: Market = Market.ON_DEMAND, image: Image = IMAGE, sold: Sold = SOLD, **more: Any) -> dict[str, Any]:
    return translate.vm_body(
        scenes.request(market), "b1-0", scenes.settings(**more), SECRET.encode(), image, sold, "/nics/b1-0-nic"
    )


def test_all_that_a_vm_holds_goes_with_it() -> None:
    """Disks and the interface by their delete options, in every shape; nothing on it may delete anything."""
    made = body(scratch=["100GiB", "1TiB"])
    facts = made["properties"]
    disks = [facts["storageProfile"]["osDisk"], *facts["storageProfile"]["dataDisks"]]
    nics = facts["networkProfile"]["networkInterfaces"]
    assert {one["deleteOption"] for one in disks} == {one["properties"]["deleteOption"] for one in nics} == {"Delete"}
    assert [one["diskSizeGB"] for one in disks] == [32, 100, 1024]
    assert "identity" not in made
    address = translate.nic_body(scenes.request(), scenes.settings(), "/ip")["properties"]["ipConfigurations"][0]
    assert address["properties"]["publicIPAddress"]["properties"] == {"deleteOption": "Delete"}


def test_a_vm_has_the_identity_that_is_named_and_no_other() -> None:
    who = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/w"
    assert body(identity=who)["identity"] == {"type": "UserAssigned", "userAssignedIdentities": {who: {}}}
    with pytest.raises(ValueError, match="identity"):
        scenes.settings(identity="worker")


def test_user_data_and_tags_travel() -> None:
    made = body(tags={"team": "batch"})
    assert base64.b64decode(made["properties"]["osProfile"]["customData"]) == SECRET.encode()
    assert made["tags"] == {"team": "batch", **scenes.TAGS}
    assert (made["location"], made["zones"]) == (scenes.REGION, ["1"])
    regional = replace(scenes.request(), offering=scenes.offering(zone=scenes.REGION))
    nowhere = translate.vm_body(regional, "b1-0", scenes.settings(), b"", IMAGE, SOLD, "n")
    assert "zones" not in nowhere


def test_spot_has_a_bid_that_is_rounded_down() -> None:
    assert "priority" not in body()["properties"]
    facts = body(Market.SPOT)["properties"]
    assert (facts["priority"], facts["evictionPolicy"], facts["billingProfile"]) == (
        "Spot",
        "Delete",
        {"maxPrice": 0.096},
    )
    assert body(Market.SPOT, eviction="deallocate")["properties"]["evictionPolicy"] == "Deallocate"
    dear = replace(scenes.request(Market.SPOT), offering=scenes.offering(market=Market.SPOT, max_rate=Rate(96_999_999)))
    made = translate.vm_body(dear, "b1-0", scenes.settings(), b"", IMAGE, SOLD, "n")
    assert made["properties"]["billingProfile"] == {"maxPrice": 0.09699}


def test_trusted_launch_where_size_and_image_can() -> None:
    assert body()["properties"]["securityProfile"]["securityType"] == "TrustedLaunch"
    for more in (
        {"trusted_launch": False}, {"image": replace(IMAGE, trusted=False)}, {"image": replace(IMAGE, generation="V1")},
        {"sold": replace(SOLD, trusted=False)},
    ):  # fmt: skip
        assert "securityProfile" not in body(**more)["properties"]


def test_an_ephemeral_disk_is_on_the_machine() -> None:
    disk = body(ephemeral=True)["properties"]["storageProfile"]["osDisk"]
    assert disk["diffDiskSettings"] == {"option": "Local", "placement": "CacheDisk"}
    assert (disk["caching"], disk["managedDisk"]) == ("ReadOnly", {"storageAccountType": "Standard_LRS"})


def test_images_are_named_as_arm_wants_them() -> None:
    assert IMAGE.reference["version"] == "24.04.1"
    assert Image("/subscriptions/x", "x86_64").reference == {"id": "/subscriptions/x"}
    assert "communityGalleryImageId" in Image("/communityGalleries/x", "x86_64").reference


@pytest.mark.parametrize(
    "more",
    [
        {"slots": 0, "instances": ()}, {"slots": 21}, {"instances": ()}, {"min_slots": 2},
        {"instances": (InstanceId("B_1"),)}, {"tags": {"a?": "b"}}, {"tags": {"a": "b" * 257}},
    ],
    ids=str,
)  # fmt: skip
def test_nonsense_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        translate.check(replace(scenes.request(), **more), b"", traits(scenes.settings()))


def arm(provisioning: str, power: str = "", **more: Any) -> dict[str, Any]:
    view = {"statuses": [{"code": f"ProvisioningState/{provisioning}"}]}
    if power:
        view["statuses"].append({"code": f"PowerState/{power}"})
    facts = {
        "provisioningState": provisioning, "hardwareProfile": {"vmSize": scenes.SIZE}, "instanceView": view,
        "timeCreated": "2026-11-22T12:00:00.1234567+00:00", **more,
    }  # fmt: skip
    return {
        "name": "b1-0",
        "location": scenes.REGION,
        "zones": ["2"],
        "tags": {"team": "x", **scenes.TAGS},
        "properties": facts,
    }


@pytest.mark.parametrize(
    ("provisioning", "power", "state"),
    [
        ("Creating", "", VmState.PENDING),
        ("Creating", "running", VmState.PENDING),
        ("Succeeded", "running", VmState.RUNNING),
        ("Succeeded", "", VmState.RUNNING),
        ("Succeeded", "stopped", VmState.STOPPED),
        ("Updating", "running", VmState.RUNNING),
        ("Succeeded", "deallocating", VmState.STOPPING),
        ("Succeeded", "deallocated", VmState.STOPPED),
        ("Failed", "", VmState.STOPPED),
        ("Failed", "running", VmState.RUNNING),
        ("Deleting", "running", VmState.STOPPING),
        ("SomethingNew", "", VmState.PENDING),
    ],
)  # fmt: skip
def test_what_state_a_vm_is_in(provisioning: str, power: str, state: VmState) -> None:
    """One that failed to be made, or shut itself down, is stopped: it bills, and is to be deleted."""
    found = translate.vm(arm(provisioning, power))
    assert found.state is state
    assert (found.id, found.slot, found.zone, found.created_ms) == ("b1-0", 0, f"{scenes.REGION}-2", 1_795_348_800_123)
    assert found.tags == scenes.TAGS


def test_an_evicted_vm_says_so() -> None:
    """Nobody of ours deallocates: a spot VM that is has been taken back; another has not."""
    assert translate.vm(arm("Succeeded", "deallocated", priority="Spot")).preempted
    assert not translate.vm(arm("Succeeded", "deallocated")).preempted
    assert not translate.vm(arm("Succeeded", "stopped", priority="Spot")).preempted


def test_an_operation_is_printable_and_holds_no_secret() -> None:
    token = Token.of("b1-0", "https://management.azure.com/operations/1", scenes.offering())
    assert token.encode().isprintable()
    assert Token.decode(token.encode()) == token
    assert token.offering.key == replace(scenes.offering(), profile="").key


def sku(name: str = scenes.SIZE, **more: Any) -> dict[str, Any]:
    said = {
        "vCPUs": "2", "MemoryGB": "8", "CpuArchitectureType": "x64", "LowPriorityCapable": "True",
        "HyperVGenerations": "V1,V2", **more.pop("capabilities", {}),
    }  # fmt: skip
    return {
        "name": name, "family": scenes.FAMILY, "resourceType": "virtualMachines", "locations": [scenes.REGION],
        "locationInfo": [{"location": "WestEurope", "zones": ["1", "2"]}], "restrictions": [],
        "capabilities": [{"name": key, "value": value} for key, value in said.items()], **more,
    }  # fmt: skip


def test_zones_that_the_subscription_is_kept_from_are_not_offered() -> None:
    kept = {"type": "Zone", "restrictionInfo": {"zones": ["1"]}, "reasonCode": "NotAvailableForSubscription"}
    where = catalogue.places(sku(restrictions=[kept]), scenes.settings())
    assert where == {f"{scenes.REGION}-2"}
    nowhere = {"type": "Location", "restrictionInfo": {"locations": ["westeurope"]}}
    assert catalogue.places(sku(restrictions=[nowhere]), scenes.settings()) == set()
    assert catalogue.places(sku(), scenes.settings(zones=["2", "3"])) == {f"{scenes.REGION}-2"}
    plain = [{"location": "westeurope", "zones": []}]
    assert catalogue.places(sku(locationInfo=plain), scenes.settings()) == {scenes.REGION}
    assert catalogue.places(sku(locationInfo=[]), scenes.settings()) == set()


def test_what_a_size_can_do_is_read() -> None:
    gpu = catalogue.size(
        sku("Standard_NC4as_T4_v3", capabilities={"GPUs": "1", "vCPUsAvailable": "4", "TrustedLaunchDisabled": "True"}),
        scenes.settings(),
    )
    assert gpu is not None
    assert (gpu.type.gpu_type, gpu.type.capacity.gpus, gpu.type.capacity.cpus_milli, gpu.trusted) == (
        "t4",
        1,
        4000,
        False,
    )
    small = {"EphemeralOSDiskSupported": "True", "CachedDiskBytes": str(30 * 2**30), "MaxResourceVolumeMB": "76800"}
    able = catalogue.size(sku(capabilities=small), scenes.settings())
    assert able is not None
    assert able.placement == "ResourceDisk"
    large = {**small, "CachedDiskBytes": str(50 * 2**30)}
    for said, placement in (
        ("ResourceDisk", "ResourceDisk"),
        ("CacheDisk, ResourceDisk", "CacheDisk"),
        ("NvmeDisk", ""),
    ):
        placed = catalogue.size(
            sku(capabilities={**large, "SupportedEphemeralOSDiskPlacements": said}), scenes.settings()
        )
        assert placed is not None
        assert placed.placement == placement
    assert (
        catalogue.size(
            sku(capabilities={"CpuArchitectureType": "Arm64"}), scenes.settings(images={"x86_64": "a:b:c:d"})
        )
        is None
    )
    assert catalogue.sold([sku()], scenes.settings(ephemeral=True)) == ()
    assert catalogue.size(sku(capabilities={"MemoryGB": "some"}), scenes.settings()) is None


@pytest.mark.parametrize(
    ("name", "cards", "kind", "gib"),
    [
        ("Standard_NV6ads_A10_v5", "1", "a10", 4),
        ("Standard_NV12ads_A10_v5", "1", "a10", 8),
        ("Standard_NV18ads_A10_v5", "1", "a10", 12),
        ("Standard_NV36ads_A10_v5", "1", "a10", 24),
        ("Standard_NV36adms_A10_v5", "1", "a10", 24),
        ("Standard_NV72ads_A10_v5", "2", "a10", 24),
        ("Standard_NV9ads_A10_v5", "1", "a10", 0),
        ("Standard_NV4as_v4", "1", "mi25", 2),
        ("Standard_NV32as_v4", "1", "mi25", 16),
        ("Standard_NV64as_v4", "1", "mi25", 0),
    ],
)
def test_a_part_of_a_card_has_the_memory_of_the_part(name: str, cards: str, kind: str, gib: int) -> None:
    """Azure counts it as one card; of a size that nobody knows the memory is not known."""
    sold = catalogue.size(sku(name, capabilities={"GPUs": cards}), scenes.settings())
    assert sold is not None
    assert (sold.type.gpu_type, sold.type.gpu_memory, sold.type.capacity.gpus) == (kind, gib * 2**30, int(cards))


def test_the_role_has_every_right_on_its_group_alone() -> None:
    """Changes are of the group; the subscription is only read; the network is only used."""
    said = policy.document(
        scenes.settings(security_group=scenes.SUBNET.partition("virtualNetworks")[0] + "networkSecurityGroups/x"),
        "lab",
        "west",
    )
    change, use, look = said["roles"]
    assert change["AssignableScopes"] == [
        f"/subscriptions/{scenes.fake.SUBSCRIPTION}/resourceGroups/{scenes.fake.GROUP}"
    ]
    assert all(action.endswith("/read") for action in look["Actions"])
    assert all(action.endswith(("/read", "/join/action")) for action in use["Actions"])
    assert "Microsoft.Network/publicIPAddresses/write" not in change["Actions"]
    assert "Microsoft.Network/publicIPAddresses/write" in policy.changes(scenes.settings(public_address=True))
    assert not [action for role in said["roles"] for action in role["Actions"] if "*" in action]
    assert json.dumps(said)
