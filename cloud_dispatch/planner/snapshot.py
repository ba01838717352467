"""What the planner sees. Owns the frozen picture of demand, supply and rules at one moment.

A snapshot is complete, the moment included: replaying `plan(snapshot)` gives the same plan, so it is stored with every
plan that has actions. Its size grows with shapes, instances and offerings, never with the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import intern
from typing import Any, Self

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.payer import NOBODY, Payer, Refused
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.preemptions import Preemptions
from cloud_dispatch.domain.shape import Load, Machine, Shape
from cloud_dispatch.domain.stop import Stop
from cloud_dispatch.planner.obstacle import Obstacle


@dataclass(frozen=True)
class DemandItem:
    """`count` waiting tasks of one shape. `expected_ms` is the mean expected runtime, `head_expected_ms` that of the
    one that comes next; 0 unknown. `lengths`: where they differ much, how long some of them take, and how many each.
    `payer`: whose tasks they are, where that one has a spending limit. `withheld`: why
    none of them is begun now, whatever there is. `front`: how long the first of them say that they take, and how many
    each, and `refused` what was not admitted of them: both bear on what the payer can pay for. `most_rate`: what an
    hour of the part of a machine may cost at most that one of them holds, in nano-dollars; 0: whatever."""

    shape: Shape
    count: int
    expected_ms: int = 0
    priority: int = 0  # of the most urgent one
    oldest_ms: int = 0  # when the longest waiting one was submitted
    gang_size: int = 1
    source: str = "queue"
    head_expected_ms: int = 0
    payer: Payer = NOBODY
    withheld: str = ""
    front: tuple[tuple[int, int], ...] = ()
    refused: tuple[Refused, ...] = ()
    most_rate: int = 0
    lengths: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TargetItem:
    """Somebody wants `count` instances of a pool. `may_drain`: whether lowering it may drain instances."""

    pool: PoolName
    count: int
    source: str
    may_drain: bool = True


@dataclass(frozen=True)
class Supply:
    """One instance that is not gone. `machine` is what it offers when empty, `load` what runs on it now.

    `since_ms`: when it entered `state`; `idle_since_ms`: when its last task ended (or it registered). `in_doubt`: its
    launch was not answered; it counts against caps, and as supply only for a short while. `asks_end`: its agent asked
    to end for want of work. `stale`: its type or pool left the configuration, with the reason. `declines`: of the
    snapshot's demand, by number, what is not begun there any more though its machine could run it: it would be cut off
    at the end of the instance's life, or its payer can't pay for it there. `stays`: of its load, what is not expected
    to be done soon, or nobody knows when; the rest is done at about `free_ms`. `slack_since_ms`: since when no more
    than half of it has been used; `spot_since_ms`: since when one that is on demand has had nothing but what spot VMs
    do as well, and then `work_ms`: how long the longest of its load takes, 0 unknown; with either, `shapes` are those
    of its load.
    """

    instance: InstanceId
    pool: PoolName
    profile: ProfileName
    type: str
    zone: str
    market: str
    state: InstanceState
    behaviour: Behaviour
    machine: Machine
    load: Load
    vcpus: int
    rate: Rate | None
    intended_ms: int
    since_ms: int
    idle_since_ms: int | None = None
    in_doubt: bool = False
    asks_end: bool = False
    stale: str = ""
    declines: tuple[int, ...] = ()
    stays: Load = Load()
    free_ms: int = 0
    slack_since_ms: int | None = None
    spot_since_ms: int | None = None
    work_ms: int = 0
    shapes: tuple[Shape, ...] = ()

    @cached_property
    def holding(self) -> tuple[Any, ...]:
        """Equal where the loads are, and what stays of them."""
        load, used, stays = self.load, self.load.used, self.stays
        return (
            load.tasks, used.cpus_milli, used.memory, used.disk, used.gpus, load.exclusive, load.limited,
            stays.tasks and stays,
        )  # fmt: skip

    @cached_property
    def kind(self) -> str:
        """Instances of equal kinds differ in their names and in moments alone. Equal kinds are one object: whoever
        sorts a large fleet by them has not to read so many texts."""
        load, used, stays = self.load, self.load.used, self.stays
        return intern(
            repr(
                (
                    str(self.state), str(self.behaviour), self.pool, self.profile, self.type, self.zone, self.market,
                    self.rate, self.vcpus, self.in_doubt, self.asks_end, self.stale, load.tasks, load.exclusive,
                    load.limited, used.cpus_milli, used.memory, used.disk, used.gpus, self.machine.key, self.declines,
                    self.free_ms, stays.tasks and (stays if stays != load else "all"),
                    [shape.key for shape in self.shapes],
                )
            )
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Foreign:
    """`count` VMs that are of this deployment by their tags, and that another statestore made: `store`, a lost one.
    Nothing is done with them here, and they hold their places under the caps: of their pool, and of all `profiles` that
    list them."""

    store: str
    pool: PoolName
    profiles: tuple[ProfileName, ...]
    vcpus: int
    count: int


@dataclass(frozen=True)
class Blocked:
    """A remembered failure: offerings that match are not tried before `until_ms`. Empty fields match anything; with a
    pool or template it speaks of launches for such a pool alone."""

    profile: ProfileName
    until_ms: int
    reason: str
    type: str = ""
    zone: str = ""
    market: str = ""
    family: str = ""
    region: str = ""
    obstacle: Obstacle = Obstacle.REFUSED
    image: str = ""
    gpu: str = ""
    gpu_memory: int = 0
    pool: str = ""
    template: str = ""
    from_rate: int = 0  # only what can cost so much an hour, nano-dollars; 0: at any price

    def is_for(self, pool: Pool) -> bool:
        """Whether it speaks of launches for `pool`."""
        return self.pool in ("", pool.name) and self.template in ("", pool.template)

    def covers(self, offering: Offering) -> bool:
        """Whether it speaks of `offering`, whatever it is launched for."""
        return (
            self.profile == offering.profile
            and self.type in ("", offering.type.name)
            and self.zone in ("", offering.zone)
            and self.market in ("", offering.market)
            and self.family in ("", offering.type.family)
            and self.region in ("", offering.region)
            and self.gpu in ("", offering.type.gpu_type)
            and self.gpu_memory in (0, offering.type.gpu_memory)
            and self.image in ("", offering.image)
            and self.from_rate <= offering.top_rate
        )


@dataclass(frozen=True)
class QuotaUse:
    """What of a provider's quota, by its own `name`, is used. It bounds the offerings that match and have any of its
    `unit` (`vcpus`, `gpus`, `instances`); empty fields match anything."""

    profile: ProfileName
    name: str
    limit: int
    used: int
    type: str = ""
    zone: str = ""
    market: str = ""
    family: str = ""
    region: str = ""
    gpu: str = ""
    gpu_memory: int = 0
    unit: str = "vcpus"

    def size(self, offering: Offering) -> int:
        """What one of `offering` counts for; 0 for what it does not bound."""
        if self.unit == "gpus":
            return offering.type.capacity.gpus
        return 1 if self.unit == "instances" else max(offering.type.vcpus, 1)

    def why(self, offering: Offering, more: int = 0) -> str:
        """Why another one does not fit, with `more` used since."""
        used = f"{self.unit} {self.used + more} of {self.limit}, another {self.size(offering)} wanted"
        return f"quota {self.name} of profile {self.profile} has no room ({used})"


@dataclass(frozen=True)
class DriverCaps:
    """What bounds the profiles of one driver together."""

    driver: str
    profiles: tuple[ProfileName, ...]
    caps: Caps


@dataclass(frozen=True)
class Snapshot:
    """Everything that a plan may depend on. Sequences are in a fixed, meaningful order.

    `caps` bounds everything, `profile_caps` each profile. `silent`: profiles that can't be listed now: nothing is
    launched or ended there; `problems` says why, where something went wrong. `unknowns`: whether any instance is still
    unknown after a start (nothing is ended then for want of work). `stop`: what is stopped for the whole deployment.
    `boots_excused_ms`: no boot is late before then. `preemptions`: what was seen of them, where there were any.
    `failed`: what did when it was last tried, and may be tried again.
    """

    now_ms: int
    demand: tuple[DemandItem, ...]
    targets: tuple[TargetItem, ...]
    supply: tuple[Supply, ...]
    pools: tuple[Pool, ...]
    offerings: tuple[Offering, ...]
    caps: Caps = Caps()
    profile_caps: tuple[tuple[ProfileName, Caps], ...] = ()
    blocked: tuple[Blocked, ...] = ()
    silent: tuple[ProfileName, ...] = ()
    problems: tuple[tuple[ProfileName, str], ...] = ()
    max_batch: tuple[tuple[ProfileName, int], ...] = ()
    doubt_ms: int = 60_000
    unknowns: bool = False
    stop: Stop = Stop()
    driver_caps: tuple[DriverCaps, ...] = ()
    quotas: tuple[QuotaUse, ...] = ()
    boots_excused_ms: int = 0
    foreign: tuple[Foreign, ...] = ()
    preemptions: tuple[Preemptions, ...] = ()
    failed: tuple[Blocked, ...] = ()

    @cached_property
    def drivers(self) -> dict[ProfileName, str]:
        """By profile its driver, where the driver has caps."""
        return {profile: bounds.driver for bounds in self.driver_caps for profile in bounds.profiles}

    @cached_property
    def _names(self) -> frozenset[PoolName]:
        return frozenset(pool.name for pool in self.pools)

    def may_end(self, one: Supply) -> bool:
        """Whether `one` may be drained for the sake of what waits or costs: nobody has it held or drained, it is as
        configured, and its profile can be listed."""
        return (
            one.behaviour is Behaviour.RUN
            and not one.stale
            and one.pool in self._names
            and one.profile not in self.silent
        )

    @cached_property
    def alike(self) -> tuple[Sequence[Supply], ...]:
        """The supply by kind, in the order in which the kinds first come: most instances of a large fleet are alike,
        and what is the same for all of them is found out once."""
        groups: dict[str, list[Supply]] = {}
        for supply in self.supply:
            kind = supply.kind
            group = groups.get(kind)
            if group is None:
                groups[kind] = [supply]
            else:
                group.append(supply)
        return tuple(groups.values())

    def sorted_into(self, alike: tuple[Sequence[Supply], ...]) -> Self:
        """This, with `alike` known: by who had all of the supply in hand before. It must be what it would be anyway."""
        self.__dict__["alike"] = alike
        return self
