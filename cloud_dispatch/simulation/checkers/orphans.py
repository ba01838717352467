"""P2: every VM that carries our tags is needed, or gone within a bounded time."""

from __future__ import annotations

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.ports.store import Store
from cloud_dispatch.simulation.checkers.base import Checker, View

_S = InstanceState
#: An instance in one of these states is on its way out.
_LEAVING = frozenset({_S.TERMINATING, _S.LOST, _S.FAILED, _S.DRAINED, _S.GONE})
_SLACK_MS = 60_000


class Orphans(Checker):
    """P2. Only time in which the dispatcher is up and nothing is broken counts towards the bound."""

    name = "P2 orphans"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._unneeded: dict[VmId, int] = {}
        timing = view.scenario.timing
        slowest = max(
            (a.settings.consistency_ms + a.settings.life.stop.most_ms for a in view.scenario.accounts), default=0
        )
        #: Three listings after the cloud's horizon, each as slow as a call may be, and the power-off.
        self.bound_ms = slowest + 3 * timing.list_interval_ms + 2 * timing.call_timeout_ms + _SLACK_MS

    def look(self) -> None:
        store, healthy = self.view.store, self.view.healthy_since_ms
        if store is None or healthy is None:
            return
        now, before = self.view.now_ms, self._unneeded
        unbound: dict[str, Instance] | None = None
        self._unneeded = {}
        for vm in self.view.alive.values():
            row = store.by_vm(vm.id)
            if row is None:
                unbound = _unbound(store) if unbound is None else unbound
                row = unbound.get(vm.batch)
            if row is not None and row.state not in _LEAVING:
                continue
            since = self._unneeded[vm.id] = max(before.get(vm.id, now), healthy)
            if now - since > self.bound_ms:
                row = store.by_vm(vm.id)
                self.find(
                    f"VM {vm.id} of batch {vm.batch} is {vm.state}, the store has "
                    f"{f'{row.id} {row.state}' if row else 'no row for it'} since {now - since} ms"
                )

    def end(self) -> None:
        """Pools that keep machines go on for ever: one of theirs may be ending just now, and the next one coming."""
        store, keeping = self.view.store, {pool.name for pool in self.view.scenario.pools if pool.minimum}
        coming = _unbound(store) if store is not None else {}
        for vm in self.view.alive.values():
            row = store.by_vm(vm.id) or coming.get(vm.batch) if store is not None else None
            if vm.pool in keeping and row is not None:
                continue
            if row is None or row.state in _LEAVING:
                self.find(f"VM {vm.id} of batch {vm.batch} is left, {vm.state}, at the end of the run")


def _unbound(store: Store) -> dict[str, Instance]:
    """A slot without a VM of each batch that has one: it may be any VM's of that batch."""
    return {row.batch: row for row in store.instances().values() if not row.vm}
