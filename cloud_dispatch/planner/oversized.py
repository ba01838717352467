"""Instances that are much larger than what they do. Owns when one of them costs more than smaller ones in its place.

Small tasks that keep coming would keep it alive for ever, and it is paid for as a whole. Nobody knows for how long they
will come: for as long again as they have is what is counted with. So what a smaller one saves in that time has to be
more than its boot costs, and more than both cost while what runs ends on the larger one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Kind
from cloud_dispatch.planner.instead import Instead, Offer, holding, labels_of
from cloud_dispatch.planner.needs import Need
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.plan import Drain
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.snapshot import Snapshot, Supply

_S = InstanceState
_LEAVING = (_S.DRAINING, _S.DRAINED)


class Oversized:
    """Which of the supply they are, by what would do `instead`."""

    def __init__(
        self, snapshot: Snapshot, pools: Mapping[PoolName, Pool], capacity: Capacity, needs: Sequence[Need],
        instead: Instead, ledger: Ledger, pricing: Pricing,
    ) -> None:  # fmt: skip
        self._snapshot, self._pools, self._capacity, self._needs = snapshot, pools, capacity, needs
        self._instead, self._ledger, self._pricing = instead, ledger, pricing
        self._offers: dict[tuple[object, ...], Sequence[Offer]] = {}
        self._found: dict[tuple[object, ...], Offer | None] = {}

    def drains(self, surplus: dict[PoolName, int], going: Collection[InstanceId]) -> Iterator[Drain]:
        """The dearest one of each pool that has a `surplus`, of which nothing is left then; none of those that are
        `going` anyway, nor where another one is about to leave: what comes next shows whether the others are large
        enough without it."""
        snapshot = self._snapshot
        seen = {alike[0].pool for alike in snapshot.alike if alike[0].state in _LEAVING}
        able = [s for alike in snapshot.alike if self._is_able(alike[0]) for s in alike if self._is_due(s)]
        for supply in sorted(able, key=lambda s: (-(s.rate or 0), s.slack_since_ms or 0, s.instance)):
            if supply.pool in seen or surplus[supply.pool] <= 0 or supply.instance in going:
                continue
            smaller = self._smaller(supply)
            if smaller is not None:
                surplus[supply.pool] = 0
                seconds = self._slack_ms(supply) // 1000
                reason = f"no more than half of it was used for {seconds}s: {smaller.type.name} costs less for that"
                yield Drain(supply.instance, "oversized", reason)

    def _is_able(self, one: Supply) -> bool:
        """Whether instances of its kind have something to do, all of which is done soon, and nothing that waits."""
        if one.state is not _S.BUSY or one.stays.tasks or not self._snapshot.may_end(one):
            return False
        host = self._capacity.host(one.machine, one.declines)
        return not any(host.can(need) for need in self._needs)

    def _is_due(self, supply: Supply) -> bool:
        """Whether it has been so for as long as an instance idles before it goes."""
        idle_ms = self._pools[supply.pool].end.idle_ms
        return supply.slack_since_ms is not None and 0 < idle_ms <= self._slack_ms(supply)

    def _slack_ms(self, supply: Supply) -> int:
        return self._snapshot.now_ms - (supply.slack_since_ms or 0)

    def _smaller(self, supply: Supply) -> Offering | None:
        """What does the same, and half as much as fits on `supply`, for so much less that it is worth the change."""
        key = (supply.machine.key, supply.shapes, supply.load.tasks)
        if key not in self._found:
            labels = labels_of(supply.shapes)
            needs = [self._instead.need(shape) for shape in supply.shapes]
            self._found[key] = self._instead.first(self._ranked(supply, labels), labels, needs)
        found = self._found[key]
        if found is None:
            return None
        price, _, kind, _ = found
        offering = kind.stock.first
        change_ms = max(kind.pace.boot_ms + max(supply.free_ms - self._snapshot.now_ms, 0), offering.minimum_ms)
        saved = ((supply.rate or 0) - price) * self._slack_ms(supply)
        return offering if saved > price * change_ms else None

    def _ranked(self, supply: Supply, labels: Labels) -> Sequence[Offer]:
        """What is smaller, in such numbers as hold half of what fits on `supply`: many run something else, and are the
        same to this."""
        half = supply.machine.half()
        wanted = (half.cpus_milli, half.memory, half.disk, half.gpus, supply.load.tasks)
        key = (supply.machine.capacity, wanted, labels)

        def count(kind: Kind) -> int:
            many = holding(wanted, kind) if _is_smaller(kind, supply) else 0
            return many if many <= self._room(kind) else 0

        if key not in self._offers:
            self._offers[key] = self._instead.ranked(labels, count)
        return self._offers[key]

    @cached_property
    def _living(self) -> Counter[PoolName]:
        """How many instances each pool has."""
        return Counter(supply.pool for alike in self._snapshot.alike for supply in alike)

    def _room(self, kind: Kind) -> int:
        """How many of `kind` may take a large one's place. Where caps leave fewer places than the pool has instances, a
        large one is worth more than what it does: small ones would take the places of what a burst wants."""
        places = self._ledger.room(kind.pool, kind.profile, 0) - self._living[kind.pool.name]
        return min(self._pricing.room(kind), places)


def _is_smaller(kind: Kind, supply: Supply) -> bool:
    """Whether it has less of something than `supply`, and more of nothing. One of the same size costs less on one day
    and more on another: it would be rented, and left again, for as long as prices move."""
    had = supply.machine.capacity
    pairs = list(zip(kind.room, (had.cpus_milli, had.memory, had.disk, had.gpus), strict=False))
    return all(have <= had for have, had in pairs) and any(have < had for have, had in pairs)
