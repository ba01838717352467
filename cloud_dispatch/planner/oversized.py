"""Instances that are much larger than what they do. Owns when one of them costs more than smaller ones in its place.

Small tasks that keep coming would keep it alive for ever, and it is paid for as a whole. Nobody knows for how long they
will come: for as long again as they have is what is counted with. So what a smaller one saves in that time has to be
more than its boot costs, and more than both cost while what runs ends on the larger one.

Nothing is rented before something waits, so that a smaller one has to be sure to be had then. It is not where it failed
when it was last tried; nor where something else did that costs so little that the price factor forbids what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Catalogue, Kind, Shelf
from cloud_dispatch.planner.needs import Need, fit_empty
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.plan import Drain
from cloud_dispatch.planner.preempted import EVEN
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot, Supply

_S = InstanceState
_LEAVING = (_S.DRAINING, _S.DRAINED)


class Oversized:
    """Which of the supply they are, by what one catalogue offers in their place."""

    def __init__(
        self, snapshot: Snapshot, pools: Mapping[PoolName, Pool], capacity: Capacity, needs: Sequence[Need],
        catalogue: Catalogue, ledger: Ledger, pricing: Pricing,
    ) -> None:  # fmt: skip
        self._snapshot, self._pools, self._capacity, self._needs = snapshot, pools, capacity, needs
        self._catalogue, self._ledger, self._pricing = catalogue, ledger, pricing
        self._shelves: dict[Labels, tuple[Shelf, Sequence[Kind]]] = {}
        self._instead: dict[tuple[object, ...], tuple[int, Kind] | None] = {}

    def drains(self, surplus: Mapping[PoolName, int]) -> Iterator[Drain]:
        """The dearest one of each pool that has a `surplus`, and none where another one is about to leave: what comes
        next shows whether the others are large enough without it."""
        snapshot = self._snapshot
        if snapshot.stop.launches:
            return
        seen = {alike[0].pool for alike in snapshot.alike if alike[0].state in _LEAVING}
        able = [s for alike in snapshot.alike if self._is_able(alike[0]) for s in alike if self._is_due(s)]
        for supply in sorted(able, key=lambda s: (-(s.rate or 0), s.slack_since_ms or 0, s.instance)):
            if supply.pool in seen or surplus[supply.pool] <= 0:
                continue
            smaller = self._smaller(supply)
            if smaller is not None:
                seen.add(supply.pool)
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
        if key not in self._instead:
            self._instead[key] = self._cheapest(supply)
        found = self._instead[key]
        if found is None:
            return None
        price, kind = found
        offering = kind.stock.first
        change_ms = max(kind.pace.boot_ms + max(supply.free_ms - self._snapshot.now_ms, 0), offering.minimum_ms)
        saved = ((supply.rate or 0) - price) * self._slack_ms(supply)
        return offering if saved > price * change_ms else None

    def _cheapest(self, supply: Supply) -> tuple[int, Kind] | None:
        """Of what runs each task of `supply`: that of which as many as hold half of what fits there cost least, with
        what they cost. Where VMs are preempted that is what work costs there."""
        needs = [Need(-1 - number, DemandItem(shape, 1)) for number, shape in enumerate(supply.shapes)]
        labels = tuple(sorted({label for shape in supply.shapes for label in shape.labels}))
        sure, unsure = self._sure_and_unsure(labels)
        at_most = self._at_most(unsure, needs)
        best: tuple[int, int, Kind] | None = None
        for kind in sure.front:
            if kind.rate is None or not _is_smaller(kind, supply):
                continue
            if kind.rate <= at_most.get(kind.pool.name, kind.rate) and _runs(kind, needs):
                count = _holding_half(kind, supply)
                price = count * kind.rate * kind.weight() // EVEN
                if 0 < count <= self._room(kind) and (best is None or (price, kind.number) < best[:2]):
                    best = (price, kind.number, kind)
        return best and (best[0], best[2])

    def _sure_and_unsure(self, labels: Labels) -> tuple[Shelf, Sequence[Kind]]:
        """What carries `labels` without what did not come about when it was last tried, which may cover others; and
        that, with what can't be had now."""
        found = self._shelves.get(labels)
        if found is None:
            shelf = self._catalogue.shelf(labels)
            gone = {kind for kind in shelf.kinds if not self._catalogue.is_sure(kind)}
            left = Shelf([kind for kind in shelf.kinds if kind not in gone], {}) if gone else shelf
            found = self._shelves[labels] = left, [*shelf.dimmed, *gone]
        return found

    def _at_most(self, unsure: Sequence[Kind], needs: Sequence[Need]) -> Mapping[PoolName, int]:
        """What may be paid beside what of `unsure` runs any of `needs`, by pool."""
        found: dict[PoolName, int] = {}
        for kind in unsure:
            listed = self._pricing.listed(kind)
            if listed is not None and any(_runs(kind, (need,)) for need in needs):
                pool = kind.pool
                most = listed * pool.price_factor_percent // 100
                found[pool.name] = min(found.get(pool.name, most), most)
        return found

    @cached_property
    def _living(self) -> Counter[PoolName]:
        """How many instances each pool has."""
        return Counter(supply.pool for alike in self._snapshot.alike for supply in alike)

    def _room(self, kind: Kind) -> int:
        """How many of `kind` may take a large one's place. Where caps leave fewer places than the pool has instances, a
        large one is worth more than what it does: small ones would take the places of what a burst wants."""
        places = self._ledger.room(kind.pool, kind.profile, 0) - self._living[kind.pool.name]
        return min(self._pricing.room(kind), places)


def _runs(kind: Kind, needs: Iterable[Need]) -> bool:
    return all(kind.serves(need) and fit_empty(kind.room, need) > 0 for need in needs)


def _is_smaller(kind: Kind, supply: Supply) -> bool:
    """Whether it has less of something than `supply`, and more of nothing. One of the same size costs less on one day
    and more on another: it would be rented, and left again, for as long as prices move."""
    had = supply.machine.capacity
    pairs = list(zip(kind.room, (had.cpus_milli, had.memory, had.disk, had.gpus), strict=False))
    return all(have <= had for have, had in pairs) and any(have < had for have, had in pairs)


def _holding_half(kind: Kind, supply: Supply) -> int:
    """How many of `kind` hold half of what fits on `supply`; 0 where they never do."""
    half = supply.machine.half()
    wanted = (half.cpus_milli, half.memory, half.disk, half.gpus, supply.load.tasks)
    pairs = [(want, have) for want, have in zip(wanted, kind.room, strict=True) if want]
    return max(-(-want // have) for want, have in pairs) if all(have > 0 for _, have in pairs) else 0
