"""P4: no launch is made past a cap, by the clouds' own count; P5: a batch of n slots makes at most n VMs."""

from __future__ import annotations

from collections.abc import Iterable

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.ports import TrueVm


class CapsKept(Checker):
    """P4 at the moment at which a VM comes into being. VMs that end count until they are gone."""

    name = "P4 caps"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._known: set[tuple[str, VmId, int]] = set()
        scenario = view.scenario
        self._pools = {pool.name: pool.caps for pool in scenario.pools}
        self._profiles = {account.profile: account.caps for account in scenario.accounts}
        self._drivers = scenario.driver_caps

    def vm_changed(self, vm: TrueVm) -> None:
        if vm.birth in self._known or vm.state is VmState.GONE:
            return
        self._known.add(vm.birth)
        alive = self.view.alive.values()
        self._check("everything", self.view.scenario.caps, alive)
        self._check(
            f"profile {vm.profile}",
            self._profiles.get(vm.profile, Caps()),
            (a for a in alive if a.profile == vm.profile),
        )
        for bound in self._drivers:
            if vm.profile in bound.profiles:
                self._check(f"driver {bound.driver}", bound.caps, (a for a in alive if a.profile in bound.profiles))
        pool = next((caps for name, caps in self._pools.items() if name == vm.pool), Caps())
        self._check(f"pool {vm.pool}", pool, (a for a in alive if a.pool == vm.pool))

    def _check(self, what: str, caps: Caps, alive: Iterable[TrueVm]) -> None:
        if caps == Caps():
            return
        vms = list(alive)
        if caps.instances is not None and len(vms) > caps.instances:
            self.find(f"{len(vms)} VMs live, the cap of {what} is {caps.instances}: {_named(vms)}")
        vcpus = sum(vm.vcpus for vm in vms)
        if caps.vcpus is not None and vcpus > caps.vcpus:
            self.find(f"{vcpus} vCPUs live, the cap of {what} is {caps.vcpus}: {_named(vms)}")


def _named(vms: list[TrueVm]) -> str:
    return ", ".join(f"{vm.id} {vm.state}" for vm in vms[:10])


class Batches(Checker):
    """P5: the VMs that ever came of a batch against the slots that were committed for it before."""

    name = "P5 batches"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._slots: dict[str, set[str]] = {}
        self._vms: dict[str, set[tuple[str, VmId, int]]] = {}

    def committed(self, commit: Commit) -> None:
        for instance in commit.instances:
            self._slots.setdefault(instance.batch, set()).add(instance.id)

    def vm_changed(self, vm: TrueVm) -> None:
        made = self._vms.setdefault(vm.batch, set())
        if vm.birth in made:
            return
        made.add(vm.birth)
        slots = len(self._slots.get(vm.batch, ()))
        if len(made) > slots:
            names = ", ".join(sorted(name for _, name, _ in made))
            self.find(f"batch {vm.batch} has {slots} slots and made {len(made)} VMs: {names}")
