"""Machines as work is placed on them. Owns what is left on alike ones, and who is given it in which order.

Identical instances are counted, not walked one by one; who differs from the others of its group leaves it.
"""

from __future__ import annotations

from typing import Any, Protocol

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.shape import Load, Machine
from cloud_dispatch.planner.needs import FULL, UNBOUNDED, Need, Pace, Room, fit, fit_empty, less, room_of
from cloud_dispatch.spend.payers import part_rate


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
