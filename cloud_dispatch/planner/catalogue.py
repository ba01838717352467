"""What pools may rent, ready to be searched. Owns the view of the offerings that sizing needs; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from operator import itemgetter

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.planner.bins import Host, dearest
from cloud_dispatch.planner.needs import UNBOUNDED, Need, Pace, Paces, Room, fit_empty
from cloud_dispatch.planner.preempted import EVEN, PreemptionRates, weight
from cloud_dispatch.planner.scopes import Scopes
from cloud_dispatch.planner.snapshot import Blocked, Snapshot
from cloud_dispatch.planner.stock import Shut, Stock, closed, closed_to, front, stocks
from cloud_dispatch.spend.payers import part_rate

#: Kinds of one group share all their caps.
Group = tuple[PoolName, ProfileName]


class Kind:
    """A stock in a pool: offerings that give tasks the same room there. `rate` None: none may be launched."""

    __slots__ = ("group", "number", "pace", "pool", "profile", "rate", "room", "spot", "stock", "vcpus")

    def __init__(self, number: int, pool: Pool, stock: Stock, paces: Paces) -> None:
        self.number = number
        self.pool = pool
        self.stock = stock
        self.profile = stock.profile
        self.group: Group = (pool.name, stock.profile)
        self.vcpus = stock.vcpus
        self.spot = stock.spot
        self.rate: Rate | None = stock.rate
        cpus, memory, disk, gpus = stock.capacity
        less = pool.reserve
        self.room: Room = (
            cpus - less.cpus_milli, memory - less.memory, disk - less.disk, gpus - less.gpus,
            pool.max_tasks_per_instance or UNBOUNDED,
        )  # fmt: skip
        self.pace: Pace = paces.of(pool, stock.first.boot_ms)

    def serves(self, need: Need) -> bool:
        """Whether tasks of `need` may run here at all, as far as neither amounts nor labels say."""
        if need.anywhere:
            return True
        shape = need.shape
        return (
            (not shape.pool or shape.pool == self.pool.name)
            and (shape.preemptible or not self.spot)
            and (not shape.gpu_type or shape.gpu_type == self.stock.type.gpu_type)
            and shape.gpu_memory <= self.stock.type.gpu_memory
        )

    def weight(self, work_ms: int = 0) -> int:
        """What work in tasks of `work_ms` (0: unknown) costs here, as a multiple of the price, in `EVEN`."""
        preempted = self.stock.preempted
        return weight(preempted, work_ms, self.stock.first.boot_ms) if preempted else EVEN

    def is_paid_for(self, need: Need, offering: Offering | None = None) -> bool:
        """Whether the part that a task of `need` would hold here, as `offering` (None: the cheapest), costs no more
        than its payer may pay."""
        most, one, shape = need.item.most_rate, offering or self.stock.first, need.shape
        if not most:
            return True
        if one.highest_rate is None:
            return False
        capacity = Resources(*self.room[:4])
        return part_rate(one.top_rate, shape.resources, exclusive=shape.exclusive, capacity=capacity) <= most


class Shelf:
    """The kinds whose labels serve one set of labels, over all pools.

    `front` are those worth looking at, group by group, cheapest first. `dimmed` would be cheaper, or there at all, were
    nothing blocked or silent: what prices are compared with. `unpriced` have offerings without a known price.
    `weighed`: what work costs on some of them is not their price.
    """

    def __init__(self, kinds: list[Kind], fronts: dict[tuple[int, ...], list[int]]) -> None:
        self.kinds = kinds
        self.front: list[Kind] = []
        groups: dict[Group, list[Kind]] = {}
        for kind in kinds:
            groups.setdefault(kind.group, []).append(kind)
        for members in groups.values():
            # pools often rent the same stocks: what they reserve changes nothing about which stock covers which
            same = tuple(id(kind.stock) for kind in members)
            positions = fronts.get(same)
            if positions is None:
                positions = fronts[same] = front(kind.stock for kind in members)
            self.front.extend(members[position] for position in positions)
        self.dimmed = [kind for kind in kinds if kind.rate != kind.stock.listed]
        self.unpriced = [kind for kind in kinds if kind.stock.unpriced]
        self.weighed = any(kind.stock.preempted for kind in kinds)
        self._by_price: dict[PoolName, list[tuple[int, int, Offering, Kind]]] = {}
        self._by_cost: dict[tuple[PoolName, int], list[tuple[int, int, Offering, Kind]]] = {}

    def by_price(self, pool: PoolName) -> list[tuple[int, int, Offering, Kind]]:
        """All offerings of `pool` that may be launched, cheapest first."""
        found = self._by_price.get(pool)
        if found is None:
            found = [(o.rate or 0, k.number, o, k) for k in self.kinds if k.pool.name == pool for o in k.stock.open]
            found.sort(key=itemgetter(0, 1))
            self._by_price[pool] = found
        return found

    def by_cost(self, pool: PoolName, work_ms: int) -> list[tuple[int, int, Offering, Kind]]:
        """The same, but first where work costs least that is done in tasks of `work_ms`."""
        if not self.weighed:
            return self.by_price(pool)
        found = self._by_cost.get((pool, work_ms))
        if found is None:
            found = sorted(self.by_price(pool), key=lambda one: one[0] * one[3].weight(work_ms))
            self._by_cost[pool, work_ms] = found
        return found


class Catalogue:
    """What the pools of a snapshot may rent. Nothing is sorted before somebody asks: most plans find room for all that
    waits on what exists."""

    def __init__(self, snapshot: Snapshot, paces: Paces) -> None:
        self._snapshot = snapshot
        self._paces = paces
        self._count = 0
        self._shelves: dict[Labels, Shelf] = {}
        self._kinds: dict[Labels, list[Kind]] = {}
        self._narrowed: dict[tuple[int, Labels], Stock | None] = {}
        self._fronts: dict[tuple[int, ...], list[int]] = {}
        self._hosts: dict[tuple[PoolName, str], Host] = {}

    @cached_property
    def _shut(self) -> dict[int, Shut]:
        return closed(self._snapshot)

    @cached_property
    def _shut_to(self) -> dict[PoolName, dict[int, Shut]]:
        """The same for each pool, where something is closed to it alone."""
        return {pool.name: closed_to(self._snapshot, pool, self._shut) for pool in self._snapshot.pools}

    @cached_property
    def _stocks(self) -> list[Stock]:
        return stocks(self._snapshot.offerings, self._shut, PreemptionRates(self._snapshot.preemptions))

    @cached_property
    def unseen(self) -> tuple[ProfileName, ...]:
        """Profiles of which nothing is known: they must not make a shape unsatisfiable."""
        seen = {stock.profile for stock in self._stocks}
        named = dict.fromkeys(profile for pool in self._snapshot.pools for profile in pool.profiles)
        return tuple(profile for profile in named if profile not in seen or profile in self._snapshot.silent)

    def shelf(self, labels: Labels) -> Shelf:
        """What carries `labels`, ready to be searched."""
        shelf = self._shelves.get(labels)
        if shelf is None:
            shelf = self._shelves[labels] = Shelf(self.kinds(labels), self._fronts)
        return shelf

    def kinds(self, labels: Labels) -> list[Kind]:
        """What carries `labels`."""
        kinds = self._kinds.get(labels)
        if kinds is None:
            found = self._labelled(self.kinds(()), labels) if labels else self._all_kinds()
            kinds = self._kinds[labels] = list(found)
        return kinds

    def host(self, pool: Pool, offering: Offering) -> Host:
        """What an instance of `offering` would be to tasks in `pool`."""
        key = (pool.name, offering.key)
        host = self._hosts.get(key)
        if host is None:
            machine = offering.machine(
                pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance
            )
            host = self._hosts[key] = Host(machine, top_rate=dearest(offering))
        return host

    def can_run(self, need: Need) -> bool:
        """Whether a pool may ever rent something that runs `need`: blocked or not, at whatever price, caps apart."""
        shelf = self.shelf(need.shape.labels)
        kinds = (shelf.front, shelf.dimmed, (kind for kind in shelf.kinds if kind.stock.listed is None))
        return any(kind.serves(need) and fit_empty(kind.room, need) > 0 for kind in chain(*kinds))

    @cached_property
    def _failed(self) -> Scopes[Blocked]:
        return Scopes(self._snapshot.failed)

    def is_sure(self, kind: Kind) -> bool:
        """Whether it is counted on that `kind` is had when it is asked for: not where it failed when last tried."""
        if not self._failed:
            return True
        first = kind.stock.first
        return not any(b.is_for(kind.pool) and b.from_rate <= first.top_rate for b in self._failed.of(first))

    def _all_kinds(self) -> Iterator[Kind]:
        for pool in self._snapshot.pools:
            types: dict[str, bool] = {}
            alone = self._shut_to[pool.name] is not self._shut
            for stock in self._stocks:
                if stock.profile in pool.profiles and stock.market in pool.markets:
                    name = stock.type.name
                    if name not in types:
                        types[name] = pool.types.admits(name)
                    if types[name]:
                        yield self._kind(pool, self._left_to(pool, stock) if alone else stock)

    def _left_to(self, pool: Pool, stock: Stock) -> Stock:
        """`stock` without what is closed to `pool` alone."""
        shut = self._shut_to[pool.name]
        if all(id(o) in self._shut or id(o) not in shut for o in stock.offerings):
            return stock
        return Stock(stock.offerings, shut, stock.preempted)

    def _labelled(self, kinds: Iterable[Kind], labels: Labels) -> Iterator[Kind]:
        """The kinds that carry `labels`, each with the offerings that do; a pool's own labels beat the offering's."""
        asked: dict[PoolName, Labels | None] = {}
        for pool in self._snapshot.pools:
            own = dict(pool.labels)
            fits = all(own.get(name, value) == value for name, value in labels)
            asked[pool.name] = tuple((name, value) for name, value in labels if name not in own) if fits else None
        for kind in kinds:
            wanted = asked[kind.pool.name]
            stock = None if wanted is None else self._narrow(kind.stock, wanted)
            if stock is kind.stock:
                yield kind
            elif stock is not None:
                yield self._kind(kind.pool, stock)

    def _narrow(self, stock: Stock, labels: Labels) -> Stock | None:
        """`stock` with those of its offerings only that carry `labels`; None when none does."""
        key = (id(stock), labels)
        if key not in self._narrowed:
            fitting = [o for o in stock.offerings if all(_label(o, name) == value for name, value in labels)]
            if len(fitting) == len(stock.offerings):
                self._narrowed[key] = stock
            else:
                self._narrowed[key] = Stock(fitting, stock.shut, stock.preempted) if fitting else None
        return self._narrowed[key]

    def _kind(self, pool: Pool, stock: Stock) -> Kind:
        self._count += 1
        return Kind(self._count, pool, stock, self._paces)


def _label(offering: Offering, name: str) -> str | None:
    """The value of a label on an instance, as `Offering.machine` gives it where the pool has none of that name."""
    for key, value in offering.labels:
        if key == name:
            return value
    if name == "type":
        return offering.type.name
    if name == "zone":
        return offering.zone
    if name == "market":
        return str(offering.market)
    return offering.type.architecture if name == "arch" else None
