"""Between ARM's documents and ours: creations, VMs, tags, leftovers. Pure: no effects, no clock."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from cloud_dispatch.domain.ids import InstanceId, VmId, slot_of
from cloud_dispatch.domain.money import NANO_PER_DOLLAR, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.tags import PREFIX
from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import LaunchRequest, Leftover, LeftoverKind, Traits, Vm, VmState
from cloud_dispatch_azure.catalogue import Sold
from cloud_dispatch_azure.images import Image
from cloud_dispatch_azure.settings import GIB, AzureSettings

#: Custom data before base64 ("Custom data and cloud-init on Azure Virtual Machines").
MAX_USER_DATA = 65_535
#: Each slot is calls of its own; so many are made together.
MAX_BATCH = 20
_KEY, _VALUE = 512, 256
_NOT_IN_KEYS = frozenset("<>%&\\?/")
#: A Linux VM's name, which is its computer's too.
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_POWER = {
    "starting": VmState.PENDING,
    "running": VmState.RUNNING,
    "stopping": VmState.STOPPING,
    "stopped": VmState.STOPPED,
    "deallocating": VmState.STOPPING,
    "deallocated": VmState.STOPPED,
}
#: As long as nothing is known of its power.
_PROVISIONING = {
    "creating": VmState.PENDING,
    "updating": VmState.RUNNING,
    "succeeded": VmState.RUNNING,
    "migrating": VmState.RUNNING,
    "failed": VmState.STOPPED,
    "canceled": VmState.STOPPED,
    "deleting": VmState.STOPPING,
}


def check(request: LaunchRequest, user_data: bytes, traits: Traits) -> None:
    """InvalidRequest for what can be known to be wrong before anything is asked. `user_data`: as it is sent."""
    if not 1 <= request.slots <= MAX_BATCH:
        raise InvalidRequest(f"{request.slots} VMs in one launch (expected 1-{MAX_BATCH})")
    if len(set(request.instances)) != request.slots:
        raise InvalidRequest(f"{len(request.instances)} names for {request.slots} VMs")
    if request.min_slots != 1:
        raise InvalidRequest(f"min_slots = {request.min_slots}: each VM is a call of its own")
    if len(user_data) > traits.max_user_data:
        raise InvalidRequest(f"user data is {len(user_data)} bytes as it is sent, over {traits.max_user_data}")
    for instance in request.instances:
        if not NAME.fullmatch(instance):
            raise InvalidRequest(f"{instance!r} is no name of a VM")
    check_tags(request.tags)


def check_tags(tags: Mapping[str, str]) -> None:
    """InvalidRequest for tags that Azure does not take."""
    for key, value in tags.items():
        if not 1 <= len(key) <= _KEY or len(value) > _VALUE or _NOT_IN_KEYS & set(key):
            raise InvalidRequest(
                f"tag {key!r}: Azure takes keys of 1-{_KEY} characters without <>%&\\?/, values of {_VALUE}"
            )


def address_name(vm: str) -> str:
    return f"{vm}-ip"


def nic_name(vm: str) -> str:
    return f"{vm}-nic"


def number_of(zone: str) -> list[str]:
    """`eastus-1` is zone 1 of its region; a region's own name is no zone."""
    _, _, number = zone.partition("-")
    return [number] if number else []


def address_body(request: LaunchRequest, settings: AzureSettings) -> dict[str, Any]:
    """A public address of a VM's own."""
    return {
        "location": settings.region,
        "sku": {"name": "Standard"},
        "tags": {**settings.tags, **request.tags},
        **_zones(request),
        "properties": {
            "publicIPAllocationMethod": "Static",
            "publicIPAddressVersion": "IPv4",
            "deleteOption": "Delete",
        },
    }


