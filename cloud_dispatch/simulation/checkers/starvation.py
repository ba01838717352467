"""No starvation: a task that fits, and that its payer can pay for, never waits behind one that does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.payer import NOBODY
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Shape, room_for
from cloud_dispatch.ports.store import ShapeDemand, Store
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.lives import Lives
from cloud_dispatch.simulation.scenario import Scenario
from cloud_dispatch.spend.payers import ClaimTerms, admitted, place_of, wanted_at
from cloud_dispatch.spend.standing import Standing

_SLACK_MS = 15_000
#: For clocks that are wrong.
_CLOCKS_MS = 180_000


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
        self._since, means = {}, Means(self.view.scenario, store)
        waiting = [demand for demand in store.waiting() if demand.refused or not demand.withheld]
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
                if room_for(row.machine, load, demand.shape, 1) and means.pay_for(row, demand, now):
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


class Means:
    """What payers can pay for at one moment, as a scenario limits them. Of what waits any of the first that are looked
    at will do, whichever of them the store looks at itself."""

    def __init__(self, scenario: Scenario, store: Store) -> None:
        self._store = store
        self._begins_ms = EPOCH_MS + scenario.begins_ms
        lifetimes = {pool.name: pool.end.lifetime_ms for pool in scenario.pools}
        self._terms = ClaimTerms(scenario.pace.lease_ms, lifetimes)

    @cached_property
    def _standing(self) -> Standing:
        return self._store.standing()

    def pay_for(self, row: Instance, demand: ShapeDemand, now_ms: int) -> bool:
        """Whether `demand` has a task that its payer can surely pay for on an instance, `now_ms` into the run."""
        if demand.payer == NOBODY:
            return True
        now = self._begins_ms + now_ms
        place, (holds, others_ms) = place_of(row, self._terms), self._store.finish_of(row.id, now)
        if isinstance(place, str) or place.last_ms <= now + _CLOCKS_MS or (holds and others_ms is None):
            return False
        later = replace(place, last_ms=place.last_ms + _CLOCKS_MS)
        for expected_ms, _ in demand.front:
            work_ms = expected_ms or self._store.typical_ms(demand.shape)
            finish_ms = max(now + work_ms + _CLOCKS_MS, others_ms or 0) if work_ms else None
            trying = not work_ms and self._store.trying(demand.payer)
            lease_ms = self._terms.lease_ms
            wanted = wanted_at(later, "", demand.payer, demand.shape, now, finish_ms, lease_ms)
            if not isinstance(admitted(self._standing, wanted, trying=trying), str):
                return True
        return False


def _least(shapes: Iterable[Shape]) -> Resources:
    """What is free on an instance that has room for any of `shapes` is at least this: most are full, and soon told."""
    asked = [shape.resources for shape in shapes]
    return Resources(
        min(one.cpus_milli for one in asked),
        min(one.memory for one in asked),
        min(one.disk for one in asked),
        min(one.gpus for one in asked),
    )
