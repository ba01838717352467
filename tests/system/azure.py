"""The fake Azure of all tests that run a dispatcher: at its end its inventory is what its dispatchers know."""

from __future__ import annotations

from typing import Any

from tests.fakes.arm import FakeArm, Settings
from tests.fakes.arm.records import Phase, Power
from tests.fakes.guests.host import name_of
from tests.system.watched import Inventory, Watched

#: Neither there for good, nor off for good.
_LIVING = frozenset({Phase.CREATING, Phase.UPDATING, Phase.SUCCEEDED})
_OFF = frozenset({Power.STOPPED, Power.DEALLOCATING, Power.DEALLOCATED})


class WatchedArm(Watched, FakeArm):
    """A fake Azure that knows its dispatchers, which call VMs by their names."""

    def __init__(self, *, patience_s: float = 20) -> None:
        super().__init__(Settings(starting_ms=300, deleting_ms=300))
        self.accounts: list[Any] = []
        self.patience_s = patience_s

    def inventory(self) -> Inventory:
        with self.lock:
            there, ever = self.all_vms(), self.estate.ever
            return Inventory(
                frozenset(vm.name for vm in there if vm.phase in _LIVING and vm.power not in _OFF),
                {vm.name: name_of(vm) for vm in there},
                frozenset(vm.name for vm in ever if vm.running_ms),
                frozenset(vm.name for vm in ever),
                tuple(part.id for part in self.estate.parts.values() if not self.estate.user(part)),
            )
