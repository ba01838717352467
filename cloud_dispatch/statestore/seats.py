"""Instances as holders of leases. Owns what an instance holds, the load that makes, and the room that is left."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Load, Machine, Shape, room_for
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.statestore.queue import Lot

_IDLE = InstanceState.IDLE  # a member of an enum is found through its metaclass, ten times as slowly as a name


class Hold:
    """A current lease: `task` under `token` at `seat`."""

    __slots__ = ("cancelling", "claimed_ms", "lot", "seat", "started_ms", "task", "token")

    def __init__(
        self,
        task: int,
        token: int,
        seat: Seat,
        claimed_ms: int,
        started_ms: int | None,
        lot: Lot,
        cancelling: bool = False,
    ) -> None:
        self.task = task
        self.token = token
        self.seat = seat
        self.claimed_ms = claimed_ms
        self.started_ms = started_ms
        self.lot = lot
        self.cancelling = cancelling

    @property
    def since_ms(self) -> int:
        """When it began, else when it was claimed."""
        return self.claimed_ms if self.started_ms is None else self.started_ms

    @property
    def state(self) -> TaskState:
        if self.cancelling:
            return TaskState.CANCELLING
        return TaskState.CLAIMED if self.started_ms is None else TaskState.RUNNING


class Seat:
    """An instance that is not gone, with what it holds.

    Its stored state is `idle` for both idle and busy: claims alone tell which, so that a claim writes no instance.
    """

    __slots__ = (
        "_busy", "_load", "exclusive", "giving", "held", "instance", "limited", "misfits", "order", "refused", "used",
    )  # fmt: skip

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.held: dict[int, Hold] = {}
        self.used = [0, 0, 0, 0]
        self.exclusive = 0
        self.limited: dict[str, int] = {}
        self.order = 0
        self.misfits: dict[int, bool] = {}  # by shape number, for this machine
        self.giving: set[int] = set()  # of those that fit, what gives way on it
        #: The payers' lines of which nothing was admitted when it last asked, with the shortest of each, 0 unknown.
        self.refused: dict[int, int] = {}
        self._busy: Instance | None = None
        self._load: Load | None = None

    def put(self, instance: Instance) -> None:
        if instance.machine != self.instance.machine:
            self.misfits.clear()
            self.giving.clear()
        self.instance = instance
        self._busy = None

    @property
    def shown(self) -> Instance:
        """The instance as others see it: busy when it serves and holds claims. The same object each time."""
        stored = self.instance
        if not self.held or stored.state is not _IDLE:
            return stored
        busy = self._busy
        if busy is None:
            busy = self._busy = replace(stored, state=InstanceState.BUSY)
        return busy

    def fits(self, machine: Machine, number: int, shape: Shape) -> bool:
        """Whether the machine, when empty, can run `shape`, the one of line `number`; asked of it once."""
        misfit = self.misfits.get(number)
        if misfit is None:
            misfit = self.misfits[number] = bool(machine.misfit(shape))
            if not misfit and machine.gives_way(shape):
                self.giving.add(number)
        return not misfit

    def forget(self, lines: AbstractSet[int]) -> None:
        """Nothing waits in any of these, nor will. It costs what is known of them here, and nothing for the others."""
        for number in self.misfits.keys() & lines:
            del self.misfits[number]
        self.giving -= self.giving & lines
        for number in self.refused.keys() & lines:
            del self.refused[number]

    def room(self, machine: Machine, shape: Shape, most: int) -> int:
        """`domain.shape.room_for` this load, faster for shapes and machines without limits (a test holds them equal).

        Only for shapes that the empty machine fits.
        """
        if shape.exclusive or shape.max_per_instance or machine.max_tasks or self.exclusive:
            return room_for(machine, self.load(), shape, most)
        have, want, used = machine.capacity, shape.resources, self.used
        if want.cpus_milli:
            most = min(most, (have.cpus_milli - used[0]) // want.cpus_milli)
        if want.memory:
            most = min(most, (have.memory - used[1]) // want.memory)
        if want.disk:
            most = min(most, (have.disk - used[2]) // want.disk)
        if want.gpus:
            most = min(most, (have.gpus - used[3]) // want.gpus)
        return most if most > 0 else 0

    def weigh(self, shape: Shape, tasks: int) -> None:
        """Add so many tasks of `shape`; a negative number takes away."""
        resources, used = shape.resources, self.used
        self._load = None
        used[0] += tasks * resources.cpus_milli
        used[1] += tasks * resources.memory
        if resources.disk:
            used[2] += tasks * resources.disk
        if resources.gpus:
            used[3] += tasks * resources.gpus
        if shape.exclusive:
            self.exclusive += tasks
        if shape.max_per_instance:
            count = self.limited.get(shape.key, 0) + tasks
            if count:
                self.limited[shape.key] = count
            else:
                del self.limited[shape.key]

    def load(self) -> Load:
        """What runs here; the same object until that changes (`held` changes together with `weigh`)."""
        load = self._load
        if load is None:
            limited = tuple(sorted(self.limited.items())) if self.limited else ()
            load = self._load = Load(Resources(*self.used), len(self.held), self.exclusive > 0, limited)
        return load
