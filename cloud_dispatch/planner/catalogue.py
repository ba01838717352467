"""What pools may rent, ready to be searched. Owns the view of the offerings that sizing needs; decides nothing.

Offerings that differ in zone only are one *kind*. For a shape without labels most kinds can't win: another is as large
and no dearer. The *front* is what is left without them; it makes the
search short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Labels
from cloud_dispatch.planner.needs import Need, Pace, Paces, Room, fit_empty, room_of
from cloud_dispatch.planner.placement import Host
from cloud_dispatch.planner.snapshot import Blocked, Snapshot


class Kind:
    """A type on a market of a profile, in a pool: offerings that give tasks the same room.

    `open` may be launched now and have a price, cheapest first; `rate` is the first one's. `listed` is the lowest price
    among all, blocked and silent ones included. `unpriced` may be launched and have none. Kinds of one `group` share
    all their caps.
    """

    __slots__ = (
        "group", "listed", "number", "offerings", "open", "pace", "pool", "profile", "rate", "room", "spot", "type",
        "unpriced", "vcpus",
    )  # fmt: skip

    def __init__(
        self, number: int, pool: Pool, offerings: list[Offering], room: Room, shut: Mapping[int, str], paces: Paces
    ) -> None:
        first = offerings[0]
        self.number = number
        self.pool = pool
        self.profile = first.profile
        self.group = (pool.name, first.profile)
        self.type = first.type
        self.vcpus = first.type.vcpus
        self.spot = first.market is Market.SPOT
        self.room = room
        self.offerings = offerings
        free = [o for o in offerings if id(o) not in shut] if shut else offerings
        self.open = [o for o in free if o.rate is not None]
        self.unpriced = [o for o in free if o.rate is None] if len(self.open) < len(free) else []
        if len(free) > 1:
            self.open.sort(key=lambda o: (o.rate, o.zone))
            self.unpriced.sort(key=lambda o: o.zone)
        self.rate: Rate | None = self.open[0].rate if self.open else None
        self.listed: Rate | None = min((o.rate for o in offerings if o.rate is not None), default=None)
        self.pace: Pace = paces.of(pool, (self.open or self.unpriced or offerings)[0].boot_ms)

    def serves(self, need: Need) -> bool:
        """Whether tasks of `need` may run here at all, as far as neither amounts nor labels say."""
        if need.anywhere:
            return True
        shape = need.shape
        return (
            (not shape.pool or shape.pool == self.pool.name)
            and (shape.preemptible or not self.spot)
            and (not shape.gpu_type or shape.gpu_type == self.type.gpu_type)
            and shape.gpu_memory <= self.type.gpu_memory
        )


class Shelf:
    """The kinds whose labels serve one set of labels, over all pools.

    `front` are those worth looking at, group by group, cheapest first. `dimmed` would be cheaper, or there at all, were
    nothing blocked or silent: what prices are compared with. `unpriced` have offerings without a known price.
    """

    def __init__(self, kinds: list[Kind]) -> None:
        self.kinds = kinds
        self.front = _front(kinds)
        self.dimmed = [kind for kind in kinds if kind.rate != kind.listed]
        self.unpriced = [kind for kind in kinds if kind.unpriced]
        self._by_price: dict[PoolName, list[tuple[int, str, Offering, Kind]]] = {}

    def by_price(self, pool: PoolName) -> list[tuple[int, str, Offering, Kind]]:
        """All offerings of `pool` that may be launched, cheapest first."""
        found = self._by_price.get(pool)
        if found is None:
            found = [(o.rate or 0, o.key, o, k) for k in self.kinds if k.pool.name == pool for o in k.open]
            found.sort(key=lambda entry: entry[:2])
            self._by_price[pool] = found
        return found


class Catalogue:
    """What the pools of a snapshot may rent."""

    def __init__(self, snapshot: Snapshot, paces: Paces) -> None:
        self._paces = paces
        self._kinds = 0
        self.pools = snapshot.pools
        #: Why an offering may not be launched now, by the id of its object.
        self.shut = _shut(snapshot)
        self._admitted = [(pool, _admitted(pool, snapshot.offerings)) for pool in snapshot.pools]
        self._shelves: dict[Labels, Shelf] = {}
        self._hosts: dict[tuple[PoolName, str], Host] = {}
        seen = {offering.profile for offering in snapshot.offerings}
        named = dict.fromkeys(profile for pool in snapshot.pools for profile in pool.profiles)
        #: Profiles of which nothing is known: they must not make a shape unsatisfiable.
        self.unseen: tuple[ProfileName, ...] = tuple(
            profile for profile in named if profile not in seen or profile in snapshot.silent
        )

    def shelf(self, labels: Labels) -> Shelf:
        """What carries `labels`."""
        shelf = self._shelves.get(labels)
        if shelf is None:
            kinds = self._labelled(self.shelf(()).kinds, labels) if labels else self._all_kinds()
            shelf = self._shelves[labels] = Shelf(list(kinds))
        return shelf

    def host(self, pool: Pool, offering: Offering) -> Host:
        """What an instance of `offering` would be to tasks in `pool`."""
        key = (pool.name, offering.key)
        host = self._hosts.get(key)
        if host is None:
            machine = offering.machine(
                pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance
            )
            host = self._hosts[key] = Host(machine)
        return host

    def can_run(self, need: Need) -> bool:
        """Whether a pool may ever rent something that runs `need`: blocked or not, at whatever price, caps apart."""
        shelf = self.shelf(need.shape.labels)
        kinds = (shelf.front, shelf.dimmed, (kind for kind in shelf.kinds if kind.listed is None))
        return any(kind.serves(need) and fit_empty(kind.room, need) > 0 for kind in chain(*kinds))

    def _all_kinds(self) -> Iterator[Kind]:
        for pool, offerings in self._admitted:
            grouped: dict[tuple[str, str, Market], list[Offering]] = {}
            for offering in offerings:
                grouped.setdefault((offering.profile, offering.type.name, offering.market), []).append(offering)
            rooms: dict[int, Room] = {}
            for alike in grouped.values():
                capacity = alike[0].type.capacity
                room = rooms.get(id(capacity))
                if room is None:
                    room = rooms[id(capacity)] = room_of(capacity - pool.reserve, pool.max_tasks_per_instance)
                yield self._kind(pool, alike, room)

    def _labelled(self, kinds: Iterable[Kind], labels: Labels) -> Iterator[Kind]:
        for kind in kinds:
            pool = kind.pool
            fitting = [o for o in kind.offerings if all(_label(pool, o, name) == value for name, value in labels)]
            if len(fitting) == len(kind.offerings):
                yield kind
            elif fitting:
                yield self._kind(pool, fitting, kind.room)

    def _kind(self, pool: Pool, offerings: list[Offering], room: Room) -> Kind:
        self._kinds += 1
        return Kind(self._kinds, pool, offerings, room, self.shut, self._paces)


def _label(pool: Pool, offering: Offering, key: str) -> str | None:
    """The value of label `key` on an instance, as `Offering.machine` would give it: the pool's beat the offering's."""
    for labels in (pool.labels, offering.labels):
        for name, value in labels:
            if name == key:
                return value
    if key == "type":
        return offering.type.name
    if key == "zone":
        return offering.zone
    if key == "market":
        return str(offering.market)
    return offering.type.architecture if key == "arch" else None


def _admitted(pool: Pool, offerings: Iterable[Offering]) -> list[Offering]:
    """As `Pool.admits`, asking the type patterns once a type."""
    types: dict[str, bool] = {}
    profiles, markets = frozenset(pool.profiles), frozenset(pool.markets)
    found = []
    for offering in offerings:
        if offering.profile in profiles and offering.market in markets:
            name = offering.type.name
            admits = types.get(name)
            if admits is None:
                admits = types[name] = pool.types.admits(name)
            if admits:
                found.append(offering)
    return found


def _shut(snapshot: Snapshot) -> dict[int, str]:
    """Why offerings may not be launched now: their profile is silent, or a failure is remembered."""
    silent = frozenset(snapshot.silent)
    blocks: dict[str, dict[tuple[str, str, str, str], Blocked]] = {}
    for block in snapshot.blocked:
        if block.until_ms > snapshot.now_ms:
            known = blocks.setdefault(block.profile, {})
            key = (block.type, block.zone, block.market, block.family)
            if key not in known or known[key].until_ms < block.until_ms:
                known[key] = block
    if not silent and not blocks:
        return {}
    masks = {name: {tuple(map(bool, key)) for key in known} for name, known in blocks.items()}
    shut: dict[int, str] = {}
    for offering in snapshot.offerings:
        if offering.profile in silent:
            shut[id(offering)] = f"profile {offering.profile} can't be listed now, so nothing is launched there"
            continue
        own = (offering.type.name, offering.zone, str(offering.market), offering.type.family)
        for mask in sorted(masks.get(offering.profile, ())):
            kept = [part if used else "" for part, used in zip(own, mask, strict=True)]
            found = blocks[offering.profile].get((kept[0], kept[1], kept[2], kept[3]))
            if found is not None:
                seconds = -(-(found.until_ms - snapshot.now_ms) // 1000)
                where = "/".join(filter(None, (found.profile, *kept)))
                shut[id(offering)] = f"{where} blocked for another {seconds}s: {found.reason}"
                break
    return shut


def _front(kinds: Iterable[Kind]) -> list[Kind]:
    """Group by group, the kinds that no other one covers at no higher price, cheapest first. One covers another when
    whatever runs on that one could run on it, labels apart."""
    groups: dict[tuple[PoolName, ProfileName], list[tuple[int, int, Kind]]] = {}
    for kind in kinds:
        if kind.rate is not None:
            groups.setdefault(kind.group, []).append((kind.rate, -kind.room[0], kind))
    found: list[Kind] = []
    for ranked in groups.values():
        ranked.sort(key=itemgetter(0, 1))
        recent: list[tuple[Room, bool, str, int]] = []  # what covered last is the likeliest to cover the next
        for _, _, kind in ranked:
            cpus, memory, disk, gpus, _ = kind.room
            spot, gpu, gpu_memory = kind.spot, kind.type.gpu_type, kind.type.gpu_memory
            for position, (room, other_spot, other_gpu, other_memory) in enumerate(recent):
                if room[0] < cpus or room[1] < memory or room[2] < disk or room[3] < gpus:
                    continue
                if (spot or not other_spot) and (not gpu or gpu == other_gpu) and other_memory >= gpu_memory:
                    if position:
                        recent.insert(0, recent.pop(position))
                    break
            else:
                recent.append((kind.room, spot, gpu, gpu_memory))
                found.append(kind)
    return found
