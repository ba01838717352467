"""What could be rented now for a shape, cheapest first, and why the rest could not. Owns the ranking; every rule is the
planner's own: which pool rents what, what is shut, caps, quotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Catalogue, Kind
from cloud_dispatch.planner.needs import Need, Paces, fit_empty
from cloud_dispatch.planner.quotas import Quotas
from cloud_dispatch.planner.snapshot import DemandItem, Snapshot


class Offer(NamedTuple):
    """An offering that could be rented now, and the pools that may."""

    offering: Offering
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Excluded:
    """An offering that could not, and why: in each pool that differs."""

    offering: Offering
    why: str


_RATE = attrgetter("offering.rate")


def _together(offers: Iterable[Offer]) -> list[Offer]:
    """Each offering once, with all of its pools."""
    found: dict[int, Offer] = {}
    for one in offers:
        known = found.get(id(one.offering))
        found[id(one.offering)] = one if known is None else Offer(one.offering, known.pools + one.pools)
    return list(found.values())


class Ranking:
    """The offerings of a snapshot for one task of `shape`. `offers`: those that could be rented, the cheapest first,
    at last those whose price is not known. `unseen`: profiles of which nothing is known."""

    def __init__(self, snapshot: Snapshot, shape: Shape) -> None:
        self._snapshot = snapshot
        self._shape = shape
        self._ledger = Ledger(snapshot)
        self._quotas = Quotas(snapshot.quotas)
        self.offers = self._ranked()

    @cached_property
    def _catalogue(self) -> Catalogue:
        return Catalogue(self._snapshot, Paces())

    @property
    def unseen(self) -> tuple[ProfileName, ...]:
        return self._catalogue.unseen

    def _large_enough(self) -> Catalogue:
        """Without the types that are too small whatever the pool: no more has to be looked at for a ranking."""
        amounts = self._shape.resources
        cpus, memory = amounts.cpus_milli, amounts.memory
        offerings = tuple(
            one
            for one in self._snapshot.offerings
            if (has := one.type.capacity).cpus_milli >= cpus and has.memory >= memory
        )
        return Catalogue(replace(self._snapshot, offerings=offerings), Paces())

    def _ranked(self) -> list[Offer]:
        need = Need(0, DemandItem(self._shape, 1))
        found: list[Offer] = []
        unpriced: list[Offer] = []
        for kind in self._large_enough().kinds(self._shape.labels):
            if not kind.serves(need) or fit_empty(kind.room, need) <= 0:
                continue
            if self._ledger.room(kind.pool, kind.profile, kind.vcpus) <= 0:
                continue
            pools = (kind.pool,)
            found += [Offer(offering, pools) for offering in kind.stock.open]
            unpriced += [Offer(offering, pools) for offering in kind.stock.unpriced]
        if len(self._snapshot.pools) > 1:
            found, unpriced = _together(found), _together(unpriced)
        found.sort(key=_RATE)
        return found + unpriced

    def excluded(self) -> list[Excluded]:
        """All others, the cheapest first."""
        rentable = {id(one.offering) for one in self.offers}
        kinds: dict[int, list[Kind]] = {}
        for kind in self._catalogue.kinds(()):
            for offering in kind.stock.offerings:
                if id(offering) not in rentable:
                    kinds.setdefault(id(offering), []).append(kind)
        left = [one for one in self._snapshot.offerings if id(one) not in rentable]
        found = [Excluded(one, self._why(one, kinds.get(id(one), ()))) for one in left]
        return sorted(found, key=lambda one: (one.offering.rate is None, one.offering.rate or 0))

    def _why(self, offering: Offering, kinds: Iterable[Kind]) -> str:
        """In the words of `explain`."""
        said = dict.fromkeys(self._in_the_way(offering, kind) for kind in kinds)
        return "; ".join(filter(None, said)) or "; ".join(dict.fromkeys(self._not_rented(offering)))

    def _in_the_way(self, offering: Offering, kind: Kind) -> str:
        misfit = self._catalogue.host(kind.pool, offering).machine.misfit(self._shape)
        if misfit:
            return misfit
        shut = kind.stock.shut.get(id(offering))
        if shut is not None:
            return shut.why
        return self._ledger.why(kind.pool, kind.profile, kind.vcpus) or self._quotas.why(offering)

    def _not_rented(self, offering: Offering) -> Iterator[str]:
        for pool in self._snapshot.pools:
            if offering.profile not in pool.profiles:
                continue
            if offering.market not in pool.markets:
                yield f"pool {pool.name} does not rent on the {offering.market} market"
            else:
                yield f"pool {pool.name} does not allow type {offering.type.name}"
        if not any(offering.profile in pool.profiles for pool in self._snapshot.pools):
            yield f"no pool is of profile {offering.profile}"
