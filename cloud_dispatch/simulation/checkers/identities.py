"""P7, as far as its parts exist: a VM becomes an instance of its own batch, and nobody else's."""

from __future__ import annotations

from cloud_dispatch.domain.ids import InstanceId, slot_of
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.ports import TrueVm


class Identities(Checker):
    """Admissions against what the clouds know of the VMs."""

    name = "P7 identities"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._vm_of: dict[str, str] = {}
        self._instance_of: dict[str, str] = {}
        self._holders: dict[int, str] = {}
        self._bound: dict[str, str] = {}

    def committed(self, commit: Commit) -> None:
        for row in commit.instances:
            if row.vm:
                self._bind(row)
        for live in commit.live:
            if live.token is not None and live.instance is not None:
                self._holders[live.token] = live.instance

    def _bind(self, row: Instance) -> None:
        """A VM is one instance until that is gone: two would be paid for one VM, and another VM by nobody."""
        other = self._bound.get(row.vm)
        if row.state is InstanceState.GONE:
            if other == row.id:
                del self._bound[row.vm]
        elif self._bound.setdefault(row.vm, row.id) != row.id:
            self.find(f"VM {row.vm} is {other}, and {row.id} too")

    def process_started(self, process: Process) -> None:
        holder = self._holders.pop(process.token, None)
        row = self.view.store.by_vm(process.vm.id) if self.view.store is not None else None
        if holder is not None and row is not None and row.id != holder:
            self.find(f"task {process.task} was handed to {holder} and runs on VM {process.vm.id}, which is {row.id}")

    def registered(self, vm: TrueVm, instance: str) -> None:
        batch, slot = slot_of(InstanceId(instance))
        if batch != vm.batch:
            self.find(f"VM {vm.id} of batch {vm.batch} was admitted as {instance}")
        if vm.slot >= 0 and slot != vm.slot:
            self.find(f"VM {vm.id} is slot {vm.slot} and was admitted as {instance}")
        if self._vm_of.setdefault(instance, vm.id) != vm.id:
            self.find(f"VMs {self._vm_of[instance]} and {vm.id} were both admitted as {instance}")
        if self._instance_of.setdefault(vm.id, instance) != instance:
            self.find(f"VM {vm.id} was admitted as {self._instance_of[vm.id]} and as {instance}")

    def restored(self) -> None:
        self._vm_of.clear()
        self._instance_of.clear()
        self._bound.clear()
