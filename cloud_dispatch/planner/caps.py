"""Caps. Owns the count of what holds a slot at each level (pool, profile, driver, all) and what may still be added.

Every instance that is not gone counts, whatever its state: terminating and doubtful ones may still exist and bill
(promise P4). So do VMs of this deployment that another statestore made. Lowering a cap ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import COUNTED, InstanceState
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.planner.needs import UNBOUNDED
from cloud_dispatch.planner.snapshot import Foreign, Snapshot, Supply

EVERYTHING = "all"
#: Who makes room before long.
ENDING = (
    InstanceState.DRAINING,
    InstanceState.DRAINED,
    InstanceState.FAILED,
    InstanceState.LOST,
    InstanceState.TERMINATING,
)
#: How many instances, and how many vCPUs.
Lack = tuple[int, int]


@dataclass(slots=True)
class _Level:
    name: str
    caps: Caps
    instances: int = 0
    vcpus: int = 0
    ending: int = 0
    foreign: int = 0
    foreign_vcpus: int = 0
    stores: frozenset[str] = frozenset()

    @property
    def instances_left(self) -> int:
        return UNBOUNDED if self.caps.instances is None else self.caps.instances - self.instances

    @property
    def vcpus_left(self) -> int:
        return UNBOUNDED if self.caps.vcpus is None else self.caps.vcpus - self.vcpus

    def why(self, vcpus: int) -> str:
        """Which of its caps leaves no room for `vcpus`, "" when none does."""
        caps = self.caps
        if caps.instances is not None and self.instances >= caps.instances:
            used = f"instances {self.instances} of {caps.instances}{self._ending}{self._others}"
            return f"cap of {self.name} reached ({used})"
        if caps.vcpus is not None and self.vcpus + max(vcpus, 1) > caps.vcpus:
            wanted = f"another {vcpus} wanted{self._ending}{self._others}"
            return f"cap of {self.name} reached (vcpus {self.vcpus} of {caps.vcpus}, {wanted})"
        return ""

    def never(self, vcpus: int) -> str:
        """Which of its caps is too small for `vcpus` whatever ends, "" when none is."""
        caps = self.caps
        if caps.instances == 0 or (caps.vcpus is not None and max(vcpus, 1) > caps.vcpus):
            limit = "instances 0" if caps.instances == 0 else f"vcpus {caps.vcpus}, {max(vcpus, 1)} wanted"
            return f"cap of {self.name} never admits it ({limit})"
        return ""

    def is_lost(self, vcpus: int) -> bool:
        """Whether there would be no room for `vcpus` without any instance of ours either."""
        caps = self.caps
        return (caps.instances is not None and self.foreign >= caps.instances) or (
            caps.vcpus is not None and self.foreign_vcpus + max(vcpus, 1) > caps.vcpus
        )

    @property
    def _ending(self) -> str:
        return f", {self.ending} about to end" if self.ending else ""

    @property
    def _others(self) -> str:
        if not self.foreign:
            return ""
        which = ", ".join(sorted(self.stores))
        return f"; {self.foreign} VMs are of statestore {which}: `adopt --store` takes them over"


class Ledger:
    """What counts against the caps, this plan's launches included."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._all = _Level("everything", snapshot.caps)
        self._profiles = {name: _Level(f"profile {name}", caps) for name, caps in snapshot.profile_caps}
        drivers = {bounds.driver: _Level(f"driver {bounds.driver}", bounds.caps) for bounds in snapshot.driver_caps}
        self._drivers = {profile: drivers[driver] for profile, driver in snapshot.drivers.items()}
        self._names = snapshot.drivers
        self._pools = {pool.name: _Level(f"pool {pool.name}", pool.caps) for pool in snapshot.pools}
        self._left: dict[tuple[PoolName, ProfileName], tuple[int, int]] = {}
        for alike in snapshot.alike:
            one = alike[0]
            if one.state in COUNTED:
                self._count(one.pool, one.profile, len(alike), len(alike) * one.vcpus)
            if one.state in ENDING:
                for level in self._at(one.pool, one.profile):
                    level.ending += len(alike)
        for others in snapshot.foreign:
            self._count_foreign(others)

    def _count_foreign(self, others: Foreign) -> None:
        """Each once at each level, also where two profiles list it."""
        levels = [self._all, self._pools.get(others.pool), *map(self._profiles.get, others.profiles)]
        drivers = {self._names.get(profile): self._drivers.get(profile) for profile in others.profiles}
        for level in (*levels, *drivers.values()):
            if level is not None:
                level.instances += others.count
                level.vcpus += others.count * others.vcpus
                level.foreign += others.count
                level.foreign_vcpus += others.count * others.vcpus
                level.stores |= {others.store}

    def room(self, pool: Pool, profile: ProfileName, vcpus: int) -> int:
        """How many more instances of `vcpus` all the caps admit."""
        left = self._left.get((pool.name, profile))
        if left is None:
            levels = [level for _, level in self._levels(pool, profile)]
            left = (min(level.instances_left for level in levels), min(level.vcpus_left for level in levels))
            self._left[pool.name, profile] = left
        instances, cpus = left
        return max(min(instances, cpus // (vcpus or 1)), 0)

    def take(self, pool: Pool, profile: ProfileName, vcpus: int, instances: int) -> None:
        """Count `instances` more (or, negative, fewer)."""
        self._count(pool.name, profile, instances, vcpus * instances)
        self._left.clear()

    def why(self, pool: Pool, profile: ProfileName, vcpus: int) -> str:
        """Which cap leaves no room, in words; "" when none does."""
        return next(filter(None, (level.why(vcpus) for _, level in self._levels(pool, profile))), "")

    def never(self, pool: Pool, profile: ProfileName, vcpus: int) -> str:
        """Which cap is too small for even one, whatever ends, in words; "" when none is."""
        return next(filter(None, (level.never(vcpus) for _, level in self._levels(pool, profile))), "")

    def lacks(self, pool: Pool, profile: ProfileName, vcpus: int, count: int) -> dict[str, Lack]:
        """What has to end for `count` more instances of `vcpus`, at each level (as `levels_of` names them) where it is
        anything."""
        found: dict[str, Lack] = {}
        for name, level in self._levels(pool, profile):
            lack = max(count - level.instances_left, 0), max(count * max(vcpus, 1) - level.vcpus_left, 0)
            if any(lack):
                found[name] = lack
        return found

    def end(self, one: Supply, count: int = 1) -> None:
        """Count `count` like `one` fewer: they end."""
        self._count(one.pool, one.profile, -count, -count * one.vcpus)
        self._left.clear()

    def is_lost(self, pool: Pool, profile: ProfileName, vcpus: int) -> bool:
        """Whether a cap is full of VMs that only others can end: nothing that is drained here makes room."""
        return any(level.is_lost(vcpus) for _, level in self._levels(pool, profile))

    def _levels(self, pool: Pool, profile: ProfileName) -> list[tuple[str, _Level]]:
        found = [
            (EVERYTHING, self._all),
            (f"profile:{profile}", self._profiles.get(profile)),
            (f"driver:{self._names.get(profile)}", self._drivers.get(profile)),
            (f"pool:{pool.name}", self._pools.get(pool.name)),
        ]
        return [(name, level) for name, level in found if level is not None]

    def _count(self, pool: PoolName, profile: ProfileName, instances: int, vcpus: int) -> None:
        for level in self._at(pool, profile):
            level.instances += instances
            level.vcpus += vcpus

    def _at(self, pool: PoolName, profile: ProfileName) -> Iterator[_Level]:
        found = (self._all, self._pools.get(pool), self._profiles.get(profile), self._drivers.get(profile))
        return (level for level in found if level is not None)


def levels_of(snapshot: Snapshot, pool: str, profile: ProfileName) -> tuple[str, ...]:
    """The levels at which an instance of `pool` and `profile` counts."""
    driver = snapshot.drivers.get(profile)
    levels = (EVERYTHING, f"profile:{profile}", f"pool:{pool}")
    return levels if driver is None else (*levels, f"driver:{driver}")
