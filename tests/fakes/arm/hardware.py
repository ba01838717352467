"""What comes with a VM: disks, interfaces, addresses. Owns their defaults and the members that tell of them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

from tests.fakes.arm.catalogue import Size
from tests.fakes.arm.errors import ArmError
from tests.fakes.arm.records import Part
from tests.fakes.arm.routes import Session
from tests.fakes.arm.settings import Image

DISKS, NICS = "Microsoft.Compute/disks", "Microsoft.Network/networkInterfaces"
ADDRESSES = "Microsoft.Network/publicIPAddresses"
SUBNETS, SECURITY_GROUPS = "Microsoft.Network/virtualNetworks/subnets", "Microsoft.Network/networkSecurityGroups"


def identity(session: Session, kind: str, name: str) -> str:
    """An id in the group of the request."""
    return f"/subscriptions/{session.subscription}/resourceGroups/{session.at['group']}/providers/{kind}/{name}"


def new_name(session: Session, stem: str) -> str:
    """A name that Azure makes up: nobody knows it beforehand."""
    number = session.estate.new_number("name")
    return f"{stem}{hashlib.blake2s(f'{stem}{number}'.encode()).hexdigest()[:8]}"


def network_of(
    session: Session, asked: Mapping[str, Any], location: str, zone: str, number: int
) -> tuple[list[Part], dict[str, Any], str]:
    """Interfaces and addresses of a VM, what its network profile tells, and its private address. The interfaces are
    there already, or are made with it."""
    profile = asked.get("networkProfile") or {}
    existing, wanted = profile.get("networkInterfaces") or [], profile.get("networkInterfaceConfigurations") or []
    if len(existing) + len(wanted) != 1:
        raise ArmError("InvalidParameter", "the fake gives a virtual machine one network interface")
    if existing:
        nic = _free_interface(session, existing[0])
        nic.dies = (existing[0].get("properties") or {}).get("deleteOption") == "Delete"
        return [nic], _profile([nic], existing), _private(nic)
    if not profile.get("networkApiVersion"):
        raise ArmError("InvalidParameter", "Required parameter 'networkProfile.networkApiVersion' is missing (null).")
    parts = _interface(session, wanted[0], location, zone, number)
    return parts, _profile(parts[:1], wanted), _private(parts[0])


def _free_interface(session: Session, reference: Mapping[str, Any]) -> Part:
    found = session.estate.parts.get(str(reference.get("id", "")).lower())
    if found is None or found.kind != NICS:
        raise ArmError(
            "InvalidResourceReference", f"Resource {reference.get('id')} referenced by resource was not found."
        )
    session.permit(f"{NICS}/join/action", found.id)
    if found.holder:
        raise ArmError("NicInUse", f"Network Interface {found.id} is used by existing resource {found.holder}.", 400)
    return found


def _profile(nics: list[Part], asked: list[dict[str, Any]]) -> dict[str, Any]:
    told = []
    for nic, one in zip(nics, asked, strict=True):
        given = one.get("properties") or {}
        more = {name: given[name] for name in ("primary", "deleteOption") if name in given}
        told.append({"id": nic.id, "properties": {"primary": True, **more}})
    return {"networkInterfaces": told}


def _private(nic: Part) -> str:
    address: str = nic.body["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
    return address


def _interface(session: Session, wanted: Mapping[str, Any], location: str, zone: str, number: int) -> list[Part]:
    """An interface made with its VM, first, and its address."""
    given = wanted.get("properties") or {}
    name = new_name(session, f"{wanted['name']}-")
    body, address = interface_body(session, given, number, name)
    nic = Part(
        NICS, identity(session, NICS, name), location, body, dict(wanted.get("tags") or {}), session.now,
        dies=given.get("deleteOption") == "Delete",
    )  # fmt: skip
    first = given["ipConfigurations"][0]
    public = (first.get("properties") or {}).get("publicIPAddressConfiguration")
    if public is None:
        return [nic]
    options = public.get("properties") or {}
    made = address_part(
        session, new_name(session, f"{public['name']}-"), location, zone, public.get("sku") or {}, number
    )
    made.tags.update(public.get("tags") or {})
    made.holder, made.dies = nic.id.lower(), options.get("deleteOption") == "Delete"
    nic.body["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] = {"id": made.id}
    assert address is None
    return [nic, made]


def interface_body(
    session: Session, given: Mapping[str, Any], number: int, name: str
) -> tuple[dict[str, Any], Part | None]:
    """The members of an interface, and the address that it names."""
    configurations = given.get("ipConfigurations") or []
    if len(configurations) != 1:
        raise ArmError("InvalidParameter", "the fake gives an interface one IP configuration")
    first = configurations[0].get("properties") or {}
    subnet = _known(session, session.estate.subnet_ids(session.subscription), first.get("subnet"))
    if subnet is None:
        raise ArmError("InvalidParameter", "the IP configuration names no subnet")
    session.permit(f"{SUBNETS}/join/action", subnet)
    group = _known(session, session.estate.security_group_ids(session.subscription), given.get("networkSecurityGroup"))
    if group:
        session.permit(f"{SECURITY_GROUPS}/join/action", group)
    address = None
    if first.get("publicIPAddress"):
        address = session.estate.parts.get(str(first["publicIPAddress"].get("id", "")).lower())
        if address is None:
            raise ArmError("InvalidResourceReference", f"{first['publicIPAddress']} was not found.")
        session.permit(f"{ADDRESSES}/join/action", address.id)
        if address.holder:
            raise ArmError("PublicIPAddressInUse", f"{address.id} is used already.", 400)
    told = {
        "privateIPAddress": f"10.{number // 62_500 % 250}.{number // 250 % 250}.{4 + number % 250}",
        "privateIPAllocationMethod": "Dynamic",
        "subnet": {"id": subnet},
        "primary": True,
        "privateIPAddressVersion": "IPv4",
    }
    if address is not None:
        told["publicIPAddress"] = {"id": address.id}
    properties: dict[str, Any] = {
        "provisioningState": "Succeeded",
        "ipConfigurations": [
            {"name": configurations[0]["name"], "properties": {**told, "provisioningState": "Succeeded"}}
        ],
        "enableAcceleratedNetworking": bool(given.get("enableAcceleratedNetworking")),
        "enableIPForwarding": bool(given.get("enableIPForwarding")),
        "macAddress": f"00-0D-3A-{number >> 16 & 255:02X}-{number >> 8 & 255:02X}-{number & 255:02X}",
        "nicType": "Standard",
    }
    if group:
        properties["networkSecurityGroup"] = {"id": group}
    return {"properties": properties}, address


def address_part(
    session: Session, name: str, location: str, zone: str, sku: Mapping[str, Any], number: int
) -> Part:  # fmt: skip
    """A public address."""
    properties = {
        "provisioningState": "Succeeded",
        "publicIPAllocationMethod": "Static",
        "publicIPAddressVersion": "IPv4",
        "ipAddress": f"20.{number // 62_500 % 250}.{number // 250 % 250}.{number % 250}",
    }
    body: dict[str, Any] = {"sku": {"name": sku.get("name", "Standard"), "tier": "Regional"}, "properties": properties}
    return Part(ADDRESSES, identity(session, ADDRESSES, name), location, body, {}, session.now)


def _known(session: Session, ids: Mapping[str, str], reference: Mapping[str, Any] | None) -> str | None:
    if not reference:
        return None
    found = ids.get(str(reference.get("id", "")).lower())
    if found is None:
        text = f"Resource {reference.get('id')} referenced by resource {session.path} was not found."
        raise ArmError("InvalidResourceReference", text, 400)
    return found


def disks_of(
    session: Session, asked: Mapping[str, Any], size: Size, image: Image, location: str, zone: str,
    tags: dict[str, str],
) -> tuple[list[Part], dict[str, Any]]:  # fmt: skip
    """The disks of a VM, and what its storage profile tells. An ephemeral disk is none of the account's resources."""
    storage = copy.deepcopy(dict(asked.get("storageProfile") or {}))
    disk = storage.get("osDisk")
    if disk is None or disk.get("createOption") != "FromImage":
        raise ArmError("InvalidParameter", "the fake makes disks of the operating system from images alone")
    gb = disk.get("diskSizeGB", image.disk_gb)
    if gb < image.disk_gb:
        raise ArmError("OperationNotAllowed", f"The specified disk size {gb} GB is smaller than that of the image.")
    disk["osType"], disk["diskSizeGB"] = "Linux", gb
    disk.setdefault("deleteOption", "Detach")
    disk.setdefault("name", new_name(session, f"{session.at['vm']}_OsDisk_1_"))
    image_reference = storage.get("imageReference") or {}
    if "version" in image_reference:
        image_reference["exactVersion"] = image.version
    if disk.get("diffDiskSettings"):
        _check_ephemeral(asked, disk, size, gb)
        disk["deleteOption"] = "Delete"
        return [], storage
    managed = disk.setdefault("managedDisk", {})
    kind = managed.setdefault("storageAccountType", "Premium_LRS")
    disk.setdefault("caching", "ReadWrite")
    parts = [_disk(session, disk, kind, gb, location, zone, tags)]
    for data in storage.get("dataDisks") or []:
        if data.get("createOption") != "Empty" or "diskSizeGB" not in data:
            raise session.unmodelled("a data disk that is not new")
        data.setdefault("name", new_name(session, f"{session.at['vm']}_disk{2 + data['lun']}_"))
        data.setdefault("deleteOption", "Detach")
        kind = data.setdefault("managedDisk", {}).setdefault("storageAccountType", "Premium_LRS")
        parts.append(_disk(session, data, kind, data["diskSizeGB"], location, zone, tags))
    return parts, storage