def nic_body(request: LaunchRequest, settings: AzureSettings, address: str) -> dict[str, Any]:
    """The interface of a VM. `address`: the id of its public address, "" without."""
    within: dict[str, Any] = {
        "subnet": {"id": settings.subnet},
        "privateIPAllocationMethod": "Dynamic",
        "primary": True,
    }
    if address:
        within["publicIPAddress"] = {"id": address, "properties": {"deleteOption": "Delete"}}
    properties: dict[str, Any] = {"ipConfigurations": [{"name": "primary", "properties": within}]}
    if settings.security_group:
        properties["networkSecurityGroup"] = {"id": settings.security_group}
    if settings.accelerated_network:
        properties["enableAcceleratedNetworking"] = True
    return {"location": settings.region, "tags": {**settings.tags, **request.tags}, "properties": properties}


def vm_body(
    request: LaunchRequest, instance: str, settings: AzureSettings, user_data: bytes, image: Image, size: Sold, nic: str
) -> dict[str, Any]:
    """The VM of one slot. All that it holds goes with it. It has no identity but one that is named: nothing on it may
    delete anything."""
    offering = request.offering
    linux: dict[str, Any] = {"disablePasswordAuthentication": True, "provisionVMAgent": True}
    keys = settings.ssh_key or unused_key()
    path = f"/home/{settings.admin_user}/.ssh/authorized_keys"
    linux["ssh"] = {"publicKeys": [{"path": path, "keyData": keys}]}
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": offering.type.name},
        "storageProfile": {
            "imageReference": image.reference,
            "osDisk": _root(instance, settings, size),
            "dataDisks": _scratch(instance, settings),
        },
        "osProfile": {
            "computerName": instance,
            "adminUsername": settings.admin_user,
            "customData": base64.b64encode(user_data).decode("ascii"),
            "linuxConfiguration": linux,
        },
        "networkProfile": {
            "networkInterfaces": [{"id": nic, "properties": {"primary": True, "deleteOption": "Delete"}}]
        },
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }
    if settings.trusted_launch and size.trusted and image.trusted and image.generation == "V2":
        uefi = {"secureBootEnabled": True, "vTpmEnabled": True}
        properties["securityProfile"] = {"securityType": "TrustedLaunch", "uefiSettings": uefi}
    if offering.market is Market.SPOT:
        properties |= _spot(offering.max_rate, settings)
    return {
        "location": settings.region,
        "tags": {**settings.tags, **request.tags},
        **_zones(request),
        **_identity(settings),
        "properties": properties,
    }


def _identity(settings: AzureSettings) -> dict[str, Any]:
    named = settings.identity
    return {"identity": {"type": "UserAssigned", "userAssignedIdentities": {named: {}}}} if named else {}


def _zones(request: LaunchRequest) -> dict[str, Any]:
    zones = number_of(request.offering.zone)
    return {"zones": zones} if zones else {}


def _root(instance: str, settings: AzureSettings, size: Sold) -> dict[str, Any]:
    disk: dict[str, Any] = {
        "name": f"{instance}-root",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": -(-settings.root_size // GIB),
        "caching": "ReadWrite",
    }
    if settings.ephemeral:
        return {
            **disk,
            "caching": "ReadOnly",
            "diffDiskSettings": {"option": "Local", "placement": size.placement},
            "managedDisk": {"storageAccountType": "Standard_LRS"},
        }
    return {**disk, "managedDisk": _kept_on(settings)}


