"""How many instances to rent for what nothing serves, and which. Owns the search for the cheapest cost a task.

The most urgent shape chooses first. For it every kind is priced by the slots that it would really use, and weighed by
how often its VMs are preempted; the best few are also filled with what else waits, each slot of that credited with what
it would cost by itself, so that a shared instance is rented where it is cheaper. What was filled is then rented as the
cheapest kind that holds it. Greedy: a search over whole patterns (column generation) finds a few percent more and can
take this module's place.

An offering without a known price is rented only when no offering with one could ever run the shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from operator import itemgetter

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.planner.bins import Bin, give, sweep
from cloud_dispatch.planner.catalogue import Catalogue, Kind, Shelf
from cloud_dispatch.planner.needs import UNBOUNDED, Need, Room, fit_empty, less
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.preempted import Passed
from cloud_dispatch.planner.pricing import EXHAUSTED, FINE, TRIED, Offer, Pricing, Search, slots_of

#: Bounds of one plan; what is beyond waits for the next one.
MAX_ROUNDS_A_NEED = 100
MAX_ALTERNATIVES = 10
#: Of so many cheaper offerings it is told why they were passed over.
MAX_PASSED = 3

_Fill = list[tuple[Need, int]]


class Opening:
    """`count` instances of one offering that this plan rents, and what for. `passed` over are cheaper ones."""

    def __init__(
        self, kind: Kind, offering: Offering, count: int, alternatives: tuple[Offering, ...], passed: tuple[Passed, ...]
    ) -> None:
        self.kind = kind
        self.offering = offering
        self.count = count
        self.alternatives = alternatives
        self.passed = passed
        self.served: dict[Need, int] = {}
        self.used = 0
        #: Who wants it, if not the tasks that it serves.
        self.purpose = ""

    def serves(self, need: Need, tasks: int, fresh: int) -> None:
        """`tasks` of `need` are placed on its instances, of which `fresh` had nothing before."""
        self.served[need] = self.served.get(need, 0) + tasks
        self.used += fresh


class ScaleUp:
    """The search, at the prices of one catalogue."""

    def __init__(self, catalogue: Catalogue, pricing: Pricing) -> None:
        self._catalogue = catalogue
        self._pricing = pricing

    def bins(self, openings: Sequence[Opening]) -> Iterator[Bin]:
        """`openings` as capacity to place on; who is served is counted afresh."""
        for opening in openings:
            opening.served, opening.used = {}, 0
            yield self._bin(opening)

    def open_all(self, needs: Sequence[Need]) -> list[Opening]:
        """Rent for what is left of `needs`, the most urgent first; each `left` falls by what the openings would serve,
        and `why` says what stands in the way of the rest."""
        for need in needs:
            need.unit, need.why, need.short = None, "", 0
            need.obstacles = set()
        found: list[Opening] = []
        bins: list[Bin] = []
        by_difficulty = sorted((n for n in needs if n.left), key=lambda n: n.difficulty)
        for need in needs:
            if need.left and bins:
                sweep(need, bins)
            for _ in range(MAX_ROUNDS_A_NEED):
                if need.left and self._pricing.exhausted:
                    need.why, need.obstacles = EXHAUSTED, {Obstacle.NEXT_PLAN}
                    break
                opening = self._open(need, by_difficulty, bins) if need.left else None
                if opening is None:
                    break
                found.append(opening)
        return found

    def _bin(self, opening: Opening) -> Bin:
        group = self._pricing.bin(opening.kind, opening.offering, opening.count)
        group.launch = opening
        return group

    def give_back(self, opening: Opening, count: int) -> None:
        """`count` instances of `opening` turned out not to be needed."""
        self._pricing.take(opening.kind, opening.offering, -count, opening.count)
        opening.count -= count

    def open_plain(self, pool: str, count: int) -> list[Opening]:
        """The cheapest instances of `pool`, `count` of them or as many as caps admit, whatever waits."""
        found: list[Opening] = []
        shelf = self._catalogue.shelf(())
        kinds = [kind for kind in shelf.kinds if kind.pool.name == pool]
        if any(kind.stock.listed is not None for kind in kinds):
            ranked = sorted((k for k in kinds if k.stock.open), key=_by_cost)
        else:
            ranked = sorted((k for k in kinds if k.stock.unpriced), key=lambda k: (k.room, k.number))
        for kind in ranked:
            while (taken := min(count, self._pricing.room(kind))) > 0:
                listed = [self._pricing.listed(k) for k in kinds if self._pricing.room(k) > 0]
                cheapest = min((rate for rate in listed if rate is not None), default=0)
                if (self._pricing.offering(kind).rate or 0) * 100 > cheapest * kind.pool.price_factor_percent:
                    break
                found.append(self._take(kind, taken, shelf, [], cheapest * FINE))
                count -= taken
        return found

    # -- one opening

    def _open(self, need: Need, others: Sequence[Need], bins: list[Bin]) -> Opening | None:
        shelf = self._catalogue.shelf(need.shape.labels)
        search = self._pricing.search(need)
        if not search.offers:
            if search.thin is None and not search.capped and not any(True for _ in slots_of(shelf.dimmed, need)):
                return self._open_unpriced(need, shelf, bins)
            need.why = self._pricing.why(need, search, shelf)
            return None
        near, cheapest = self._pricing.within_factor(search, need, shelf)
        if not near:
            need.why = self._pricing.why(need, search, shelf)
            return None
        kind, fill = self._best(need, near, others)
        return self._take_fill(kind, fill, shelf, bins, cheapest[kind.pool.name])

    def _best(self, need: Need, offers: list[Offer], others: Sequence[Need]) -> tuple[Kind, _Fill]:
        """The kind that is cheapest for `need` when what else waits pays its part, and what to fill it with."""
        if need.exclusive or not any(n.left and n is not need for n in others):
            _, _, _, slots, _, kind = min(offers)
            return kind, [(need, slots)]
        tried = {offer[2]: offer for offer in nsmallest(TRIED, offers)}
        tried.update((offer[2], offer) for offer in nsmallest(TRIED // 2, offers, key=itemgetter(4, 1, 2)))
        best: tuple[int, int, int] | None = None
        chosen: tuple[Kind, _Fill] | None = None
        for _, rate, number, slots, _, kind in tried.values():
            fill = self._fill(kind, need, slots, others)
            credit = sum(self._pricing.unit(other) * given for other, given in fill[1:])
            rank = ((rate * kind.weight(need.item.expected_ms) - credit) // slots, rate, number)
            if best is None or rank < best:
                best, chosen = rank, (kind, fill)
        assert chosen is not None
        kind, fill = chosen
        return self._narrowed(kind, fill, self._catalogue.shelf(need.shape.labels)), fill

    def _fill(self, kind: Kind, need: Need, slots: int, others: Sequence[Need]) -> _Fill:
        """`slots` of `need` on an instance of `kind`, and what else finds room beside them."""
        room = less(kind.room, need, slots)
        fill: _Fill = [(need, slots)]
        quota = (kind.pace.max_tasks or UNBOUNDED) - slots * need.rounds(kind.pace)
        for other in others:
            if quota <= 0:
                break
            if other.cpus > room[0] or other.memory > room[1] or not other.left or other is need or other.exclusive:
                continue
            if (
                not kind.serves(other)
                or not kind.is_paid_for(other, self._pricing.offering(kind))
                or not set(other.shape.labels) <= set(need.shape.labels)
            ):
                continue
            rounds = other.rounds(kind.pace)
            given = min(fit_empty(room, other), other.slots_wanted(kind.pace, capable=True), -(-quota // rounds))
            if given > 0:
                fill.append((other, given))
                room = less(room, other, given)
                quota -= given * rounds
                if room[4] <= 0:
                    break
        return fill

    def _narrowed(self, kind: Kind, fill: _Fill, shelf: Shelf) -> Kind:
        """The cheapest kind of the same pool and pace that holds `fill` as well, at no higher price."""
        if len(fill) == 1:
            return kind
        work_ms = _work_ms(fill)
        for other in shelf.front:
            if other.pool is not kind.pool or other.pace is not kind.pace or (other.rate or 0) > (kind.rate or 0):
                continue
            if (other.rate or 0) * other.weight(work_ms) >= (kind.rate or 0) * kind.weight(work_ms):
                continue
            if self._pricing.room(other) > 0 and holds(other, fill, self._pricing.offering(other)):
                kind = other
        return kind

    def _take_fill(self, kind: Kind, fill: _Fill, shelf: Shelf, bins: list[Bin], cheapest: int) -> Opening:
        """As many instances, all filled alike, as what is left fills whole; at least one. What stays free on them is
        put to `bins` for the needs that come after."""
        quota = kind.pace.max_tasks or UNBOUNDED
        served: list[tuple[Need, int, int]] = []
        for need, slots in fill:
            tasks = min(slots * need.rounds(kind.pace), quota)
            quota -= tasks
            if tasks:
                served.append((need, slots, tasks))
        anchor, slots = fill[0]
        whole = min(need.left // tasks for need, _, tasks in served)
        whole = min(whole, anchor.slots_wanted(kind.pace, capable=True) // slots)
        count = max(1, min(whole, self._pricing.room(kind)))
        opening = self._take(kind, count, shelf, fill, cheapest)
        group = self._bin(opening)
        for need, slots, tasks in served:
            give(need, group, slots, min(tasks, need.left))
            need.capable = True
        bins.append(group)
        return opening

    def _take(self, kind: Kind, count: int, shelf: Shelf, fill: _Fill, cheapest: int) -> Opening:
        offering = self._pricing.offering(kind)
        alternatives = tuple(self._alternatives(kind, offering, shelf, fill, cheapest))
        passed = tuple(islice(self._passed_over(kind, offering, shelf, fill), MAX_PASSED))
        for need, _ in fill:
            need.passed = passed or need.passed
        self._pricing.take(kind, offering, count)
        return Opening(kind, offering, count, alternatives, passed)

    def _alternatives(
        self, kind: Kind, offering: Offering, shelf: Shelf, fill: _Fill, cheapest: int
    ) -> Iterator[Offering]:
        """Other offerings of the pool that hold `fill`, a bounded number, first where work costs least: within the
        price factor over what the `cheapest` costs, a slot of what is first in `fill`."""
        if offering.rate is None:
            return
        dearest, slots = cheapest * kind.pool.price_factor_percent, fill[0][1] if fill else 1
        found = 0
        for rate, _, other, of in shelf.by_cost(kind.pool.name, _work_ms(fill)):
            if found >= MAX_ALTERNATIVES:
                return
            if rate * FINE // slots * 100 > dearest:
                if not shelf.weighed:
                    return
                continue
            if other is not offering and holds(of, fill, other) and self._pricing.admits(of, other):
                found += 1
                yield other

    def _passed_over(self, kind: Kind, offering: Offering, shelf: Shelf, fill: _Fill) -> Iterator[Passed]:
        """Cheaper offerings of the pool that hold `fill`, where work costs more since VMs are preempted there."""
        if not shelf.weighed or offering.rate is None:
            return
        work_ms = _work_ms(fill)
        cost = offering.rate * kind.weight(work_ms)
        for rate, _, other, of in shelf.by_price(kind.pool.name):
            if rate >= offering.rate:
                return
            weight = of.weight(work_ms)
            if rate * weight > cost and holds(of, fill, other) and self._pricing.admits(of, other):
                yield Passed(other, of.stock.preempted, work_ms, weight)

    def _open_unpriced(self, need: Need, shelf: Shelf, bins: list[Bin]) -> Opening | None:
        """The smallest offering without a known price: nothing that has one could ever run the shape."""
        unpriced = (kind for kind in shelf.unpriced if kind.is_paid_for(need))
        found = [(k.vcpus, k.room, k.number, slots, k) for k, slots in slots_of(unpriced, need)]
        fitting = [entry for entry in found if self._pricing.room(entry[4]) > 0]
        if not fitting:
            need.why = self._pricing.why(need, Search(capped=[entry[4] for entry in found]), shelf)
            return None
        _, _, _, slots, kind = min(fitting, key=itemgetter(0, 1, 2))
        wanted = need.slots_wanted(kind.pace, capable=self._pricing.capable(need))
        if wanted <= 0:
            need.why = self._pricing.why(need, Search(thin=0), shelf)
            return None
        opening = self._take_fill(kind, [(need, min(slots, wanted))], shelf, bins, 0)
        opening.purpose = "its price is not known, but no offering with a known price can run it"
        return opening


def _by_cost(kind: Kind) -> tuple[int, Room, int]:
    """Sorts kinds by what work costs there, whatever it is: then the small ones first."""
    return (kind.rate or 0) * kind.weight(), kind.room, kind.number


def _work_ms(fill: _Fill) -> int:
    """How long the tasks take that `fill` is made for; 0 unknown."""
    return fill[0][0].item.expected_ms if fill else 0


def holds(kind: Kind, fill: _Fill, offering: Offering) -> bool:
    """Whether one instance of `kind`, as `offering`, holds all of `fill`, and is paid for; labels are the shelf's."""
    room: Room = kind.room
    for need, slots in fill:
        if (
            not kind.serves(need)
            or not kind.is_paid_for(need, offering)
            or (need.exclusive and len(fill) > 1)
            or fit_empty(room, need) < slots
        ):
            return False
        room = less(room, need, slots)
    return True
