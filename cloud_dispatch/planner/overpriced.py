"""Instances on demand whose work spot VMs would do. Owns when one of them costs more than spot VMs in its place.

They were rented for tasks that must not be preempted, or while there were no spot VMs. Others keep them alive for ever
as long as they keep coming; under a cap each holds the place of a spot VM as well. When tasks come again that need it
nobody knows: that they stay away for as long again as they have is what is counted with. So what spot VMs save in that
time has to be more than their boot, than both while what runs ends, and than a boot of another one like it; where more
is billed at least, more than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.planner.bins import Host
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Kind
from cloud_dispatch.planner.instead import Instead, Offer, holding, labels_of
from cloud_dispatch.planner.needs import Need, fit_empty
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.plan import Drain
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.snapshot import Snapshot, Supply

_S = InstanceState
_AT_WORK = (_S.IDLE, _S.BUSY)
_LEAVING = (_S.DRAINING, _S.DRAINED, _S.TERMINATING)
_CHANGING = (_S.INTENDED, _S.LAUNCHING, _S.BOOTING, *_LEAVING)
#: So many go at once: one of so many at work, at least one, and no more than so many.
_ONE_OF = 10
_MOST_AT_ONCE = 10


class Overpriced:
    """Which of the supply they are, by what would do `instead`."""

    def __init__(
        self, snapshot: Snapshot, pools: Mapping[PoolName, Pool], capacity: Capacity, needs: Sequence[Need],
        instead: Instead, ledger: Ledger, pricing: Pricing,
    ) -> None:  # fmt: skip
        self._snapshot, self._pools, self._capacity, self._needs = snapshot, pools, capacity, needs
        self._instead, self._ledger, self._pricing = instead, ledger, pricing
        self._known: dict[Host, Sequence[Need] | None] = {}
        self._offers: dict[tuple[object, ...], Sequence[Offer]] = {}
        self._leaving: set[InstanceId] = set()
        self._exchanged: Counter[PoolName] = Counter()

    def drains(self, surplus: dict[PoolName, int], going: Collection[InstanceId]) -> Iterator[Drain]:
        """Some of each pool that has a `surplus`, from which they are taken, beside who is `going` anyway: the dearest,
        and of these who is free first. None where as many are on their way out or in: whether spot VMs can be had is
        known then."""
        snapshot = self._snapshot
        self._leaving.update(going)
        able = [s for alike in snapshot.alike if self._is_able(alike[0]) for s in alike if self._is_due(s)]
        left = {pool: self._at_once(pool) for pool in {supply.pool for supply in able}}
        for supply in sorted(able, key=lambda s: (-(s.rate or 0), s.free_ms, s.spot_since_ms or 0, s.instance)):
            if min(left[supply.pool], surplus[supply.pool]) <= 0 or supply.instance in self._leaving:
                continue
            found = self._spot(supply)
            if found is not None:
                left[supply.pool] -= 1
                surplus[supply.pool] -= 1
                self._exchange(supply, *found)
                what, seconds = f"{found[0].stock.first.type.name} on the spot market", self._since_ms(supply) // 1000
                reason = f"all that it did for {seconds}s may be preempted: {what} costs less for that"
                yield Drain(supply.instance, "overpriced", reason)

    def _at_once(self, pool: PoolName) -> int:
        """How many of `pool` may go now, less those on their way."""
        at_work = changing = 0
        for alike in self._snapshot.alike:
            if alike[0].pool == pool:
                leaving = sum(one.instance in self._leaving for one in alike) if self._leaving else 0
                at_work += len(alike) if alike[0].state in _AT_WORK else 0
                changing += len(alike) if alike[0].state in _CHANGING else leaving
        return min(max(at_work // _ONE_OF, 1), _MOST_AT_ONCE) - changing

    def _exchange(self, supply: Supply, kind: Kind, count: int) -> None:
        """So many of `kind` have the place of `supply` for the rest of this plan."""
        self._ledger.end(supply)
        self._pricing.take(kind, self._pricing.offering(kind), count)
        self._leaving.add(supply.instance)
        self._exchanged[supply.pool] += 1
        self._on_demand[supply.pool][supply.machine.capacity] -= 1
        self._offers.clear()

    def _is_able(self, one: Supply) -> bool:
        """Whether instances of its kind have something to do, all of which is done soon."""
        return one.state is _S.BUSY and not one.stays.tasks and self._snapshot.may_end(one)

    def _is_due(self, supply: Supply) -> bool:
        """Whether it has been so for as long as an instance idles before it goes."""
        return supply.spot_since_ms is not None and 0 < self._pools[supply.pool].end.idle_ms <= self._since_ms(supply)

    def _since_ms(self, supply: Supply) -> int:
        return self._snapshot.now_ms - (supply.spot_since_ms or 0)

    def _spot(self, supply: Supply) -> tuple[Kind, int] | None:
        """What does the same for so much less that it is worth the change, and that it may be changed back; and how
        many of it."""
        waiting = self._waiting(self._host(supply))
        if waiting is None or not all(shape.preemptible for shape in supply.shapes):
            return None
        labels = labels_of(supply.shapes)
        needs = [self._instead.need(shape) for shape in supply.shapes]
        found = self._instead.first(self._ranked(supply, labels, waiting), labels, needs)
        if found is None:
            return None
        price, _, kind, count = found
        rate, boot_ms, least_ms = supply.rate or 0, kind.pace.boot_ms, kind.stock.first.minimum_ms
        both_ms = max(supply.free_ms - self._snapshot.now_ms, 0)
        saved = (rate - price) * self._since_ms(supply)
        lost = price * max(boot_ms + both_ms, least_ms) + rate * max(boot_ms, least_ms)
        return (kind, count) if saved > lost else None

    def _host(self, supply: Supply) -> Host:
        return self._capacity.host(supply.machine, supply.declines)

    def _waiting(self, host: Host) -> Sequence[Need] | None:
        """What waits and could run there; None where that may not be preempted, or is rented for anyway."""
        if host not in self._known:
            waiting = [need for need in self._needs if host.can(need)]
            usual = all(need.shape.preemptible and not need.opened for need in waiting)
            self._known[host] = waiting if usual else None
        return self._known[host]

    def _ranked(self, supply: Supply, labels: Labels, waiting: Sequence[Need]) -> Sequence[Offer]:
        """Spot VMs that have the place of `supply`, run each of those `waiting` and hold as much as it does."""
        host = self._host(supply)
        key = (host, supply.pool, supply.profile, supply.vcpus, supply.work_ms, labels)
        if key in self._offers:
            return self._offers[key]

        def count(kind: Kind) -> int:
            many = holding(host.room, kind) if kind.spot else 0
            is_had = 0 < many <= self._pricing.room(kind) and (filled or self._room_beside(supply, kind, many))
            is_had = is_had and many * (1 + self._on_their_way[supply.pool]) <= self._pricing.quota(kind)
            return many if is_had and all(kind.is_paid_for(need) for need in waiting) else 0

        filled = not self._is_last(supply) and self._is_filled(supply.pool, host, waiting)
        self._ledger.end(supply)
        both = tuple(sorted({*labels, *labels_of(need.shape for need in waiting)}))
        work_ms = max([supply.work_ms, *(need.item.expected_ms for need in waiting)])
        found = self._instead.ranked(both, count, work_ms)
        found = [offer for offer in found if self._instead.first([offer], both, waiting)]
        self._ledger.end(supply, -1)
        self._offers[key] = found
        return found

    def _is_last(self, supply: Supply) -> bool:
        """Whether none is at work that is as large: without room for another one, tasks that must not be preempted
        would wait until spot VMs have nothing to do."""
        capacity = supply.machine.capacity
        there = self._on_demand[supply.pool].items()
        return sum(count for other, count in there if capacity.fits(other)) <= 1  # itself is one of them

    def _is_filled(self, pool: PoolName, host: Host, waiting: Sequence[Need]) -> bool:
        """Whether what waits, and nothing comes to soon, fills all that goes. Else what is rented for it is smaller,
        and where caps leave no place beside it small ones have the places of what a burst wants."""
        rooms = sum(need.left * 1000 // fit_empty(host.room, need) for need in waiting)
        return rooms >= 1000 * (1 + self._on_their_way[pool] + self._exchanged[pool])

    def _room_beside(self, supply: Supply, kind: Kind, many: int) -> bool:
        """Whether the caps have room for one like `supply` beside so many of `kind`."""
        self._ledger.take(kind.pool, kind.profile, kind.vcpus, many)
        room = self._ledger.room(self._pools[supply.pool], supply.profile, supply.vcpus)
        self._ledger.take(kind.pool, kind.profile, kind.vcpus, -many)
        return room > 0

    @cached_property
    def _on_their_way(self) -> Counter[PoolName]:
        """How many of each pool are on demand and about to go: nothing that comes for them counts in a quota yet."""
        found: Counter[PoolName] = Counter()
        for alike in self._snapshot.alike:
            if alike[0].market == Market.ON_DEMAND and alike[0].state in _LEAVING:
                found[alike[0].pool] += len(alike)
        return found

    @cached_property
    def _on_demand(self) -> Mapping[PoolName, Counter[Resources]]:
        """How many of each pool are on demand and take work, by what they have."""
        found: dict[PoolName, Counter[Resources]] = {pool: Counter() for pool in self._pools}
        for alike in self._snapshot.alike:
            one = alike[0]
            if one.market == Market.ON_DEMAND and one.state in _AT_WORK and self._snapshot.may_end(one):
                found[one.pool][one.machine.capacity] += sum(each.instance not in self._leaving for each in alike)
        return found