def _scratch(instance: str, settings: AzureSettings) -> list[dict[str, Any]]:
    return [
        {
            "lun": number,
            "name": f"{instance}-scratch-{number}",
            "createOption": "Empty",
            "deleteOption": "Delete",
            "diskSizeGB": -(-size // GIB),
            "caching": "None",
            "managedDisk": _kept_on(settings),
        }
        for number, size in enumerate(settings.scratch)
    ]


def _kept_on(settings: AzureSettings) -> dict[str, Any]:
    key = {"diskEncryptionSet": {"id": settings.disk_encryption_set}} if settings.disk_encryption_set else {}
    return {"storageAccountType": settings.disk_type, **key}


def _spot(max_rate: Rate | None, settings: AzureSettings) -> dict[str, Any]:
    """The bid is rounded down to the five digits that Azure takes: never more than what the money was reserved for."""
    price = -1 if max_rate is None else (max_rate * 100_000 // NANO_PER_DOLLAR) / 100_000
    policy = "Delete" if settings.eviction == "delete" else "Deallocate"
    return {"priority": "Spot", "evictionPolicy": policy, "billingProfile": {"maxPrice": price}}


@cache
def unused_key() -> str:
    """Azure wants a password or a key, and nobody needs either: a key whose other half is thrown away at once."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    public = ed25519.Ed25519PrivateKey.generate().public_key()
    made = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return made.decode("ascii")


def our_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """Those that the SPI knows; an operator's own, and Azure's, are not shown."""
    return {key: value for key, value in (tags or {}).items() if key.startswith(PREFIX)}


def statuses(view: Mapping[str, Any] | None) -> dict[str, str]:
    """The last word of each kind of status: {"PowerState": "running", ...}."""
    found: dict[str, str] = {}
    for one in (view or {}).get("statuses") or ():
        kind, _, rest = str(one.get("code") or "").partition("/")
        found[kind] = rest.partition("/")[0] if kind == "PowerState" else rest
    return found


def vm(found: Mapping[str, Any], view: Mapping[str, Any] | None = None) -> Vm:
    """A VM as ARM shows it. `view`: its instance view, where it is not part of the document."""
    facts = found.get("properties") or {}
    said = statuses(view or facts.get("instanceView"))
    provisioning = str(facts.get("provisioningState") or "").lower()
    power = said.get("PowerState", "").lower()
    spot = str(facts.get("priority") or "").lower() in ("spot", "low")
    name = str(found["name"])
    return Vm(
        id=VmId(name),
        state=_state(provisioning, power),
        type=str((facts.get("hardwareProfile") or {}).get("vmSize") or ""),
        zone=zone_of(found),
        tags=our_tags(found.get("tags")),
        created_ms=milliseconds(facts.get("timeCreated")),
        slot=_slot(name),
        spot=spot,
        # Nobody of ours deallocates: a spot VM that is has been evicted.
        preempted=spot and power in ("deallocating", "deallocated"),
        why=_why(view or facts.get("instanceView"), power),
    )


def _state(provisioning: str, power: str) -> VmState:
    """A guest that has shut down is stopped, and bills on; one that failed to be made is to be deleted as well."""
    if provisioning == "deleting":
        return VmState.STOPPING
    if provisioning == "creating":
        return VmState.PENDING
    if power in _POWER:
        return _POWER[power]
    return _PROVISIONING.get(provisioning, VmState.PENDING)


def _why(view: Mapping[str, Any] | None, power: str) -> str:
    for one in (view or {}).get("statuses") or ():
        if str(one.get("level") or "") == "Error":
            return str(one.get("message") or one.get("code") or "")
    return {"stopped": "the guest has shut down", "deallocated": "it was deallocated"}.get(power, "")


def zone_of(found: Mapping[str, Any]) -> str:
    region, zones = str(found.get("location") or "").lower(), found.get("zones") or ()
    return f"{region}-{zones[0]}" if zones else region


def _slot(name: str) -> int:
    try:
        return slot_of(InstanceId(name))[1]
    except ValueError:
        return -1


def leftover(found: Mapping[str, Any], kind: LeftoverKind) -> Leftover:
    """A disk, interface or address of no VM."""
    created = (found.get("properties") or {}).get("timeCreated")
    return Leftover(str(found["name"]), kind, zone_of(found), our_tags(found.get("tags")), milliseconds(created))


def idle_disks(found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in found if not one.get("managedBy") and not (one.get("managedByExtended") or ())]


def idle_nics(found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in found if not (one.get("properties") or {}).get("virtualMachine")]


def idle_addresses(found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those on nothing. One on an interface that is left over can't go before that: it is told once it can."""
    return [one for one in found if not (one.get("properties") or {}).get("ipConfiguration")]


def milliseconds(moment: object) -> int:
    """Of ARM's times, as text with up to seven digits of seconds, or as the SDK reads them."""
    if isinstance(moment, datetime):
        return int(moment.timestamp() * 1000)
    text = str(moment or "")
    if not text:
        return 0
    try:
        return int(datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp() * 1000)
    except ValueError:
        return 0
