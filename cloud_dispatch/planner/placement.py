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
from typing import Any, NamedTuple

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.shape import Load, Machine
from cloud_dispatch.planner.bins import Bin, Host, beside, dearest, order_of, slots_beside, sweep
from cloud_dispatch.planner.needs import UNBOUNDED, Need, Pace, Paces, Room
from cloud_dispatch.planner.snapshot import Snapshot, Supply

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

    Not yet registered ones are, within their boot time (longer where no dispatcher was there to register with, or the
    clock was set): they must not be launched again. A launch in doubt, and an instance out of contact or not yet heard
    after a start, is for `doubt_ms`: a short silence must not make a storm of launches, a long one must not starve the
    queue. Held, draining, stale, failed and ending ones are not.
    """
    pool = pools.get(one.pool)
    stand = _STANDING.get(one.state, Standing.NONE)
    if pool is None or one.stale or one.behaviour is not Behaviour.RUN or stand is Standing.NONE:
        return _NONE
    from_intent_ms = snapshot.doubt_ms if one.in_doubt else UNBOUNDED
    if stand is Standing.BOOTING:
        excused = snapshot.now_ms < snapshot.boots_excused_ms
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
    turns = [(need, need.gives_way(now)) for need in needs]
    return [*turns, *((need, False) for need, own in turns if own)]
