"""What the planner says. Owns actions with their reasons, and the answers to "why does this still wait"."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.obstacle import Obstacle


@dataclass(frozen=True)
class Launch:
    """Rent `slots` VMs of `offering` for `pool` in one batch. `alternatives` are tried in order if it is refused."""

    pool: PoolName
    offering: Offering
    slots: int
    reason: str
    alternatives: tuple[Offering, ...] = ()


@dataclass(frozen=True)
class Begun:
    """What became of a launch: calls were made for so many of its slots, and `why` for no more. A plan does not know
    it; what is stored of one does, where it is less than was planned."""

    slots: int
    why: str


@dataclass(frozen=True)
class Drain:
    """Let the instance finish what it runs and end."""

    instance: InstanceId
    cause: str  # a word: idle, oversized, overpriced, stale, behaviour, surplus, turn, lifetime, price, stopped
    reason: str


@dataclass(frozen=True)
class Terminate:
    """Delete the VM: nothing of value is on it any more."""

    instance: InstanceId
    cause: str
    reason: str


Action = Launch | Drain | Terminate


@dataclass(frozen=True)
class Unsatisfiable:
    """No offering of any pool can ever run the shape. `nearest` names the offering that misses by least, and why."""

    shape: Shape
    count: int
    reason: str
    nearest: str = ""


@dataclass(frozen=True)
class Waiting:
    """`count` tasks of a shape wait although they could run, because of `reason`. Nothing is launched for `left` of
    them; `obstacles` says what stands in the way, each that does. `payer`: as in their demand."""

    shape: Shape
    count: int
    reason: str
    left: int = 0
    obstacles: tuple[Obstacle, ...] = ()
    payer: Payer = NOBODY


@dataclass(frozen=True)
class Shortfall:
    """A pool has `missing` instances fewer than its minimum or a target wants, because of `reason`."""

    pool: PoolName
    missing: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """Actions in the order in which to take them, and why the rest waits."""

    actions: tuple[Action, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    unsatisfiable: tuple[Unsatisfiable, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
