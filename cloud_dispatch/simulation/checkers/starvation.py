"""No starvation: a task that fits never waits behind one that does not."""

from __future__ import annotations

from collections.abc import Iterable

from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape, room_for
from cloud_dispatch.ports.store import Store
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.lives import Lives

_SLACK_MS = 15_000


class Starvation(Checker):
    """An instance in contact with room for a waiting shape gets one of its tasks within a poll and a heartbeat."""

    name = "starvation"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._since: dict[tuple[str, str], int] = {}
        timing = view.scenario.timing
        self.bound_ms = timing.poll_ms + timing.heartbeat_ms + _SLACK_MS
        self._lives = Lives(view.scenario)
        #: Agents of these pools may have reasons of their own not to take more.
        self._reserved = frozenset(p.name for p in view.scenario.pools if p.end.max_tasks or p.health_checks)

    def look(self) -> None:
        store, healthy = self.view.store, self.view.healthy_since_ms
        if store is None or healthy is None:
            self._since.clear()
            return
        now, before = self.view.now_ms, self._since
        self._since = {}
        waiting = [demand for demand in store.waiting() if not demand.withheld]
        if not waiting:
            return
        least = _least(demand.shape for demand in waiting)
        loads = store.loads()
        for row in store.instances().values():
            load, capacity = loads[row.id], row.machine.capacity
            if capacity.cpus_milli - load.used.cpus_milli < least.cpus_milli:
                continue  # so are most, and this says it without making anything
            if not least.fits(capacity - load.used) or not self._takes_work(row):
                continue
            for demand in waiting:
                if not demand.count or self._lives.may_be_too_short(row, demand.shape, now):
                    continue
                if room_for(row.machine, load, demand.shape, 1):
                    since = self._since[row.id, demand.shape.key] = max(
                        before.get((row.id, demand.shape.key), now), healthy
                    )
                    self._judge(row, store, demand.shape.describe(), now - since)

    def _takes_work(self, row: Instance) -> bool:
        if row.state not in (InstanceState.IDLE, InstanceState.BUSY) or row.behaviour is not Behaviour.RUN:
            return False
        return row.pool not in self._reserved and row.vm in self.view.alive

    def _judge(self, row: Instance, store: Store, shape: str, waited_ms: int) -> None:
        if waited_ms > self.bound_ms:
            self.find(
                f"instance {row.id} ({row.state}) has room for {shape}, which waits, for {waited_ms} ms; it holds "
                f"{len(store.leases_of(row.id))} claims"
            )


def _least(shapes: Iterable[Shape]) -> Resources:
    """What is free on an instance that has room for any of `shapes` is at least this: most are full, and soon told."""
    asked = [shape.resources for shape in shapes]
    return Resources(
        min(one.cpus_milli for one in asked),
        min(one.memory for one in asked),
        min(one.disk for one in asked),
        min(one.gpus for one in asked),
    )
