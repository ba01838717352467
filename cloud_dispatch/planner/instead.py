"""What would do the work of an instance for less. Owns that it is sure to be had, and what it costs.

Nothing is rented before something waits, so that what comes in the place of an instance has to be sure to be had then.
It is not where it failed when it was last tried; nor where something else did that costs so little that the price
factor forbids what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.shape import Labels, Shape
from cloud_dispatch.planner.catalogue import Catalogue, Kind, Shelf
from cloud_dispatch.planner.needs import Need, useful_slots
from cloud_dispatch.planner.preempted import EVEN
from cloud_dispatch.planner.pricing import FINE, Pricing
from cloud_dispatch.planner.snapshot import DemandItem

#: What so many of a kind cost together an hour, its number, the kind, how many. Where VMs are preempted the price is
#: what work costs there.
Offer = tuple[int, int, Kind, int]


class Instead:
    """What one catalogue offers in the place of what is rented."""

    def __init__(self, catalogue: Catalogue, pricing: Pricing) -> None:
        self._catalogue, self._pricing = catalogue, pricing
        self._shelves: dict[Labels, tuple[Shelf, Sequence[Kind]]] = {}
        self._most: dict[tuple[Labels, Need], dict[PoolName, tuple[int, int]]] = {}
        self._needs: dict[Shape, Need] = {}

    def ranked(self, labels: Labels, count: Callable[[Kind], int], work_ms: int = 0) -> list[Offer]:
        """What carries `labels` and of which there is a `count`, 0 being none, the cheapest first. `work_ms`: how long
        tasks take that would be preempted."""
        sure, _ = self._sure_and_unsure(labels)
        found = []
        for kind in sure.front:
            many = count(kind) if kind.rate is not None else 0
            if many > 0:
                found.append((many * (kind.rate or 0) * kind.weight(work_ms) // EVEN, kind.number, kind, many))
        return sorted(found, key=itemgetter(0, 1))

    def first(self, ranked: Iterable[Offer], labels: Labels, needs: Sequence[Need]) -> Offer | None:
        """The first of those `ranked` for `labels` that runs each of `needs`, and that the price factor allows."""
        for offer in ranked:
            kind = offer[2]
            if all(_slots(kind, need) > 0 and self._is_allowed(kind, labels, need) for need in needs):
                return offer
        return None

    def need(self, shape: Shape) -> Need:
        """A task of `shape` that runs already."""
        found = self._needs.get(shape)
        if found is None:
            found = self._needs[shape] = Need(-1, DemandItem(shape, 1))
        return found

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

    def _is_allowed(self, kind: Kind, labels: Labels, need: Need) -> bool:
        """Whether the price factor allows `kind` beside what of the unsure runs `need`, for one task and for all."""
        most = self._at_most(labels, need).get(kind.pool.name)
        rate = kind.rate or 0
        return most is None or (rate <= most[0] and rate * FINE <= most[1] * _slots(kind, need))

    def _at_most(self, labels: Labels, need: Need) -> Mapping[PoolName, tuple[int, int]]:
        """What may be paid, by pool, beside what of the unsure runs `need`: for all of a machine, and a slot."""
        found = self._most.get((labels, need))
        if found is None:
            found = self._most[labels, need] = {}
            for kind in self._sure_and_unsure(labels)[1]:
                listed, slots = self._pricing.listed(kind), _slots(kind, need)
                if listed is not None and slots > 0:
                    pool = kind.pool
                    most = listed * pool.price_factor_percent // 100
                    whole, each = found.get(pool.name, (most, most * FINE))
                    found[pool.name] = min(whole, most), min(each, most * FINE // slots)
        return found


def labels_of(shapes: Iterable[Shape]) -> Labels:
    """All that `shapes` ask for."""
    return tuple(sorted({label for shape in shapes for label in shape.labels}))


def _slots(kind: Kind, need: Need) -> int:
    """How many of the tasks of `need` one of `kind` has slots for."""
    return min(useful_slots(kind.room, need, kind.pace), need.item.count) if kind.serves(need) else 0


def holding(wanted: Iterable[int], kind: Kind) -> int:
    """How many of `kind` hold what is `wanted`, in the order of its room; 0 where they never do."""
    pairs = [(want, have) for want, have in zip(wanted, kind.room, strict=True) if want]
    return max(-(-want // have) for want, have in pairs) if all(have > 0 for _, have in pairs) else 0
