"""What waits, as the planner counts with it. Owns a demand item's progress in one plan, and the arithmetic of slots.

A *slot* is the room of one task on an instance, kept for as long as the plan looks ahead; it serves one task after
another. How many (its *rounds*) follows from the expected runtime and from the pool's pace. A task of unknown runtime
takes its slot for itself: one round.

Everything here is counted in shapes: nothing costs more because more tasks wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import GIVES_WAY_MS
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.preempted import Passed
from cloud_dispatch.planner.snapshot import DemandItem

#: What is free on an instance: millicpus, bytes of memory, bytes of disk, gpus, tasks.
Room = tuple[int, int, int, int, int]
UNBOUNDED = 1 << 62
FULL: Room = (0, 0, 0, 0, 0)
#: Slots are added up in so small parts: of a million rounds none is lost or won.
_PARTS = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """How much work is given to one instance before another one is rented. One object a (pool, boot time).

    `drain_ms`: what waits shall be done in so long. `worth_ms`: work that is worth a boot, so that what exists is given
    at least that much; for `ahead_ms`, the longer of both, it is given work. `lifetime_ms` and `max_tasks` (0: no
    limit) are the ends that an instance has of its own. Another one would be up in `boot_ms`.
    """

    drain_ms: int
    worth_ms: int
    lifetime_ms: int
    max_tasks: int
    ahead_ms: int
    boot_ms: int

    def is_soon(self, ahead_ms: int) -> bool:
        """Whether what comes free `ahead_ms` before the end of what is planned for does so before another instance
        would be up."""
        return self.ahead_ms - ahead_ms <= self.boot_ms


class Paces:
    """The paces of one plan, so that equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Pace] = {}

    def of(self, pool: Pool, boot_ms: int) -> Pace:
        key = (pool.name, boot_ms)
        pace = self._known.get(key)
        if pace is None:
            drain, worth = pool.target_drain_ms, boot_ms * pool.min_work_per_boot_percent // 100
            pace = Pace(drain, worth, pool.end.lifetime_ms, pool.end.max_tasks, max(drain, worth), boot_ms)
            self._known[key] = pace
        return pace