def _disk(
    session: Session, told: dict[str, Any], kind: str, gb: int, location: str, zone: str, tags: dict[str, str]
) -> Part:
    name = identity(session, DISKS, told["name"])
    session.permit(f"{DISKS}/write", name)
    told["managedDisk"]["id"] = name
    body: dict[str, Any] = {
        "sku": {"name": kind, "tier": kind.partition("_")[0]},
        "managedBy": session.path,
        "properties": {
            "diskSizeGB": gb, "diskState": "Attached", "provisioningState": "Succeeded",
            "creationData": {"createOption": told["createOption"]},
        },
    }  # fmt: skip
    if zone:
        body["zones"] = [zone]
    return Part(DISKS, name, location, body, dict(tags), session.now, dies=told["deleteOption"] == "Delete")


def _check_ephemeral(asked: Mapping[str, Any], disk: Mapping[str, Any], size: Size, gb: int) -> None:
    if disk["diffDiskSettings"].get("option") != "Local":
        raise ArmError("InvalidParameter", "The value of parameter diffDiskSettings.option is invalid.")
    if disk.get("caching") != "ReadOnly":
        raise ArmError("InvalidParameter", "Caching of an ephemeral OS disk is ReadOnly.")
    room = max(size.cache_gb, size.local_gb) if disk["diffDiskSettings"].get("placement") else size.cache_gb
    if disk["diffDiskSettings"].get("placement") == "ResourceDisk":
        room = size.local_gb
    if (asked.get("securityProfile") or {}).get("securityType") == "TrustedLaunch":
        room -= 1  # the guest's state
    if gb > room:
        raise ArmError("OperationNotAllowed", f"OS disk of Ephemeral VM with size greater than {room} GB is not "
                       f"allowed for VM size {size.name} when the DiffDiskPlacement is CacheDisk.")  # fmt: skip
    if asked.get("evictionPolicy", "Deallocate") != "Delete" and asked.get("priority") == "Spot":
        raise ArmError("OperationNotAllowed", "Eviction policy Deallocate is not supported with an ephemeral OS disk.")
