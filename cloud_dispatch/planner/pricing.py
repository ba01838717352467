"""What an instance costs a slot of a shape. Owns the search for offers, the price factor, and why there is no offer.

Every kind is priced by the slots that would really be used. Offerings dearer than the pool's price factor over its
cheapest one for the shape are not rented. The cheapest one counts although it is blocked (it will be back), not while a
cap forbids it (it will not).

Among those that are left it is the *cost* that is compared: the price, weighed by how often VMs are preempted there
(`preempted.weight`). Where nothing is known of preemptions it is the price.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.planner.bins import Bin, order_of
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Catalogue, Group, Kind, Shelf
from cloud_dispatch.planner.needs import Need, useful_slots
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.preempted import EVEN
from cloud_dispatch.planner.quotas import Quotas

#: Prices and costs a slot are compared in this fraction of a nano-dollar an hour: a weight times a rate is in it.
FINE = EVEN
#: How many of the cheapest offers are looked at.
TRIED = 8
#: Instances that one plan may launch; what is beyond waits for the next one.
MAX_INSTANCES = 10_000
#: And in so many launches, each of a batch that its provider takes.
MAX_LAUNCHES = 1_000
MAX_REASONS = 4
EXHAUSTED = f"a plan launches at most {MAX_INSTANCES} instances, {MAX_LAUNCHES} batches: more in the next one"

#: (cost a slot, rate, number of the kind, slots, cost a slot were it full, kind): sorts the cheapest first, never
#: compares kinds.
Offer = tuple[int, int, int, int, int, Kind]


def _price(offer: Offer) -> int:
    """Its price a slot that is used, whatever work costs there."""
    _, rate, _, slots, _, _ = offer
    return rate * FINE // slots


class _Candidates:
    """Kinds that may be launched now and run a shape: (cost a slot when full, rate, number, slots, kind).

    `groups` are those that share their caps, with one kind of each. `weighed`: what they cost is not their price."""

    __slots__ = ("_by_rate", "by_full", "groups", "paces", "typical", "weighed")

    def __init__(self, kinds: Iterable[Kind], need: Need) -> None:
        found: list[tuple[int, int, int, int, Kind]] = []
        cpus, memory, anywhere = need.cpus, need.memory, need.anywhere
        for kind in kinds:
            rate, room = kind.rate, kind.room
            if rate is None or room[0] < cpus or room[1] < memory or not (anywhere or kind.serves(need)):
                continue
            slots = useful_slots(room, need, kind.pace)
            if slots > 0 and kind.is_paid_for(need):
                found.append((rate * kind.weight(need.item.expected_ms) // slots, rate, kind.number, slots, kind))
        found.sort()
        self.by_full = found
        self._by_rate: list[tuple[int, int, int, int, Kind]] | None = None
        self.paces = {entry[-1].pace for entry in found}
        self.groups = {entry[-1].group: entry[-1] for entry in found}
        self.weighed = any(entry[-1].stock.preempted for entry in found)
        #: The slots of the kind that is cheapest when full: with fewer wanted, small kinds win.
        self.typical = self.by_full[0][3] if found else 0

    @property
    def by_rate(self) -> list[tuple[int, int, int, int, Kind]]:
        """The same, the cheapest instance first."""
        if self._by_rate is None:
            self._by_rate = sorted(self.by_full, key=itemgetter(1, 2))
        return self._by_rate


@dataclass(slots=True)
class Search:
    """Offers found; the kinds that caps forbid; the lowest rate of those for whose boot the work left is too little."""

    offers: list[Offer] = field(default_factory=list)
    capped: list[Kind] = field(default_factory=list)
    thin: int | None = None


class Pricing:
    """Offers of one catalogue under one ledger."""

    def __init__(
        self, catalogue: Catalogue, ledger: Ledger, capacity: Capacity, quotas: Quotas,
        max_batch: Iterable[tuple[ProfileName, int]],
    ) -> None:  # fmt: skip
        self._catalogue = catalogue
        self._ledger = ledger
        self._quotas = quotas
        self._capacity = capacity
        self._candidates: dict[int, _Candidates] = {}
        self._all: dict[int, _Candidates] = {}
        self._left = MAX_INSTANCES
        self._launches_left = MAX_LAUNCHES
        self._largest = dict(max_batch)

    def take(self, kind: Kind, offering: Offering, count: int, beside: int = 0) -> None:
        """`count` more instances of `kind` are launched by this plan as `offering` (or, negative, fewer), together with
        `beside` others."""
        self._ledger.take(kind.pool, kind.profile, kind.vcpus, count)
        self._quotas.take(offering, count)
        self._left -= count
        batch = self.batch(kind.profile)
        self._launches_left -= -(-(beside + count) // batch) - -(-beside // batch)

    def bin(self, kind: Kind, offering: Offering, count: int) -> Bin:
        """`count` instances of `kind`, launched as `offering`, to place on."""
        host = self._catalogue.host(kind.pool, offering)
        return Bin(host, kind.pace, count, Load(), order_of(False, offering.rate, host, kind.pace))

    def batch(self, profile: ProfileName) -> int:
        """How many instances one launch may be of."""
        return max(self._largest.get(profile, 1), 1)

    @property
    def exhausted(self) -> bool:
        """Whether this plan launches as much as one plan may."""
        return self._left <= 0 or self._launches_left <= 0

    def search(self, need: Need) -> Search:
        """Offers for `need` that may be launched now, with what keeps others away."""
        shelf = self._catalogue.shelf(need.shape.labels)
        found = self._offers(need, self._candidates_of(need, shelf))
        if any(self.room(kind, vcpus=1) > 0 for kind in found.capped):
            # the front keeps the largest at a price: a smaller one may still be within the cap on vCPUs, or the quota
            found = self._offers(need, self._all_of(need, shelf))
        return found

    def unit(self, need: Need) -> int:
        """What a slot of `need` costs if an instance is rented for it alone; 0 where none can be."""
        if need.unit is None:
            offers = self.search(need).offers
            need.unit = min(offers)[0] if offers else 0
        return need.unit

    def within_factor(self, search: Search, need: Need, shelf: Shelf) -> tuple[list[Offer], dict[str, int]]:
        """The offers that are no dearer than their pool's factor over the cheapest that the pool lists, or over what is
        not worth a boot: a little work is no reason to pay more. Also that price a slot, by pool."""
        offers = search.offers
        cheapest: dict[str, int] = {}
        for offer in offers:
            kind, price = offer[-1], _price(offer)
            known = cheapest.get(kind.pool.name, price if search.thin is None else search.thin * FINE)
            cheapest[kind.pool.name] = min(price, known)
        for kind, slots in slots_of(shelf.dimmed, need):
            best = cheapest.get(kind.pool.name)
            listed = self.listed(kind, need)
            if best is not None and listed is not None and self.room(kind) > 0:
                wanted = max(need.slots_wanted(kind.pace, capable=True), 1)
                cheapest[kind.pool.name] = min(best, listed * FINE // min(slots, wanted))
        near = [o for o in offers if _price(o) * 100 <= cheapest[o[-1].pool.name] * o[-1].pool.price_factor_percent]
        return near, cheapest

    def capable(self, need: Need) -> bool:
        """Whether something that exists, or that this plan rents, comes to run it."""
        if need.capable is None:
            need.capable = self._capacity.comes_to(need)
        return need.capable

    def room(self, kind: Kind, *, vcpus: int = 0) -> int:
        """How many more of `kind` (or of its pool and profile, with so many `vcpus`) may be opened."""
        most = min(self._left, self._launches_left * self.batch(kind.profile))
        room = min(self._ledger.room(kind.pool, kind.profile, vcpus or kind.vcpus), most)
        return room if vcpus or room <= 0 else min(room, self._quotas.room(self.offering(kind)))

    def quota(self, kind: Kind) -> int:
        """How many more of `kind` quotas have room for, whatever else does."""
        return self._quotas.room(self.offering(kind))

    def offering(self, kind: Kind) -> Offering:
        """What of `kind` would be launched now: the cheapest that quotas have room for, they may be a zone's."""
        first = kind.stock.first
        if self._quotas.room(first) > 0:
            return first
        others = kind.stock.open or kind.stock.unpriced
        return next((other for other in others if self._quotas.room(other) > 0), first)

    def listed(self, kind: Kind, need: Need | None = None) -> Rate | None:
        """The lowest price of `kind`, of what is blocked too; not of what a quota forbids, or what the payer of `need`
        does not pay for: that will not be had."""
        offered = kind.stock.offerings
        if need is not None and need.item.most_rate:
            offered = [other for other in offered if kind.is_paid_for(need, other)]
        elif not self._quotas:
            return kind.stock.listed
        left = (other.rate for other in offered if self._quotas.room(other) > 0)
        return min((rate for rate in left if rate is not None), default=None)

    def admits(self, kind: Kind, offering: Offering) -> bool:
        """Whether another instance of `kind` may be opened as `offering`."""
        return self.room(kind, vcpus=kind.vcpus) > 0 and self._quotas.room(offering) > 0

    def _candidates_of(self, need: Need, shelf: Shelf) -> _Candidates:
        found = self._candidates.get(need.index)
        if found is None:
            # the front is cheapest by what is billed now, a payer's part by the most that may be
            kinds = shelf.kinds if need.item.most_rate else shelf.front
            found = self._candidates[need.index] = _Candidates(kinds, need)
        return found

    def _all_of(self, need: Need, shelf: Shelf) -> _Candidates:
        found = self._all.get(need.index)
        if found is None:
            found = self._all[need.index] = _Candidates(shelf.kinds, need)
        return found

    def _offers(self, need: Need, candidates: _Candidates) -> Search:
        """The cheapest offers, at least `TRIED` of them where there are so many; costs are of slots really used.

        A slot costs at least what it costs on a full instance, and at least the instance over the slots wanted: in the
        order of such a bound the search ends early. Not where they do not cost their prices: what is cheapest by its
        price may come last then, and the price factor needs it.
        """
        search = Search()
        wanted = {pace: need.slots_wanted(pace, capable=self.capable(need)) for pace in candidates.paces}
        most = max(wanted.values(), default=0)
        few = most < candidates.typical
        full_up = {group: kind for group, kind in candidates.groups.items() if self.room(kind, vcpus=1) <= 0}
        search.capped.extend(full_up.values())
        if len(full_up) == len(candidates.groups):
            return search
        ends_early, dearest = not candidates.weighed, 0
        for full, rate, number, slots, kind in candidates.by_rate if few else candidates.by_full:
            enough = ends_early and len(search.offers) >= TRIED
            if enough and (rate * FINE // most if few else full) > dearest:
                break
            used = min(slots, wanted[kind.pace])
            if used <= 0:
                search.thin = rate if search.thin is None else min(search.thin, rate)
            elif kind.group in full_up:
                continue
            elif self.room(kind) <= 0:
                search.capped.append(kind)
            elif kind.is_paid_for(need, self.offering(kind)):  # a quota may leave another zone than the first
                rate = self.offering(kind).rate or rate
                search.offers.append(
                    (rate * kind.weight(need.item.expected_ms) // used, rate, number, used, full, kind)
                )
                if ends_early and len(search.offers) >= TRIED:
                    dearest = sorted(offer[0] for offer in search.offers)[TRIED - 1]
        return search

    def opens(self, need: Need, *, surely: bool = False) -> Kind | None:
        """What is rented first for `need` as things stand, if anything is; `surely`: and if it is counted on that one
        of what may be is had."""
        shelf = self._catalogue.shelf(need.shape.labels)
        near, _ = self.within_factor(self.search(need), need, shelf)
        first = min(near)[-1] if near else None
        if first is None or not surely or self._catalogue.is_sure(first):
            return first
        # the front has none of those that would be rented then
        near, _ = self.within_factor(self._offers(need, self._all_of(need, shelf)), need, shelf)
        return first if any(self._catalogue.is_sure(offer[-1]) for offer in near) else None

    def kept_out(self, need: Need) -> Iterator[Kind]:
        """What caps alone keep from being rented for `need`, the cheapest first when full; of what is alike to them the
        first. Not what others hold the places of."""
        seen: set[tuple[Group, int]] = set()
        for *_, kind in self._all_of(need, self._catalogue.shelf(need.shape.labels)).by_full:
            if (kind.group, kind.vcpus) in seen or self._quotas.room(self.offering(kind)) <= 0:
                continue
            seen.add((kind.group, kind.vcpus))
            caps = (kind.pool, kind.profile, kind.vcpus)
            if self._ledger.room(*caps) <= 0 and not self._ledger.is_lost(*caps):
                yield kind

    # -- why not

    def why_plain(self, pool: str) -> str:
        """What stands in the way of another instance of `pool`, whatever it would run."""
        kinds = [kind for kind in self._catalogue.shelf(()).kinds if kind.pool.name == pool]
        reasons: dict[str, None] = {EXHAUSTED if self.exhausted else "": None}
        for kind in kinds:
            reasons[self._ledger.why(kind.pool, kind.profile, kind.vcpus)] = None
            found = (kind.stock.shut.get(id(o)) for o in kind.stock.offerings)
            reasons.update((shut.why, None) for shut in found if shut is not None)
        reasons.pop("", None)
        if not kinds:
            return "no offering is known that it may rent"
        return "; ".join(list(reasons)[:MAX_REASONS]) or "its offerings cost more than the price factor allows"

    def why(self, need: Need, search: Search, shelf: Shelf) -> str:
        """What stands in the way of renting more for `need`, in words; notes which obstacles do."""
        if search.thin is not None and not search.capped:
            need.obstacles = {Obstacle.LITTLE_WORK}
            return "too little work for another boot: it follows on what runs or boots"
        reasons = self._never(need, shelf)
        if reasons:
            need.obstacles.add(Obstacle.CAP)
        for kind in search.capped[:TRIED]:
            text = self._ledger.why(kind.pool, kind.profile, kind.vcpus)
            full = "" if text else self._quotas.why(kind.stock.first)
            if not (text and reasons and self._ledger.never(kind.pool, kind.profile, kind.vcpus)):
                reasons[text or full or EXHAUSTED] = None
            need.obstacles.add(Obstacle.CAP if text else Obstacle.QUOTA if full else Obstacle.NEXT_PLAN)
        if Obstacle.CAP in need.obstacles and search.capped:
            slots = max(useful_slots(search.capped[0].room, need, search.capped[0].pace), 1)
            need.short = max(1, need.slots_wanted(search.capped[0].pace, capable=True) // slots)
        for kind, _ in slots_of(shelf.dimmed, need):
            shut = [kind.stock.shut[id(o)] for o in kind.stock.offerings if id(o) in kind.stock.shut]
            reasons.update((each.why, None) for each in shut)
            need.obstacles.update(each.obstacle for each in shut)
            if len(reasons) >= MAX_REASONS:
                break
        if need.item.most_rate:
            reasons["its payer was refused where it costs as much as other offerings do"] = None
            need.obstacles.add(Obstacle.BUDGET)
        if search.offers:
            reasons["other offerings cost more than the price factor allows"] = None
            need.obstacles.add(Obstacle.PRICE)
        return "; ".join(reasons)

    def _never(self, need: Need, shelf: Shelf) -> dict[str, None]:
        """The caps that are too small for whatever may run `need`; none where they admit one kind of it. Told before
        what passes."""
        found: dict[str, None] = {}
        for kind, _ in slots_of(shelf.kinds, need):
            text = self._ledger.never(kind.pool, kind.profile, kind.vcpus)
            if not text:
                return {}
            found[text] = None
        return dict.fromkeys(list(found)[:MAX_REASONS])


def slots_of(kinds: Iterable[Kind], need: Need) -> Iterator[tuple[Kind, int]]:
    """Those of `kinds` that run `need`, with the slots that each gives it when new."""
    for kind in kinds:
        if kind.serves(need):
            slots = useful_slots(kind.room, need, kind.pace)
            if slots > 0:
                yield kind, slots
