"""Words that the tests of the fake Azure share."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from tests.fakes.arm import FakeArm, settings
from tests.fakes.arm.authority import RESOURCES
from tests.fakes.server import Request

SIZE = "Standard_D2s_v5"
USER = "worker"
_KEY = {"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 nobody"}
SUBNET = (
    f"/subscriptions/{settings.SUBSCRIPTION}/resourceGroups/{settings.GROUP}/providers/Microsoft.Network/virtualNetworks/"
    f"{settings.NETWORK}/subnets/{settings.SUBNET}"
)
SPOT: dict[str, Any] = {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1.0}}


def body(
    data: bytes = b"#cloud-config\n", *, size: str = SIZE, tags: Any = None, zones: Any = None, **more: Any
) -> Any:
    """A PUT of a VM with an interface, an address and a disk that go with it; `more` are properties."""
    address = {"name": "address", "sku": {"name": "Standard"}, "properties": {"deleteOption": "Delete"}}
    inner = {"subnet": {"id": SUBNET}, "publicIPAddressConfiguration": address}
    interface = {"primary": True, "deleteOption": "Delete", "ipConfigurations": [{"name": "ip", "properties": inner}]}
    properties = {
        "hardwareProfile": {"vmSize": size},
        "storageProfile": {
            "imageReference": {
                "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest",
            },
            "osDisk": {"createOption": "FromImage", "deleteOption": "Delete"},
        },
        "osProfile": {
            "computerName": "worker", "adminUsername": "worker", "customData": base64.b64encode(data).decode(),
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [_KEY]}},
        },
        "networkProfile": {
            "networkApiVersion": "2022-11-01",
            "networkInterfaceConfigurations": [{"name": "nic", "properties": interface}],
        },
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
    }  # fmt: skip
    made: dict[str, Any] = {"location": settings.LOCATION, "properties": {**properties, **more}}
    if tags:
        made["tags"] = tags
    if zones:
        made["zones"] = zones
    return made


def begin(compute: Any, name: str, wanted: Any = None, **more: Any) -> Any:
    """PUT a new VM; the poller comes back, and nothing is polled."""
    return compute.virtual_machines.begin_create_or_update(
        settings.GROUP, name, wanted or body(**more), etag="*", match_condition=MatchConditions.IfMissing
    )


def names(compute: Any, **more: Any) -> list[str]:
    """Of the VMs that a listing of all pages shows."""
    return [vm.name for vm in compute.virtual_machines.list_all(**more)]


def statuses(compute: Any, name: str) -> list[str]:
    """Codes of the instance view."""
    view = compute.virtual_machines.get(settings.GROUP, name, expand="instanceView").instance_view
    return [status.code for status in view.statuses]


def refusal(call: Any, *arguments: Any, **more: Any) -> tuple[int, str]:
    """Status and code with which a call is refused."""
    with pytest.raises(HttpResponseError) as caught:
        call(*arguments, **more)
    return caught.value.status_code or 0, caught.value.error.code


def crowd(azure: FakeArm, count: int) -> None:
    """So many VMs at once, by requests that no SDK makes and no wire carries."""
    token = azure.authority.issue("crowd", RESOURCES[0])["access_token"]
    wanted = json.dumps(body(tags={"deployment": "crowd"})).encode()
    group = f"/subscriptions/{settings.SUBSCRIPTION}/resourceGroups/{settings.GROUP}"
    for number in range(count):
        target = f"{group}/providers/Microsoft.Compute/virtualMachines/crowd{number}?api-version=2026-04-01"
        reply = azure.receive(Request("PUT", target, {"authorization": f"Bearer {token}"}, wanted))
        assert reply.status == 201, reply.body
