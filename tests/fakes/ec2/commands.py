"""What may be done to a fake EC2 in another process; within one, call the methods of `Cloud`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.control import Command
from tests.fakes.ec2.cloud import Cloud
from tests.fakes.ec2.records import Instance
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
        "inventory": lambda document: [told(vm) for vm in cloud.all_instances()],
        "leftovers": lambda document: cloud.leftovers(),
        "bill": lambda document: [vars_of(line) for line in cloud.bill()],
        "calls": lambda document: dict(cloud.calls),
        "problems": lambda document: {"unmodelled": cloud.unmodelled, "bugs": cloud.bugs},
        "interrupt": lambda document: cloud.interrupt(document["id"], document.get("notice_ms")),
        "rebalance": lambda document: cloud.rebalance(document["id"]),
        "shutdown": lambda document: cloud.guest_shutdown(document["id"]),
        "console": lambda document: cloud.write_console(document["id"], document["text"]),
        "hide": lambda document: cloud.hide(document["id"], document["ms"]),
        "kill": lambda document: cloud.kill(document["id"]),
    }


def vars_of(line: Any) -> dict[str, Any]:
    """The fields of a frozen value with slots."""
    return {name: getattr(line, name) for name in line.__slots__}


def told(vm: Instance) -> dict[str, Any]:
    """An instance as it really is."""
    return {
        "id": vm.id,
        "state": vm.state.value,
        "type": vm.type_name,
        "zone": vm.zone,
        "market": vm.market,
        "token": vm.reservation.token,
        "tags": vm.tags.true.items,
        "launched_ms": vm.launched_ms,
        "running_ms": vm.running_ms,
        "ended_ms": vm.ended_ms,
        "protected": vm.protected,
    }
