"""Operations on what comes with VMs: disks, interfaces, addresses; and the network that there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.fakes.arm import hardware, models
from tests.fakes.arm.errors import ArmError
from tests.fakes.arm.hardware import ADDRESSES, DISKS, NICS
from tests.fakes.arm.launch import checked_tags
from tests.fakes.arm.records import Part
from tests.fakes.arm.routes import GROUP, SUBSCRIPTION, Answer, Session, route, unheeded
from tests.fakes.arm.settings import LOCATION, SECURITY_GROUP, SUBNET
from tests.fakes.arm.vms import check_locks

_NIC_HEEDS = frozenset({
    "location", "tags", "properties.ipConfigurations.name", "properties.ipConfigurations.properties.subnet",
    "properties.ipConfigurations.properties.publicIPAddress", "properties.ipConfigurations.properties.primary",
    "properties.ipConfigurations.properties.privateIPAllocationMethod", "properties.networkSecurityGroup",
    "properties.ipConfigurations.properties.privateIPAddressVersion",
    "properties.enableAcceleratedNetworking", "properties.enableIPForwarding",
})  # fmt: skip
_ADDRESS_HEEDS = frozenset({
    "location", "tags", "zones", "sku.name", "sku.tier", "properties.publicIPAllocationMethod",
    "properties.publicIPAddressVersion", "properties.deleteOption", "properties.idleTimeoutInMinutes",
})  # fmt: skip
_IN_USE = {
    NICS: ("NicInUse", "Network Interface {} is used by existing resource {}.", 400),
    ADDRESSES: ("PublicIPAddressCannotBeDeleted", "Public IP address {} can not be deleted: {} has it.", 400),
    DISKS: ("OperationNotAllowed", "Disk {} is attached to VM {}.", 409),
}  # fmt: skip


def _part(session: Session, kind: str) -> Part | None:
    found = session.estate.parts.get(session.path.lower())
    return found if found is not None and found.kind == kind else None


def _told(session: Session, part: Part, *, listed: bool = False) -> dict[str, Any]:
    """A part as answers tell it."""
    told = dict(part.document)
    properties = dict(told["properties"])
    holder = part.holder
    if holder and part.kind == NICS:
        vm = session.estate.vms.get(holder)
        properties["virtualMachine"] = {"id": vm.id if vm else holder}
    if holder and part.kind == ADDRESSES:
        nic = session.estate.parts[holder]
        properties["ipConfiguration"] = {"id": f"{nic.id}/ipConfigurations/ip"}
    told["properties"] = properties
    if listed and part.kind == DISKS and session.cloud.settings.shouts:
        before, group, after = told["id"].partition("/resourceGroups/")
        name, _, rest = after.partition("/")
        told["id"] = f"{before}{group}{name.upper()}/{rest}"
    return told


def _get(kind: str) -> Callable[[Session], Answer]:
    def get(session: Session) -> Answer:
        part = _part(session, kind)
        if part is None:
            raise ArmError("ResourceNotFound", f"The Resource '{session.path}' was not found.")
        return Answer(document=_told(session, part))

    return get


def _list(kind: str) -> Callable[[Session], Answer]:
    def listed(session: Session) -> Answer:
        group = session.at.get("group", "").lower()
        start = f"/subscriptions/{session.subscription.lower()}/resourcegroups/{group}" + ("/" if group else "")
        found = [part for key, part in session.estate.parts.items() if part.kind == kind and key.startswith(start)]
        seen = session.now - session.staleness_ms()
        shown = ((n, part) for n, part in enumerate(found, 1) if part.made_ms <= seen)
        return session.page((n, json.dumps(_told(session, part, listed=True))) for n, part in shown)

    return listed


def _delete(kind: str) -> Callable[[Session], Answer]:
    def delete(session: Session) -> Answer:
        part = _part(session, kind)
        if part is None:
            return Answer(204)
        check_locks(session.estate, part.id)
        if part.holder:
            code, message, status = _IN_USE[kind]
            raise ArmError(code, message.format(part.id, part.holder), status)
        operation = session.estate.operation(session.subscription, part.location)

        def gone() -> None:
            if session.estate.parts.get(part.id.lower()) is part:
                del session.estate.parts[part.id.lower()]
                for other in session.estate.parts.values():
                    if other.holder == part.id.lower():
                        other.holder = ""
            session.estate.finish(operation)

        session.estate.timers.after(session.cloud.settings.deleting_ms, gone)
        return session.accepted(operation)

    return delete


for _kind, _name in ((DISKS, "Disks"), (NICS, "NetworkInterfaces"), (ADDRESSES, "PublicIPAddresses")):
    _all, _within = ("List", "ListByResourceGroup") if _kind == DISKS else ("ListAll", "List")
    _path = f"{GROUP}/providers/{_kind}/{{part}}"
    route("GET", _path, f"{_name}_Get", f"{_kind}/read", queries=["$expand"])(_get(_kind))
    route("DELETE", _path, f"{_name}_Delete", f"{_kind}/delete")(_delete(_kind))
    route("GET", f"{GROUP}/providers/{_kind}", f"{_name}_{_within}", f"{_kind}/read", queries=["$skiptoken"])(
        _list(_kind)
    )
    route("GET", f"{SUBSCRIPTION}/providers/{_kind}", f"{_name}_{_all}", f"{_kind}/read",
          queries=["$skiptoken"])(_list(_kind))  # fmt: skip


def _made(session: Session, part: Part) -> Answer:
    session.estate.parts[part.id.lower()] = part
    operation = session.estate.operation(session.subscription, part.location)
    session.estate.finish(operation)
    return session.accepted(operation, 201, json.dumps(_told(session, part)))


def _check(session: Session, model: str, heeds: frozenset[str]) -> dict[str, Any]:
    models.check("network", model, session.body)
    passed_over = unheeded(heeds, session.body)
    if passed_over:
        raise session.unmodelled(f"the member {passed_over}")
    body: dict[str, Any] = session.body
    if str(body.get("location", "")).replace(" ", "").lower() not in session.cloud.settings.locations:
        raise ArmError(
            "LocationNotAvailableForResourceType", f"The location '{body.get('location')}' is not available."
        )
    return body


def _retagged(session: Session, kind: str, body: dict[str, Any]) -> Answer | None:
    """A PUT of what there is changes its tags alone."""
    known = session.estate.parts.get(session.path.lower())
    if known is None:
        return None
    if known.kind != kind:
        raise ArmError("Conflict", f"{session.path} is of another kind")
    known.tags = checked_tags(body.get("tags") or {})
    return Answer(document=_told(session, known))


@route("PUT", f"{GROUP}/providers/{NICS}/{{part}}", "NetworkInterfaces_CreateOrUpdate", f"{NICS}/write")
def put_interface(session: Session) -> Answer:
    body = _check(session, "NetworkInterface", _NIC_HEEDS)
    again = _retagged(session, NICS, body)
    if again is not None:
        return again
    number = session.estate.new_number("vm")
    told, address = hardware.interface_body(session, body.get("properties") or {}, number, session.at["part"])
    location = body["location"].replace(" ", "").lower()
    part = Part(NICS, session.path, location, told, checked_tags(body.get("tags") or {}), session.now)
    if address is not None:
        address.holder = part.id.lower()
    return _made(session, part)


@route("PUT", f"{GROUP}/providers/{ADDRESSES}/{{part}}", "PublicIPAddresses_CreateOrUpdate", f"{ADDRESSES}/write")
def put_address(session: Session) -> Answer:
    body = _check(session, "PublicIPAddress", _ADDRESS_HEEDS)
    again = _retagged(session, ADDRESSES, body)
    if again is not None:
        return again
    options = body.get("properties") or {}
    if (body.get("sku") or {}).get("name") != "Standard" or options.get("publicIPAllocationMethod") != "Static":
        raise ArmError("BasicSkuPublicIpAddressesRetired", "Addresses are of the SKU Standard, and static.", 400)
    location = body["location"].replace(" ", "").lower()
    number = session.estate.new_number("vm")
    part = hardware.address_part(session, session.at["part"], location, "", body["sku"], number)
    part.tags = checked_tags(body.get("tags") or {})
    part.dies = options.get("deleteOption") == "Delete"
    return _made(session, part)


# the network


@route("GET", f"{GROUP}/providers/Microsoft.Network/virtualNetworks/{{network}}/subnets/{{subnet}}", "Subnets_Get",
       "Microsoft.Network/virtualNetworks/subnets/read", queries=["$expand"])  # fmt: skip
def get_subnet(session: Session) -> Answer:
    known = session.estate.subnet_ids(session.subscription).get(session.path.lower())
    if known is None:
        raise ArmError("NotFound", f"The subnet '{session.path}' was not found.")
    return Answer(document=_subnet(known))


@route("GET", f"{GROUP}/providers/Microsoft.Network/virtualNetworks/{{network}}", "VirtualNetworks_Get",
       "Microsoft.Network/virtualNetworks/read", queries=["$expand"])  # fmt: skip
def get_network(session: Session) -> Answer:
    known = session.estate.network_id(session.subscription, session.at["group"])
    if known.lower() != session.path.lower():
        raise ArmError("ResourceNotFound", f"The Resource '{session.path}' was not found.")
    return Answer(document={
        "id": known, "name": known.rpartition("/")[2], "type": "Microsoft.Network/virtualNetworks",
        "location": LOCATION, "properties": {
            "provisioningState": "Succeeded", "addressSpace": {"addressPrefixes": ["10.0.0.0/8"]},
            "subnets": [_subnet(f"{known}/subnets/{SUBNET}")],
        },
    })  # fmt: skip


def _subnet(identity: str) -> dict[str, Any]:
    return {
        "id": identity, "name": SUBNET, "type": "Microsoft.Network/virtualNetworks/subnets",
        "properties": {"provisioningState": "Succeeded", "addressPrefix": "10.0.0.0/8"},
    }  # fmt: skip


@route("GET", f"{GROUP}/providers/Microsoft.Network/networkSecurityGroups/{{wall}}", "NetworkSecurityGroups_Get",
       "Microsoft.Network/networkSecurityGroups/read", queries=["$expand"])  # fmt: skip
def get_security_group(session: Session) -> Answer:
    known = session.estate.security_group_ids(session.subscription).get(session.path.lower())
    if known is None:
        raise ArmError("ResourceNotFound", f"The Resource '{session.path}' was not found.")
    return Answer(document={
        "id": known, "name": SECURITY_GROUP, "type": "Microsoft.Network/networkSecurityGroups", "location": LOCATION,
        "properties": {"provisioningState": "Succeeded", "securityRules": []},
    })  # fmt: skip
