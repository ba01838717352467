"""Fitting demand onto what exists: running instances first, then those that boot. Owns which instances are capacity.

Identical instances are counted, not walked one by one. On a running instance what is free now serves first; what its
tasks leave serves from when they are expected to be done. A new launch is only ever made for what remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Load, Machine
from cloud_dispatch.planner.needs import FULL, UNBOUNDED, Need, Pace, Paces, Room, fit, fit_empty, less, room_of
from cloud_dispatch.planner.snapshot import Snapshot, Supply
from cloud_dispatch.spend.payers import part_rate

_S = InstanceState


class Standing(StrEnum):
    """What an instance is to demand that waits now."""

    RUNNING = "running"
    BOOTING = "booting"
    NONE = "none"  # counts against caps only


_STANDING = {
    _S.IDLE: Standing.RUNNING,
    _S.BUSY: Standing.RUNNING,
    _S.OUT_OF_CONTACT: Standing.RUNNING,
    _S.UNKNOWN: Standing.RUNNING,
    _S.INTENDED: Standing.BOOTING,
    _S.LAUNCHING: Standing.BOOTING,
    _S.BOOTING: Standing.BOOTING,
}
_SILENT = frozenset({_S.OUT_OF_CONTACT, _S.UNKNOWN})
#: What instances of one kind are to demand, and for how long: after their intent, and in their state (ms).
_Terms = tuple[Standing, int, int]
_NONE: _Terms = (Standing.NONE, 0, 0)


def _terms(one: Supply, snapshot: Snapshot, pools: Mapping[PoolName, Pool]) -> _Terms:
    """Whether instances of the kind of `one` are capacity for new work.

    Not yet registered ones are, within their boot time (longer where no dispatcher was there to register with): they
    must not be launched again. A launch in doubt, and an instance out of contact or not yet heard after a start, is for
    `doubt_ms`: a short silence must not make a storm of launches, a long one must not starve the queue. Held, draining,
    stale, failed and ending ones are not.
    """
    pool = pools.get(one.pool)
    stand = _STANDING.get(one.state, Standing.NONE)
    if pool is None or one.stale or one.behaviour is not Behaviour.RUN or stand is Standing.NONE:
        return _NONE
    from_intent_ms = snapshot.doubt_ms if one.in_doubt else UNBOUNDED
    if stand is Standing.BOOTING:
        excused = one.state is _S.BOOTING and snapshot.now_ms < snapshot.boots_excused_ms
        return stand, from_intent_ms if excused else min(from_intent_ms, pool.boot_deadline_ms), UNBOUNDED
    return stand, from_intent_ms, snapshot.doubt_ms if one.state in _SILENT else UNBOUNDED


def _standings(snapshot: Snapshot, pools: Mapping[PoolName, Pool]) -> Iterator[tuple[Standing, Supply, int]]:
    """What is capacity, by kind: one of them, and how many. Each is looked at only where it is a matter of time."""
    now = snapshot.now_ms
    for alike in snapshot.alike:
        one, count = alike[0], len(alike)
        stand, from_intent_ms, in_state_ms = _terms(one, snapshot, pools)
        if stand is Standing.NONE:
            continue
        if from_intent_ms < UNBOUNDED or in_state_ms < UNBOUNDED:
            count = sum(now - s.intended_ms < from_intent_ms and now - s.since_ms < in_state_ms for s in alike)
        if count:
            yield stand, one, count


class _Offered:
    """What is offered like an instance."""

    def __init__(self, snapshot: Snapshot, pools: Mapping[PoolName, Pool], paces: Paces) -> None:
        self._pools, self._paces = pools, paces
        self._offerings: dict[tuple[str, ...], Offering] = {
            (o.profile, o.type.name, o.zone, o.market): o for o in snapshot.offerings
        }
        self._known: dict[tuple[str, ...], Pace] = {}
        self._priced = any(item.most_rate for item in snapshot.demand)

    def pace(self, one: Supply) -> Pace:
        """Its pace, by the boot time of what is offered like it."""
        place = (one.pool, one.profile, one.type, one.zone, one.market)
        pace = self._known.get(place)
        if pace is None:
            like = self._offerings.get(place[1:])
            pace = self._known[place] = self._paces.of(self._pools[one.pool], like.boot_ms if like else 0)
        return pace

    def top_rate(self, one: Supply) -> int | None:
        """The most that it may cost, as long as nobody can have asked there for work; None where no payer minds. What
        has asked has been told what is too dear there."""
        if not self._priced:
            return None
        like = self._offerings.get((one.profile, one.type, one.zone, one.market))
        if like is None:
            return UNBOUNDED if one.rate is None else one.rate
        return dearest(like)


def dearest(offering: Offering) -> int:
    """What one may cost an hour at most: where nobody knows, more than anybody who minds pays for."""
    return UNBOUNDED if offering.highest_rate is None else offering.top_rate


class Host:
    """A machine, with the shapes that were asked about it remembered, and what it is too old or, at `top_rate`, too
    dear for."""

    __slots__ = ("_can", "declines", "identity", "machine", "room", "top_rate")

    def __init__(self, machine: Machine, declines: tuple[int, ...] = (), top_rate: int | None = None) -> None:
        self.machine = machine
        self.top_rate = top_rate
        self.declines = frozenset(declines)
        self.room = room_of(machine.capacity, machine.max_tasks)
        #: Tells it from any other machine with the same room.
        self.identity = (machine.pool, machine.labels, machine.spot, machine.gpu_type, machine.gpu_memory, declines)
        self._can: dict[int, bool] = {}

    def can(self, need: Need) -> bool:
        """Whether the machine, when empty, is given tasks of `need` at all."""
        if need.index in self.declines:
            return False
        if need.anywhere:
            return fit_empty(self.room, need) > 0
        known = self._can.get(need.index)
        if known is None:
            known = self._can[need.index] = not self.machine.misfit(need.shape) and self._is_paid_for(need)
        return known

    def is_for(self, need: Need) -> bool:
        """Whether nothing that waits beside `need` goes before it here."""
        return not self.machine.gives_way(need.shape)

    def _is_paid_for(self, need: Need) -> bool:
        if not need.item.most_rate or self.top_rate is None:
            return True
        rate, capacity, shape = Rate(self.top_rate), self.machine.capacity, need.shape
        part = part_rate(rate, shape.resources, exclusive=shape.exclusive, capacity=capacity)
        return part <= need.item.most_rate


class Served(Protocol):
    """Who wants to know what a launch of this plan will be used for."""

    def serves(self, need: Need, tasks: int, fresh: int) -> None:
        """`tasks` of `need` are placed on it, on instances of which `fresh` had nothing before."""


class Bin:
    """`count` alike instances, and what is left on each: `now`, and `later`, when all that is expected to be done has
    ended; what `stays` keeps its room. For `ahead_ms` from then on it is given work. `ending`: what is expected to be
    done."""

    __slots__ = (
        "ahead_ms", "count", "ending", "fresh", "host", "later", "launch", "loaded", "now", "order", "pace", "placed",
        "quota", "running", "stays",
    )  # fmt: skip

    def __init__(
        self, host: Host, pace: Pace, count: int, load: Load, order: tuple[Any, ...], stays: Load = Load(),
        wait_ms: int = 0,
    ) -> None:  # fmt: skip
        self.host = host
        self.pace = pace
        self.count = count
        self.order = order
        self.loaded = load.tasks > 0
        self.fresh = True
        self.stays = stays
        self.ahead_ms = pace.ahead_ms - wait_ms
        self.later = beside(host.room, stays) if stays.tasks else host.room
        self.now = beside(host.room, load)
        self.ending = load.tasks - stays.tasks
        self.quota = pace.max_tasks - load.tasks if pace.max_tasks else UNBOUNDED
        self.running = dict(load.limited)
        self.placed: dict[str, int] = {}
        self.launch: Served | None = None

    def slots_now(self, need: Need) -> int:
        """Slots that are free at once; the same as `domain.shape.room_for` where the machine runs `need` at all."""
        if need.exclusive:
            return 0 if self.loaded or not self.fresh else min(1, fit(self.now, need))
        slots = fit(self.now, need)
        if need.limit:
            slots = min(slots, need.limit - self.running.get(need.key, 0) - self.placed.get(need.key, 0))
        return slots

    def slots_later(self, need: Need) -> int:
        """Slots that come free when what is expected to be done has ended."""
        if need.exclusive and not self.fresh:
            return 0
        return slots_beside(self.later, self.stays, need, self.placed.get(need.key, 0))

    def comes_at_once(self, need: Need) -> bool:
        """Whether a slot for `need` comes free with the end of one task, as far as they are alike. What has to wait for
        the end of several finds that whatever is smaller and waits has taken what the first of them left."""
        if not self.ending or self.slots_later(need) <= 0:
            return False
        if need.exclusive:
            return self.ending == 1
        each = [-(-(later - now) // self.ending) for later, now in zip(self.later, self.now, strict=True)]
        cpus, memory, disk, gpus, tasks = (max(now, 0) + one for now, one in zip(self.now, each, strict=True))
        return fit((cpus, memory, disk, gpus, tasks), need) > 0

    def put(self, need: Need, slots: int, tasks: int) -> None:
        """Give `slots` slots of each instance to `need`, for `tasks` tasks of its quota."""
        self.now = less(self.now, need, slots)
        self.later = less(self.later, need, slots)
        self.fresh = False
        self.quota -= tasks
        if need.limit:
            self.placed = {**self.placed, need.key: self.placed.get(need.key, 0) + slots}

    def part(self, count: int) -> Bin:
        """Take `count` of the instances out as a group of their own."""
        other = Bin.__new__(Bin)
        for name in Bin.__slots__:
            setattr(other, name, getattr(self, name))
        other.count = count
        self.count -= count
        return other


class _Group(NamedTuple):
    """`size` instances like `one`, that is capacity as `standing` says, once `wait_ms` have passed."""

    standing: Standing
    host: Host
    pace: Pace
    wait_ms: int
    one: Supply
    size: int

    @property
    def is_loaded(self) -> bool:
        return self.standing is Standing.RUNNING and self.one.load.tasks > 0

    def bin(self) -> Bin:
        one, host = self.one, self.host
        order = order_of(one.load.tasks > 0, one.rate, host, self.pace)
        if self.standing is Standing.BOOTING:
            return Bin(host, self.pace, self.size, one.load, order)
        return Bin(host, self.pace, self.size, one.load, order, one.stays, self.wait_ms)

    def after(self) -> tuple[Host, Room, Load]:
        """With what is left when all that is expected to be done has ended."""
        stays = self.one.stays
        return self.host, beside(self.host.room, stays) if stays.tasks else self.host.room, stays


class Capacity:
    """What runs and what boots, in the order in which it is filled: in use before idle, cheap and small before dear.

    Sorted only when there is demand to place: most plans of a large fleet that is busy have none.
    """

    def __init__(self, snapshot: Snapshot, pools: Mapping[PoolName, Pool], paces: Paces) -> None:
        self._snapshot, self._pools, self._paces = snapshot, pools, paces
        self._now = snapshot.now_ms
        self._standings = tuple(_standings(snapshot, pools))
        self._interned: dict[tuple[object, ...], Host] = {}
        self._by_id: dict[int, Host] = {}
        #: How many instances of a pool are capacity, whatever they can run.
        self.serving: dict[PoolName, int] = {}
        for _, one, count in self._standings:
            self.serving[one.pool] = self.serving.get(one.pool, 0) + count

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        """What exists, alike instances together, whatever tells their kinds apart that is nothing to demand."""
        offered = _Offered(self._snapshot, self._pools, self._paces)
        now = self._now
        groups: dict[tuple[Any, ...], _Group] = {}
        for stand, one, count in self._standings:
            wait_ms = one.free_ms - now if one.free_ms > now else 0
            top_rate = offered.top_rate(one) if stand is Standing.BOOTING else None
            host, pace = self.host(one.machine, one.declines, top_rate), offered.pace(one)
            key = (stand, host, pace, wait_ms, one.rate, one.holding)
            known = groups.get(key)
            if known is None:
                groups[key] = _Group(stand, host, pace, wait_ms, one, count)
            else:
                groups[key] = known._replace(size=known.size + count)
        return tuple(groups.values())

    @cached_property
    def _coming(self) -> tuple[tuple[Host, Room, Load], ...]:
        """What has to end something before it takes more work, with what it then has."""
        return tuple({g.after(): None for g in self._groups if g.is_loaded and g.pace.ahead_ms >= g.wait_ms})

    @cached_property
    def _free(self) -> tuple[Host, ...]:
        """What takes work at once, or when it is up."""
        return tuple({group.host: None for group in self._groups if not group.is_loaded})

    def host(self, machine: Machine, declines: tuple[int, ...] = (), top_rate: int | None = None) -> Host:
        """The one host of all machines that equal `machine`, decline the same and cost as much."""
        plain = not declines and top_rate is None
        host = self._by_id.get(id(machine)) if plain else None
        if host is None:
            amounts = machine.capacity
            key = (
                amounts.cpus_milli, amounts.memory, amounts.disk, amounts.gpus, machine.max_tasks, machine.gpu_type,
                machine.gpu_memory, machine.labels, machine.spot, machine.pool, declines, top_rate,
            )  # fmt: skip
            host = self._interned.get(key)
            if host is None:
                host = self._interned[key] = Host(machine, declines, top_rate)
            if plain:
                self._by_id[id(machine)] = host
        return host

    def fill_running(self, needs: Sequence[Need]) -> None:
        """Serve `needs`, in this order, by what runs: by what is free now, then by what comes free."""
        if not needs:
            return
        cpus, memory = min(n.cpus for n in needs), min(n.memory for n in needs)
        running = [group.bin() for group in self._groups if group.standing is Standing.RUNNING]
        running.sort(key=attrgetter("order"))
        free = [b for b in running if b.now[4] > 0 and b.now[0] >= cpus and b.now[1] >= memory]
        shortest = min(n.shortest_ms for n in needs)
        loaded = [
            b
            for b in running
            if b.loaded
            and (b.ahead_ms >= shortest or b.pace.is_soon(b.ahead_ms))
            and b.later[4] > 0
            and b.later[0] >= cpus
            and b.later[1] >= memory
        ]
        for need, own in [turn for _, alike in groupby(needs, _priority) for turn in _turns([*alike], self._now)]:
            before = need.left
            started = sweep(need, free, loaded, own=own)
            if need.left:
                need.overdue = self._is_overdue(need, loaded)
                need.left -= need.overdue
                sweep(need, loaded, free, later=True, own=own)
                need.left += need.overdue
            need.starting += started
            need.following += before - need.left - started
            if 0 < need.left < before:
                free = [b for b in free if b.now[4] > 0 and b.now[0] >= cpus and b.now[1] >= memory]
                loaded = [b for b in loaded if b.later[4] > 0 and b.later[0] >= cpus and b.later[1] >= memory]

    def _is_overdue(self, need: Need, loaded: Iterable[Bin]) -> bool:
        """Whether one of `need` counts no more on what comes free on `loaded`: it has waited for longer than it would
        have taken to follow there, and its turn comes on none of them with the end of one task. What ends before it
        takes another task is none of them."""
        waited_ms = need.waited_ms(self._now)
        able = [group for group in loaded if group.quota > 0 and group.host.can(need)] if waited_ms > 0 else []
        return bool(able) and not any(waited_ms < b.pace.ahead_ms or b.comes_at_once(need) for b in able)

    def fill_booting(self, needs: Sequence[Need], launches: Iterable[Bin]) -> None:
        """Serve what is left of `needs` by what boots and by the `launches` of this plan.

        Who asks for GPUs chooses first, as it claims first where there are some, then who has the fewest places to go,
        whatever its urgency: nothing is claimed yet, and the question is whether there is a place for everybody. What
        one has chosen is filled before another machine is: it is paid for
        whatever else it does, and one of the launches may not be wanted then.
        """
        if not any(need.left for need in needs):
            return
        bins = [group.bin() for group in self._groups if group.standing is Standing.BOOTING]
        bins.extend(launches)
        bins.sort(key=attrgetter("order"))
        places = {n: sum(b.count for b in bins if b.host.can(n)) for n in needs if n.left}
        order = sorted(places, key=lambda n: (not n.gpus, places[n], n.difficulty[1:]))
        for need, own in _turns(order, self._now):
            if places[need] and need.left:
                before, opened = need.left, need.opened
                sweep(need, bins, own=own)
                bins.sort(key=attrgetter("fresh"))
                need.booting += before - need.left - (need.opened - opened)

    def can_run(self, need: Need) -> bool:
        """Whether something that runs or boots is able to run `need` when it is empty."""
        return any(group.host.can(need) for group in self._groups)

    def comes_to(self, need: Need) -> bool:
        """Whether something that runs or boots has room for tasks of `need` by itself within the time that is planned
        for: others may want that room too, but nothing of unknown or greater length holds it."""
        return any(host.can(need) for host in self._free) or any(
            not need.overdue and room[0] >= need.cpus and host.can(need) and slots_beside(room, stays, need) > 0
            for host, room, stays in self._coming
        )


def _priority(need: Need) -> int:
    return need.item.priority


def _turns(needs: Sequence[Need], now: int) -> list[tuple[Need, bool]]:
    """`needs`, in this order, what gives way twice: to have its `own`, where it has no need to, and then, behind all
    others, what these leave."""
    giving = [need for need in needs if need.gives_way(now)]
    return [*((need, need in giving) for need in needs), *((need, False) for need in giving)]


def beside(room: Room, load: Load) -> Room:
    """What `load` leaves of `room`."""
    if load.exclusive:
        return FULL
    cpus, memory, disk, gpus, tasks = room
    used = load.used
    return (cpus - used.cpus_milli, memory - used.memory, disk - used.disk, gpus - used.gpus, tasks - load.tasks)


def slots_beside(room: Room, load: Load, need: Need, placed: int = 0) -> int:
    """How many slots of `need` find `room`, which `load` has left, and beside so many that are given already."""
    if need.exclusive:
        return 0 if load.tasks else min(1, fit(room, need))
    slots = fit(room, need)
    return min(slots, need.limit - dict(load.limited).get(need.key, 0) - placed) if need.limit else slots


def order_of(loaded: bool, rate: int | None, host: Host, pace: Pace) -> tuple[Any, ...]:
    """Sorts bins: those in use, then by price (unknown last), then small ones, so that the larger stay for others.

    Ties are broken by what an instance is, so that launches are in the same place of the order once they boot.
    """
    return (
        not loaded, UNBOUNDED if rate is None else rate, host.room, -pace.drain_ms, -pace.worth_ms, host.identity,
    )  # fmt: skip


def sweep(
    need: Need, bins: list[Bin], mirror: list[Bin] | None = None, *, later: bool = False, own: bool = False
) -> int:
    """Serve `need` by `bins`, in order, until nothing is left; returns how many slots that are free now were given.

    `later`: by what comes free only after a first round. `own`: only where it does not give way. A bin that is divided
    is divided in `mirror` too.
    """
    started = 0
    cpus, memory = need.cpus, need.memory
    for group in bins:
        room = group.later if later else group.now
        if room[0] < cpus or room[1] < memory or room[4] <= 0:
            continue
        if not (need.anywhere and not group.host.declines) and not group.host.can(need):
            continue
        if own and not group.host.is_for(need):
            continue
        rounds = need.rounds_after(group.pace, group.ahead_ms) if later else need.rounds(group.pace)
        slots = (group.slots_later(need) if later else group.slots_now(need)) if rounds > 0 else 0
        each = min(slots * rounds, group.quota)
        if each <= 0:
            continue
        slots = min(slots, -(-each // rounds))
        whole = min(need.left // each, group.count)
        if whole == group.count:
            started += give(need, group, slots, each)
            if not need.left:
                break
            continue
        rest = need.left - whole * each
        for count, tasks in ((whole, each), (1, rest)):
            if count and tasks:
                piece = group.part(count)
                started += give(need, piece, -(-tasks // rounds), tasks)
                # in the order in which instances one by one would have been filled: the untouched ones come last
                bins.insert(bins.index(group), piece)
                if mirror and group in mirror:
                    mirror.insert(mirror.index(group), piece)
        if not group.count:
            bins.remove(group)
            if mirror and group in mirror:
                mirror.remove(group)
        break
    return started


def give(need: Need, group: Bin, slots: int, tasks: int) -> int:
    """Give each instance of `group` `slots` slots of `need` for `tasks` tasks; returns all the slots given."""
    need.left -= tasks * group.count
    if group.launch is not None:
        need.opened += tasks * group.count
        group.launch.serves(need, tasks * group.count, group.count if group.fresh else 0)
    group.put(need, slots, tasks)
    return slots * group.count
