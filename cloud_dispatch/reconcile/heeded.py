"""The hard ends that providers heed: those that VMs wear. Owns what is known of them without a store: from listings,
from the answers of launches, and from what was told since."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.spi import Vm


class Heeded:
    """By VM, in ms since the epoch. A restart knows nothing, and the first listing says it all."""

    def __init__(self) -> None:
        self._ends: dict[VmId, int] = {}
        self._told: dict[VmId, int] = {}  # when, by the monotonic clock

    def of(self, vm: VmId) -> int | None:
        """The end that the VM's provider heeds; None where nobody has seen it."""
        return self._ends.get(vm)

    def told(self, vms: Iterable[VmId], ends_ms: int, now: int) -> None:
        """Their provider has answered, at `now` of the monotonic clock, that it heeds this end."""
        for vm in vms:
            self._ends[vm], self._told[vm] = ends_ms, now

    def seen(self, vms: Iterable[Vm], started: int, consistency_ms: int) -> None:
        """`vms` as they were read by a call that began at `started`. What was told since, or so shortly before that the
        provider may not show it yet, is known better."""
        for vm in vms:
            told = self._told.get(vm.id)
            if told is not None and started < told + consistency_ms:
                continue
            facts = tags.decode(vm.tags)
            if facts is not None:
                self._ends[vm.id] = facts.ends_ms

    def knows_more_than(self, vms: int) -> bool:
        """Whether so many are known that it is time to forget some."""
        return max(len(self._ends), len(self._told)) > vms

    def keep_only(self, vms: Collection[VmId]) -> None:
        """Forget the others."""
        self._ends = {vm: ends_ms for vm, ends_ms in self._ends.items() if vm in vms}
        self._told = {vm: at for vm, at in self._told.items() if vm in vms}
