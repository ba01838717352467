"""What may be done to a fake Compute Engine in another process; within one, call the methods of `Cloud`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.fakes.control import Command
from tests.fakes.faults import fault_of
from tests.fakes.gce.records import Instance

if TYPE_CHECKING:
    from tests.fakes.gce.fake import FakeGce


def commands(fake: FakeGce) -> dict[str, Command]:
    """By name; each takes the rest of its document."""

    def add(document: Mapping[str, Any]) -> None:
        fake.add_faults(*(fault_of(fault) for fault in document["faults"]))

    def deny(document: Mapping[str, Any]) -> None:
        fake.denied.clear()
        fake.denied.update(document["permissions"])

    return {
        "faults": add,
        "clear-faults": lambda document: fake.clear_faults(),
        "advance": lambda document: fake.advance(document["ms"]),
        "deny": deny,
        "inventory": lambda document: [told(vm) for vm in fake.ever()],
        "leftovers": lambda document: fake.leftovers(),
        "bill": lambda document: [{name: getattr(line, name) for name in line.__slots__} for line in fake.bill()],
        "calls": lambda document: dict(fake.calls),
        "problems": lambda document: {"unmodelled": fake.unmodelled, "bugs": fake.bugs},
        "preempt": lambda document: fake.preempt(document["id"], document.get("notice_ms")),
        "shutdown": lambda document: fake.guest_shutdown(document["id"]),
        "console": lambda document: fake.write_console(document["id"], document["text"]),
        "hide": lambda document: fake.hide(document["id"], document["ms"]),
        "hold-address": lambda document: fake.hold_address(document["name"], labels=document.get("labels")),
        "kill": lambda document: fake.kill(document["id"]),
        "key": lambda document: fake.key,
        "revoke-tokens": lambda document: fake.tokens.revoke_all(),
    }


def told(vm: Instance) -> dict[str, Any]:
    """An instance as it really is; status "" once it is gone."""
    return {
        "id": vm.id,
        "name": vm.name,
        "status": vm.status,
        "type": vm.type_name,
        "zone": vm.zone,
        "market": vm.market,
        "request_id": vm.request_id,
        "labels": vm.labels,
        "created_ms": vm.created_ms,
        "running_ms": vm.running_ms,
        "ended_ms": vm.ended_ms,
        "protected": vm.protected,
        "preempted": vm.preempted,
    }
