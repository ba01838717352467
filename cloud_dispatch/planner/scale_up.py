"""How many instances to rent for what nothing serves, and which. Owns the search for the cheapest price a task.

The most urgent shape chooses first. For it every kind is priced by the slots that it would really use; the best few are
also filled with what else waits, each slot of that credited with what it would cost by itself, so that a shared
instance is rented where it is cheaper. What was filled is then rented as the cheapest kind that holds it. Greedy: a
search over whole patterns (column generation) finds a few percent more and can take this module's place.

Offerings dearer than the pool's price factor over its cheapest one for the shape are not rented. The cheapest one
counts although it is blocked (it will be back), not while a cap forbids it (it will not). An offering without a known
price is rented only when no offering with one could ever run the shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.shape import Load
from cloud_dispatch.planner.caps import Ledger
from cloud_dispatch.planner.catalogue import Catalogue, Kind, Shelf
from cloud_dispatch.planner.needs import Need, Room, fit_empty, less
from cloud_dispatch.planner.placement import Bin, Capacity, order_of

#: Prices a slot are compared in this fraction of a nano-dollar an hour.
_FINE = 1024
#: How many of the cheapest kinds are tried with other shapes beside the first.
_TRIED = 8
#: Bounds of one plan; what is beyond waits for the next one.
MAX_INSTANCES = 10_000
MAX_ROUNDS_A_NEED = 100
MAX_ALTERNATIVES = 10
MAX_REASONS = 4

#: (price a slot, rate, number of the kind, slots, price a slot were it full, kind): sorts the cheapest first, never
#: compares kinds.
_Offer = tuple[int, int, int, int, int, Kind]
_Fill = list[tuple[Need, int]]


class Opening:
    """`count` instances of one offering that this plan rents, and what for."""

    def __init__(self, kind: Kind, offering: Offering, count: int, alternatives: tuple[Offering, ...]) -> None:
        self.kind = kind
        self.offering = offering
        self.count = count
        self.alternatives = alternatives
        self.served: dict[Need, int] = {}
        self.used = 0
        #: Who wants it, if not the tasks that it serves.
        self.purpose = ""

    def serves(self, need: Need, tasks: int, fresh: int) -> None:
        """`tasks` of `need` are placed on its instances, of which `fresh` had nothing before."""
        self.served[need] = self.served.get(need, 0) + tasks
        self.used += fresh


class _Candidates:
    """Kinds that may be launched now and run a shape: (price a slot when full, rate, number, slots, kind).

    `groups` are those that share their caps, with one kind of each."""

    __slots__ = ("by_full", "by_rate", "groups", "paces", "typical")

    def __init__(self, kinds: Iterable[Kind], need: Need) -> None:
        found = [
            (kind.rate * _FINE // slots, kind.rate, kind.number, slots, kind)
            for kind, slots in _slots(kinds, need)
            if kind.rate is not None
        ]
        self.by_full = sorted(found)
        self.by_rate = sorted(found, key=itemgetter(1, 2))
        self.paces = {entry[-1].pace for entry in found}
        self.groups = {entry[-1].group: entry[-1] for entry in found}
        #: The slots of the kind that is cheapest when full: with fewer wanted, small kinds win.
        self.typical = self.by_full[0][3] if found else 0


@dataclass(slots=True)
class _Search:
    """Offers found; the kinds that caps forbid; whether the work left is too little for any boot."""

    offers: list[_Offer] = field(default_factory=list)
    capped: list[Kind] = field(default_factory=list)
    thin: bool = False


class ScaleUp:
    """The search, over one catalogue and one ledger; it takes from both what it opens."""

    def __init__(self, catalogue: Catalogue, ledger: Ledger, capacity: Capacity) -> None:
        self._catalogue = catalogue
        self._ledger = ledger
        self._capacity = capacity
        self._bound = MAX_INSTANCES
        self._candidates: dict[int, _Candidates] = {}

    def bins(self, openings: Sequence[Opening]) -> Iterator[Bin]:
        """`openings` as capacity to place on; who is served is counted afresh."""
        for opening in openings:
            opening.served, opening.used = {}, 0
            host = self._catalogue.host(opening.kind.pool, opening.offering)
            order = order_of(False, opening.offering.rate, host, opening.kind.pace)
            group = Bin(host, opening.kind.pace, opening.count, Load(), order)
            group.launch = opening
            yield group

    def open_all(self, needs: Sequence[Need]) -> list[Opening]:
        """Rent for what is left of `needs`, the most urgent first; each `left` falls by what the openings would serve,
        and `why` says what stands in the way of the rest."""
        for need in needs:
            need.unit = None
        found: list[Opening] = []
        by_difficulty = sorted((n for n in needs if n.left), key=lambda n: n.difficulty)
        for need in needs:
            for _ in range(MAX_ROUNDS_A_NEED):
                if need.left and self._bound <= 0:
                    need.why = f"a plan launches at most {MAX_INSTANCES} instances: more in the next one"
                    break
                opening = self._open(need, by_difficulty) if need.left else None
                if opening is None:
                    break
                found.append(opening)
        return found

    def give_back(self, opening: Opening, count: int) -> None:
        """`count` instances of `opening` turned out not to be needed."""
        opening.count -= count
        self._bound += count
        self._ledger.take(opening.kind.pool, opening.kind.profile, opening.kind.vcpus, -count)

    def open_plain(self, pool: str, count: int) -> list[Opening]:
        """The cheapest instances of `pool`, `count` of them or as many as caps admit, whatever waits."""
        found: list[Opening] = []
        shelf = self._catalogue.shelf(())
        kinds = [kind for kind in shelf.kinds if kind.pool.name == pool]
        if any(kind.listed is not None for kind in kinds):
            ranked = sorted((k for k in kinds if k.open), key=lambda k: (k.rate, k.room, k.number))
        else:
            ranked = sorted((k for k in kinds if k.unpriced), key=lambda k: (k.room, k.number))
        for kind in ranked:
            taken = min(count, self._room(kind))
            cheapest = min((k.listed for k in kinds if k.listed is not None and self._room(k) > 0), default=0)
            if taken > 0 and (kind.rate or 0) * 100 <= cheapest * kind.pool.price_factor_percent:
                found.append(self._take(kind, taken, shelf, []))
                count -= taken
        return found

    # -- one opening

    def _open(self, need: Need, others: Sequence[Need]) -> Opening | None:
        shelf = self._catalogue.shelf(need.shape.labels)
        search = self._offers(need, self._candidates_of(need, shelf))
        if not search.offers and any(self._room(kind, vcpus=1) > 0 for kind in search.capped):
            # the front keeps the largest at a price: a smaller one may still be within the cap on vCPUs
            search = self._offers(need, _Candidates(shelf.kinds, need))
        if not search.offers:
            if not search.thin and not search.capped and not any(True for _ in _slots(shelf.dimmed, need)):
                return self._open_unpriced(need, shelf)
            need.why = self._why(need, search, shelf)
            return None
        near = self._within_factor(search.offers, need, shelf)
        if not near:
            need.why = self._why(need, search, shelf)
            return None
        kind, fill = self._best(need, near, others)
        return self._take_fill(kind, fill, shelf)

    def _candidates_of(self, need: Need, shelf: Shelf) -> _Candidates:
        found = self._candidates.get(need.index)
        if found is None:
            found = self._candidates[need.index] = _Candidates(shelf.front, need)
        return found

    def _offers(self, need: Need, candidates: _Candidates) -> _Search:
        """The cheapest offers, at least `_TRIED` of them where there are so many; prices are of slots really used.

        A slot costs at least what it costs on a full instance, and at least the instance over the slots wanted: in the
        order of such a bound the search ends early.
        """
        search = _Search()
        wanted = {pace: need.slots_wanted(pace, capable=self._capable(need)) for pace in candidates.paces}
        most = max(wanted.values(), default=0)
        few = most < candidates.typical
        full_up = {group: kind for group, kind in candidates.groups.items() if self._room(kind, vcpus=1) <= 0}
        search.capped.extend(full_up.values())
        if len(full_up) == len(candidates.groups):
            return search
        dearest = 0
        for full, rate, number, slots, kind in candidates.by_rate if few else candidates.by_full:
            if len(search.offers) >= _TRIED and (rate * _FINE // most if few else full) > dearest:
                break
            used = min(slots, wanted[kind.pace])
            if used <= 0:
                search.thin = True
            elif kind.group in full_up:
                continue
            elif self._room(kind) <= 0:
                search.capped.append(kind)
            else:
                search.offers.append((rate * _FINE // used, rate, number, used, full, kind))
                if len(search.offers) >= _TRIED:
                    dearest = sorted(offer[0] for offer in search.offers)[_TRIED - 1]
        return search

    def _capable(self, need: Need) -> bool:
        if need.capable is None:
            need.capable = self._capacity.can_run(need)
        return need.capable

    def _room(self, kind: Kind, *, vcpus: int = 0) -> int:
        """How many more of `kind` (or of its pool and profile, with so many `vcpus`) may be opened."""
        return min(self._ledger.room(kind.pool, kind.profile, vcpus or kind.vcpus), self._bound)

    def _within_factor(self, offers: list[_Offer], need: Need, shelf: Shelf) -> list[_Offer]:
        """The offers that are no dearer than their pool's factor over the cheapest that the pool lists."""
        cheapest: dict[str, int] = {}
        for price, *_, kind in offers:
            cheapest[kind.pool.name] = min(price, cheapest.get(kind.pool.name, price))
        for kind, slots in _slots(shelf.dimmed, need):
            best = cheapest.get(kind.pool.name)
            if best is not None and kind.listed is not None and self._room(kind) > 0:
                wanted = max(need.slots_wanted(kind.pace, capable=True), 1)
                cheapest[kind.pool.name] = min(best, kind.listed * _FINE // min(slots, wanted))
        return [o for o in offers if o[0] * 100 <= cheapest[o[-1].pool.name] * o[-1].pool.price_factor_percent]

    def _best(self, need: Need, offers: list[_Offer], others: Sequence[Need]) -> tuple[Kind, _Fill]:
        """The kind that is cheapest for `need` when what else waits pays its part, and what to fill it with."""
        if need.exclusive or not any(n.left and n is not need for n in others):
            _, _, _, slots, _, kind = min(offers)
            return kind, [(need, slots)]
        tried = {offer[2]: offer for offer in nsmallest(_TRIED, offers)}
        tried.update((offer[2], offer) for offer in nsmallest(_TRIED // 2, offers, key=itemgetter(4, 1, 2)))
        best: tuple[int, int, int] | None = None
        chosen: tuple[Kind, _Fill] | None = None
        for _, rate, number, slots, _, kind in tried.values():
            fill = self._fill(kind, need, slots, others)
            credit = sum(self._unit(other) * given for other, given in fill[1:])
            rank = ((rate * _FINE - credit) // slots, rate, number)
            if best is None or rank < best:
                best, chosen = rank, (kind, fill)
        assert chosen is not None
        kind, fill = chosen
        return self._narrowed(kind, fill, self._catalogue.shelf(need.shape.labels)), fill

    def _fill(self, kind: Kind, need: Need, slots: int, others: Sequence[Need]) -> _Fill:
        """`slots` of `need` on an instance of `kind`, and what else finds room beside them."""
        room = less(kind.room, need, slots)
        fill: _Fill = [(need, slots)]
        for other in others:
            if other.cpus > room[0] or other.memory > room[1] or not other.left or other is need or other.exclusive:
                continue
            if not kind.serves(other) or not set(other.shape.labels) <= set(need.shape.labels):
                continue
            given = min(fit_empty(room, other), other.slots_wanted(kind.pace, capable=True))
            if given > 0:
                fill.append((other, given))
                room = less(room, other, given)
                if room[4] <= 0:
                    break
        return fill

    def _unit(self, need: Need) -> int:
        """What a slot of `need` costs if an instance is rented for it alone; 0 where none can be."""
        if need.unit is None:
            shelf = self._catalogue.shelf(need.shape.labels)
            offers = self._offers(need, self._candidates_of(need, shelf)).offers
            need.unit = min(offers)[0] if offers else 0
        return need.unit

    def _narrowed(self, kind: Kind, fill: _Fill, shelf: Shelf) -> Kind:
        """The cheapest kind of the same pool and pace that holds `fill` as well."""
        if len(fill) == 1:
            return kind
        for other in shelf.front:
            if other.pool is not kind.pool or other.pace is not kind.pace or (other.rate or 0) >= (kind.rate or 0):
                continue
            if holds(other, fill) and self._room(other) > 0:
                kind = other
        return kind

    def _take_fill(self, kind: Kind, fill: _Fill, shelf: Shelf) -> Opening:
        """As many instances, all filled alike, as what is left fills whole; at least one."""
        quota = kind.pace.max_tasks
        served: list[tuple[Need, int]] = []
        for need, slots in fill:
            tasks = slots * need.rounds(kind.pace)
            if kind.pace.max_tasks:
                tasks = min(tasks, quota)
                quota -= tasks
            served.append((need, tasks))
        whole = min(need.left // tasks for need, tasks in served if tasks)
        whole = min(whole, *(n.slots_wanted(kind.pace, capable=True) // slots for n, slots in fill[:1]))
        count = max(1, min(whole, self._room(kind)))
        for need, tasks in served:
            need.left -= min(need.left, tasks * count)
            need.capable = True
        return self._take(kind, count, shelf, fill)

    def _take(self, kind: Kind, count: int, shelf: Shelf, fill: _Fill) -> Opening:
        offering = kind.open[0] if kind.open else kind.unpriced[0]
        alternatives = tuple(self._alternatives(kind, offering, shelf, fill))
        self._ledger.take(kind.pool, kind.profile, kind.vcpus, count)
        self._bound -= count
        return Opening(kind, offering, count, alternatives)

    def _alternatives(self, kind: Kind, offering: Offering, shelf: Shelf, fill: _Fill) -> Iterator[Offering]:
        """Other offerings of the pool that hold `fill` within the price factor, cheapest first, a bounded number."""
        if offering.rate is None:
            return
        dearest = offering.rate * kind.pool.price_factor_percent
        found = 0
        for rate, _, other, of in shelf.by_price(kind.pool.name):
            if rate * 100 > dearest or found >= MAX_ALTERNATIVES:
                return
            if other is not offering and holds(of, fill) and self._room(of) > 0:
                found += 1
                yield other

    def _open_unpriced(self, need: Need, shelf: Shelf) -> Opening | None:
        """The smallest offering without a known price: nothing that has one could ever run the shape."""
        found = [(k.vcpus, k.room, k.number, slots, k) for k, slots in _slots(shelf.unpriced, need)]
        fitting = [entry for entry in found if self._room(entry[4]) > 0]
        if not fitting:
            need.why = self._why(need, _Search(capped=[entry[4] for entry in found]), shelf)
            return None
        _, _, _, slots, kind = min(fitting, key=itemgetter(0, 1, 2))
        wanted = need.slots_wanted(kind.pace, capable=self._capable(need))
        if wanted <= 0:
            need.why = self._why(need, _Search(thin=True), shelf)
            return None
        opening = self._take_fill(kind, [(need, min(slots, wanted))], shelf)
        opening.purpose = "its price is not known, but no offering with a known price can run it"
        return opening

    # -- why not

    def why_plain(self, pool: str) -> str:
        """What stands in the way of another instance of `pool`, whatever it would run."""
        kinds = [kind for kind in self._catalogue.shelf(()).kinds if kind.pool.name == pool]
        reasons: dict[str, None] = {}
        for kind in kinds:
            reasons[self._ledger.why(kind.pool, kind.profile, kind.vcpus)] = None
            reasons.update(dict.fromkeys(self._catalogue.shut.get(id(o), "") for o in kind.offerings))
        reasons.pop("", None)
        if not kinds:
            return "no offering is known that it may rent"
        return "; ".join(list(reasons)[:4]) or "its offerings cost more than the price factor allows"

    def _why(self, need: Need, search: _Search, shelf: Shelf) -> str:
        """What stands in the way of renting more for `need`, in words; notes which caps do."""
        if search.thin and not search.capped:
            return "too little work for another boot: it follows on what runs or boots"
        reasons: dict[str, None] = {}
        for kind in search.capped[:_TRIED]:
            text = self._ledger.why(kind.pool, kind.profile, kind.vcpus)
            reasons[text or f"a plan launches at most {MAX_INSTANCES} instances: more in the next one"] = None
            need.capped |= self._ledger.binding(kind.pool, kind.profile, kind.vcpus)
        if search.capped:
            slots = max(fit_empty(search.capped[0].room, need), 1)
            need.short = max(1, need.slots_wanted(search.capped[0].pace, capable=True) // slots)
        for kind, _ in _slots(shelf.dimmed, need):
            shut = [self._catalogue.shut[id(o)] for o in kind.offerings if id(o) in self._catalogue.shut]
            reasons.update(dict.fromkeys(shut))
            if len(reasons) >= MAX_REASONS:
                break
        if search.offers:
            reasons["other offerings cost more than the price factor allows"] = None
        return "; ".join(reasons)


def holds(kind: Kind, fill: _Fill) -> bool:
    """Whether one instance of `kind` has room for all of `fill`; labels are the shelf's matter."""
    room: Room = kind.room
    for need, slots in fill:
        if not kind.serves(need) or (need.exclusive and len(fill) > 1) or fit_empty(room, need) < slots:
            return False
        room = less(room, need, slots)
    return True


def _slots(kinds: Iterable[Kind], need: Need) -> Iterator[tuple[Kind, int]]:
    """Those of `kinds` that run `need`, with the slots that each gives it when empty."""
    for kind in kinds:
        if kind.serves(need):
            slots = fit_empty(kind.room, need)
            if slots > 0:
                yield kind, slots