class Need:
    """One demand item in one plan: how many of its tasks are `left` to be served, and who serves the others.

    `starting` start on free slots now, `following` follow on running instances, `booting` and `opened` are served by
    instances that boot and that this plan launches. `why` and `obstacles` say what stands in the way of those left.
    `short`: how many instances caps keep from being launched. `overdue`: one of those left has waited for longer than
    is planned ahead, and counts no more on what runs. `passed`: cheaper offerings than those that are rented for it.
    """

    __slots__ = (
        "_follow", "_rounds", "anywhere", "booting", "capable", "cpus", "disk", "exclusive", "following", "gpus",
        "index", "item", "key", "left", "limit", "memory", "obstacles", "opened", "overdue", "passed", "shape", "short",
        "starting", "unit", "why",
    )  # fmt: skip

    def __init__(self, index: int, item: DemandItem) -> None:
        shape = item.shape
        self.index = index
        self.item = item
        self.shape = shape
        self.cpus = shape.resources.cpus_milli
        self.memory = shape.resources.memory
        self.disk = shape.resources.disk
        self.gpus = shape.resources.gpus
        self.limit = shape.max_per_instance
        self.exclusive = shape.exclusive
        self.key = shape.key if self.limit else ""
        #: Whether resources are all that it asks for: then no machine has to be asked about anything else.
        self.anywhere = (
            shape.preemptible and not shape.labels and not shape.gpu_type and not shape.gpu_memory and not shape.pool
            and not item.most_rate
        )  # fmt: skip
        self.left = item.count
        self.starting = self.following = self.booting = self.opened = 0
        self.capable: bool | None = None
        self.unit: int | None = None
        self.why = ""
        self.obstacles: set[Obstacle] = set()
        self.short = 0
        self.overdue = False
        self.passed: tuple[Passed, ...] = ()
        self._rounds: dict[Pace, int] = {}
        self._follow: dict[Pace, tuple[int, int]] = {}  # the rounds that may follow on one, and how long each takes

    @property
    def urgency(self) -> tuple[int, int, int]:
        """Sorts the most urgent first: priority, then who waits longest."""
        return (-self.item.priority, self.item.oldest_ms, self.index)

    @property
    def difficulty(self) -> tuple[int, int, int, int, int, int, int]:
        """Sorts by priority, then those that are hardest to place: small ones fill what large ones leave."""
        choosy = -2 if self.exclusive else -1 if not self.anywhere else 0
        return (-self.item.priority, choosy, -self.gpus, -self.cpus, -self.memory, self.item.oldest_ms, self.index)

    def waited_ms(self, now: int) -> int:
        """How long the one that comes next has waited; 0 unknown."""
        return now - self.item.oldest_ms if self.item.oldest_ms else 0

    def gives_way(self, now: int) -> bool:
        """Whether it wants for itself what others have first where it is much too large for it. That ends with age."""
        return self.exclusive and self.waited_ms(now) < GIVES_WAY_MS

    @property
    def shortest_ms(self) -> int:
        """Nothing follows on what comes free so late that less time is left; of unknown length nothing ever does."""
        item = self.item
        return min((expected_ms for expected_ms, _ in item.lengths), default=item.expected_ms or UNBOUNDED)

    def rounds(self, pace: Pace) -> int:
        """How many tasks one slot serves, one after another, before another instance is worth renting."""
        known = self._rounds.get(pace)
        if known is None:
            known = self._rounds[pace] = _rounds(self.item, pace)
        return known

    def rounds_after(self, pace: Pace, ahead_ms: int) -> int:
        """How many of them one slot serves that comes free only when what has it now is done, `ahead_ms` before the
        end of what is planned for. Where that is soon it serves one, however long: another instance would do no more.
        """
        known = self._follow.get(pace)
        if known is None:
            known = self._follow[pace] = (self.rounds(pace) - 1, _mean(self.item, pace.ahead_ms))
        most, expected = known
        if expected <= 0:
            return 0
        rounds = ahead_ms // expected
        return min(rounds, most) if rounds and most else int(pace.is_soon(ahead_ms))

    def slots_wanted(self, pace: Pace, *, capable: bool) -> int:
        """How many new slots the tasks left are worth; `capable`: something that exists comes to run them.

        Enough to be done within the target drain; but where the runtime is known, each with a boot's worth of work.
        What is too little for that waits for what exists, and gets one slot where nothing that exists could run it.
        """
        wanted = -(-self.left // self.rounds(pace))
        if self.item.expected_ms > 0 and pace.worth_ms > 0:
            justified = self.left * _mean(self.item, pace.worth_ms) // pace.worth_ms
            least = 0 if capable else 1
            if pace.max_tasks:  # nothing follows on an instance that has had its tasks: each so many want a boot anyway
                least = max(least, self.left // pace.max_tasks)
            wanted = min(wanted, max(justified, least))
        return wanted


def _rounds(item: DemandItem, pace: Pace) -> int:
    """Tasks a slot, for tasks that come as they are mixed. One that takes longer than is planned ahead has a slot, and
    no more: by the mean of all, a few such ones would have an instance rented for each of a thousand short ones."""
    if item.expected_ms <= 0:
        return 1
    slots = tasks = 0
    for expected_ms, count in item.lengths or ((item.expected_ms, 1),):
        rounds = max(1, pace.drain_ms // expected_ms, -(-pace.worth_ms // expected_ms))
        rounds = min(rounds, max(1, pace.lifetime_ms // expected_ms))
        rounds = min(rounds, pace.max_tasks or rounds)
        slots += count * _PARTS // rounds
        tasks += count
    return max(tasks * _PARTS // max(slots, 1), 1)


def _mean(item: DemandItem, most_ms: int) -> int:
    """How long a task takes, in the mean; of those that differ, what is longer than `most_ms` counts as that."""
    if not item.lengths:
        return item.expected_ms
    tasks = sum(count for _, count in item.lengths)
    return max(sum(min(expected_ms, most_ms) * count for expected_ms, count in item.lengths) // tasks, 1)


def room_of(capacity: Resources, tasks: int) -> Room:
    """`capacity` as room, for at most `tasks` tasks at once (0: no limit)."""
    return (capacity.cpus_milli, capacity.memory, capacity.disk, capacity.gpus, tasks or UNBOUNDED)


def fit(room: Room, need: Need) -> int:
    """How many slots of `need` find room, its limits per instance apart."""
    cpus, memory, disk, gpus, count = room
    if need.cpus and cpus // need.cpus < count:
        count = cpus // need.cpus
    if need.memory and memory // need.memory < count:
        count = memory // need.memory
    if need.disk and disk // need.disk < count:
        count = disk // need.disk
    if need.gpus and gpus // need.gpus < count:
        count = gpus // need.gpus
    return max(count, 0)


def fit_empty(room: Room, need: Need) -> int:
    """How many slots of `need` find `room` on an instance on which nothing else runs."""
    cpus, memory, disk, gpus, count = room
    if need.cpus and cpus // need.cpus < count:
        count = cpus // need.cpus
    if need.memory and memory // need.memory < count:
        count = memory // need.memory
    if need.gpus and gpus // need.gpus < count:
        count = gpus // need.gpus
    if need.disk and disk // need.disk < count:
        count = disk // need.disk
    if need.limit and need.limit < count:
        count = need.limit
    if count < 0:
        return 0
    return 1 if count and need.exclusive else count


def useful_slots(room: Room, need: Need, pace: Pace) -> int:
    """How many slots of `need` are of use on a new instance with `room`: what ends after so many tasks has no use for
    more than serve these."""
    slots = fit_empty(room, need)
    return min(slots, -(-pace.max_tasks // need.rounds(pace))) if pace.max_tasks else slots


def less(room: Room, need: Need, slots: int) -> Room:
    """`room` after `slots` slots of `need` were taken from it; nothing is left beside an exclusive task."""
    if need.exclusive and slots:
        return FULL
    cpus, memory, disk, gpus, tasks = room
    return (
        cpus - need.cpus * slots,
        memory - need.memory * slots,
        disk - need.disk * slots,
        gpus - need.gpus * slots,
        tasks - slots,
    )
