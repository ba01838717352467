"""What a task needs of an instance. Owns the shape, and the one question whether a machine can ever serve it.

The queue, the planner and claims speak of shapes, never of single tasks: all tasks of one shape are alike to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from cloud_dispatch.domain.resources import GIB, Resources, format_bytes, format_cpus

Labels = tuple[tuple[str, str], ...]

#: So long after its submission nothing gives way any more: the default of a pool's `target_drain`.
GIVES_WAY_MS = 600_000


@dataclass(frozen=True)
class Shape:
    """A distinct resource request. Hashable; two tasks of equal shapes are interchangeable for placement.

    `gpu_type` empty and `gpu_memory` 0 mean any; `gpu_memory` is bytes per device. `labels` are sorted key-value pairs
    that the instance must carry. `preemptible` False keeps the task off spot machines. `exclusive` wants the instance
    to itself. `max_per_instance` 0 is no limit. `pool` empty means any pool.
    """

    resources: Resources = Resources(cpus_milli=1000, memory=GIB // 2)
    gpu_type: str = ""
    gpu_memory: int = 0
    labels: Labels = ()
    preemptible: bool = True
    exclusive: bool = False
    max_per_instance: int = 0
    pool: str = ""

    @cached_property
    def key(self) -> str:
        """A stable short name of the shape: the same in every process and after every restart."""
        resources = self.resources
        text = repr(
            (
                (resources.cpus_milli, resources.memory, resources.disk, resources.gpus),
                self.gpu_type, self.gpu_memory, self.labels, self.preemptible, self.exclusive, self.max_per_instance,
                self.pool,
            )
        )  # fmt: skip
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def describe(self) -> str:
        """`2 cpu, 4GiB memory, 1 gpu (a100), zone=b` for messages."""
        parts = [f"{format_cpus(self.resources.cpus_milli)} cpu", f"{format_bytes(self.resources.memory)} memory"]
        if self.resources.disk:
            parts.append(f"{format_bytes(self.resources.disk)} disk")
        if self.resources.gpus:
            kind = " ".join(filter(None, (self.gpu_type, format_bytes(self.gpu_memory) if self.gpu_memory else "")))
            parts.append(f"{self.resources.gpus} gpu" + (f" ({kind})" if kind else ""))
        parts.extend(f"{key}={value}" for key, value in self.labels)
        if not self.preemptible:
            parts.append("on-demand only")
        if self.exclusive:
            parts.append("exclusive")
        if self.pool:
            parts.append(f"pool {self.pool}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Machine:
    """What an instance of some type offers to tasks: the other side of a shape."""

    capacity: Resources
    gpu_type: str = ""
    gpu_memory: int = 0
    labels: Labels = ()
    spot: bool = False
    pool: str = ""
    #: At most this many tasks at once on the instance, 0 for no limit (a pool's setting).
    max_tasks: int = 0

    @cached_property
    def key(self) -> str:
        """Equal machines have equal keys, and no others; made once, so that many can be told apart at little cost."""
        have = self.capacity
        return repr(
            (
                have.cpus_milli, have.memory, have.disk, have.gpus, self.gpu_type, self.gpu_memory, self.labels,
                self.spot, self.pool, self.max_tasks,
            )
        )  # fmt: skip

    def misfit(self, shape: Shape) -> str:
        """Why an *empty* machine like this can never run `shape`, or "" when it can."""
        want, have = shape.resources, self.capacity
        if shape.pool and shape.pool != self.pool:
            return f"asks for pool {shape.pool}, this is pool {self.pool}"
        if want.cpus_milli > have.cpus_milli:
            return f"asks for {format_cpus(want.cpus_milli)} cpu, has {format_cpus(have.cpus_milli)}"
        if want.memory > have.memory:
            return f"asks for {format_bytes(want.memory)} memory, has {format_bytes(have.memory)}"
        if want.disk > have.disk:
            return f"asks for {format_bytes(want.disk)} disk, has {format_bytes(have.disk)}"
        if want.gpus > have.gpus:
            return f"asks for {want.gpus} gpu, has {have.gpus}"
        if shape.gpu_type and shape.gpu_type != self.gpu_type:
            return f"asks for gpu type {shape.gpu_type}, has {self.gpu_type or 'none'}"
        if shape.gpu_memory > self.gpu_memory:
            return f"asks for {format_bytes(shape.gpu_memory)} a gpu, has {format_bytes(self.gpu_memory)}"
        if not shape.preemptible and self.spot:
            return "must not be preempted, this is a spot machine"
        missing = [f"{key}={value}" for key, value in shape.labels if (key, value) not in self.labels]
        if missing:
            return f"asks for label {', '.join(missing)}"
        return ""

    def gives_way(self, shape: Shape) -> bool:
        """Whether what waits beside `shape`, is as urgent and fits too goes before it here, for `GIVES_WAY_MS`: it
        would leave idle what others could use. GPUs, where it asks for none; or more than half of the machine, where
        it wants that for itself: whatever was rented for it is smaller, unless there is nothing smaller."""
        have, want = self.capacity, shape.resources
        if have.gpus and not want.gpus:
            return True
        if self.max_tasks == 1:  # nobody could use more of it
            return False
        pairs = ((want.cpus_milli, have.cpus_milli), (want.memory, have.memory), (want.gpus, have.gpus))
        return shape.exclusive and all(2 * wanted < had for wanted, had in pairs if had)

    def half(self) -> Resources:
        """Half of what it has, of which no more than that is used."""
        have = self.capacity
        return Resources(have.cpus_milli // 2, have.memory // 2, have.disk // 2, have.gpus // 2)


@dataclass(frozen=True, slots=True)
class Load:
    """What runs on an instance now, as far as placing another task is concerned."""

    used: Resources = Resources()
    tasks: int = 0
    exclusive: bool = False
    #: Running tasks by shape key, only for shapes with a limit per instance.
    limited: tuple[tuple[str, int], ...] = ()

    def plus(self, shape: Shape) -> Load:
        """The load with one more task of `shape`."""
        limited = self.limited
        if shape.max_per_instance:
            counts = dict(limited)
            counts[shape.key] = counts.get(shape.key, 0) + 1
            limited = tuple(sorted(counts.items()))
        return Load(self.used + shape.resources, self.tasks + 1, self.exclusive or shape.exclusive, limited)


def room_for(machine: Machine, load: Load, shape: Shape, bound: int) -> int:
    """How many more tasks of `shape` an instance can take now, at most `bound`. 0 when it can never serve it."""
    if bound <= 0 or load.exclusive or machine.misfit(shape):
        return 0
    if shape.exclusive:
        return 1 if load.tasks == 0 else 0
    if machine.max_tasks:
        bound = min(bound, machine.max_tasks - load.tasks)
    if shape.max_per_instance:
        bound = min(bound, shape.max_per_instance - dict(load.limited).get(shape.key, 0))
    return max((machine.capacity - load.used).times(shape.resources, bound), 0)
