"""What can be rented. Owns instance types and offerings (a type in a zone on a market, with its price)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Labels, Machine


class Market(StrEnum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of VM that a provider sells."""

    name: str
    capacity: Resources
    gpu_type: str = ""
    gpu_memory: int = 0  # bytes a device
    architecture: str = "x86_64"
    family: str = ""  # the unit of quotas

    @property
    def vcpus(self) -> int:
        """Whole vCPUs, as caps and quotas count them: a fraction counts as one."""
        return -(-self.capacity.cpus_milli // 1000)


@dataclass(frozen=True)
class Offering:
    """An instance type x zone x market of a provider profile, with its price.

    `rate` None is an unknown price: nothing is launched at it where a limit is set. `max_rate` bounds what a spot
    machine can cost (equal to `rate` on demand): the bid where the provider takes one, else its own ceiling. `region`
    holds the zone; empty where the provider has none.
    """

    profile: ProfileName
    type: InstanceType
    zone: str
    market: Market
    rate: Rate | None
    max_rate: Rate | None = None
    minimum_ms: int = 0
    increment_ms: int = 1000
    priced_ms: int = 0  # when the price was true
    boot_ms: int = 60_000  # expected time from launch to registration
    labels: Labels = ()
    region: str = ""
    estimated: bool = False  # the price is from a table of known age, not the provider's own word
    extra_rate: Rate = Rate(0)  # of what comes with each VM and bills by itself: disks, addresses
    image: str = ""  # what its VMs boot, where the driver says
    unlisted: bool = False  # what it boots bills too, by no list: only the operator knows what the whole costs

    @property
    def key(self) -> str:
        """`profile/type/zone/market`, unique in a snapshot."""
        return f"{self.profile}/{self.type.name}/{self.zone}/{self.market}"

    @property
    def highest_rate(self) -> Rate | None:
        """The most that the VM itself can cost an hour; None where nobody knows, as of a spot machine without a bid."""
        return self.rate if self.max_rate is None and self.market is Market.ON_DEMAND else self.max_rate

    @property
    def top_rate(self) -> Rate:
        """The most that an hour of it can cost, with its disks and addresses; without them where that is unknown."""
        return Rate((self.highest_rate or 0) + self.extra_rate)

    def machine(self, pool: PoolName, labels: Labels = (), *, reserve: Resources, max_tasks: int) -> Machine:
        """What an instance of this offering gives to tasks in `pool`, less what the pool reserves for the system.

        Labels: the pool's, the offering's and `type`, `zone`, `market`, `arch`.
        """
        own = (
            ("arch", self.type.architecture),
            ("market", str(self.market)),
            ("type", self.type.name),
            ("zone", self.zone),
        )
        return Machine(
            capacity=self.type.capacity - reserve,
            gpu_type=self.type.gpu_type,
            gpu_memory=self.type.gpu_memory,
            labels=tuple(sorted({**dict(own), **dict(self.labels), **dict(labels)}.items())),
            spot=self.market is Market.SPOT,
            pool=pool,
            max_tasks=max_tasks,
        )
