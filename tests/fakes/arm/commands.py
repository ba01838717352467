"""What may be done to a fake Azure in another process; within one, call the methods of `Cloud`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.arm.cloud import Cloud
from tests.fakes.arm.records import Vm
from tests.fakes.control import Command
from tests.fakes.faults import fault_of


def commands(cloud: Cloud) -> dict[str, Command]:
    """By name; each takes the rest of its document."""

    def add(document: Mapping[str, Any]) -> None:
        cloud.add_faults(*(fault_of(fault) for fault in document["faults"]))

    def deny(document: Mapping[str, Any]) -> None:
        cloud.denied.clear()
        cloud.denied.update(document["actions"])

    return {
        "faults": add,
        "clear-faults": lambda document: cloud.clear_faults(),
        "advance": lambda document: cloud.advance(document["ms"]),
        "deny": deny,
        "inventory": lambda document: [told(vm) for vm in cloud.all_vms()],
        "leftovers": lambda document: cloud.leftovers(),
        "bill": lambda document: [{name: getattr(line, name) for name in line.__slots__} for line in cloud.bill()],
        "calls": lambda document: dict(cloud.calls),
        "problems": lambda document: {"unmodelled": cloud.unmodelled, "bugs": cloud.bugs},
        "evict": lambda document: cloud.evict(document["id"], document.get("notice_ms")),
        "revoke": lambda document: cloud.authority.revoke(),
        "shutdown": lambda document: cloud.guest_shutdown(document["id"]),
        "console": lambda document: cloud.write_console(document["id"], document["text"]),
        "hide": lambda document: cloud.hide(document["id"], document["ms"]),
        "kill": lambda document: cloud.kill(document["id"]),
    }


def told(vm: Vm) -> dict[str, Any]:
    """A VM as it really is."""
    return {
        "id": vm.id,
        "name": vm.name,
        "phase": vm.phase.value,
        "power": vm.power.value,
        "type": vm.size.name,
        "zone": vm.place,
        "market": vm.market,
        "tags": vm.tags.true,
        "made_ms": vm.made_ms,
        "running_ms": vm.running_ms,
        "ended_ms": vm.ended_ms,
    }
