"""VMs as answers tell them. The text of a VM is kept until it changes: a listing of 10,000 is put together of it."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.arm.estate import Estate
from tests.fakes.arm.records import Condition, Vm, moment

#: What is told: all but the instance view, all with it, or how it runs alone.
PLAIN, VIEW, STATUS = "plain", "view", "status"


def text(
    estate: Estate,
    vm: Vm,
    condition: Condition,
    tags: dict[str, str] | None,
    form: str = PLAIN,
    *,
    listed: bool = False,
) -> str:
    """Its JSON. `tags` are those of a moment, None of one before there were any."""
    key = (condition, id(tags), form, listed)
    if key not in vm.cache:
        vm.cache[key] = json.dumps(_document(estate, vm, condition, tags, form, listed))
    return vm.cache[key]


def _document(
    estate: Estate, vm: Vm, condition: Condition, tags: dict[str, str] | None, form: str, listed: bool
) -> dict[str, Any]:  # fmt: skip
    identity = vm.id
    if listed and estate.settings.shouts:
        identity = identity.replace(f"/resourceGroups/{vm.group}/", f"/resourceGroups/{vm.group.upper()}/")
    told: dict[str, Any] = {
        "name": vm.name, "id": identity, "type": "Microsoft.Compute/virtualMachines", "location": vm.location,
    }  # fmt: skip
    state: dict[str, Any] = {"vmId": vm.vm_id, "provisioningState": condition.phase.value}
    if form != PLAIN:
        state["instanceView"] = view(vm, condition)
    if form == STATUS:
        return {**told, "properties": {"hardwareProfile": {"vmSize": vm.size.name}, **state}}
    properties = {**vm.properties, **state, "timeCreated": moment(vm.made_ms)}
    if tags:
        told["tags"] = tags
    return {**told, **vm.around, "etag": f'"{vm.etag}"', "properties": properties}


def view(vm: Vm, condition: Condition) -> dict[str, Any]:
    """The instance view."""
    told: dict[str, Any] = {"statuses": condition.statuses}
    if condition.power == "running":
        told |= {"computerName": vm.properties["osProfile"]["computerName"], "hyperVGeneration": "V2"}
    if vm.properties.get("diagnosticsProfile"):
        told["bootDiagnostics"] = {}
    return told
