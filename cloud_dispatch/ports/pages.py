"""What the store answers a page at a time. Owns the shape of a page; must not know what a caller shows of it."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName, TaskId
from cloud_dispatch.domain.task import Task


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks in order of id. `next` is where to go on, None: there are no others."""

    tasks: tuple[Task, ...] = ()
    next: TaskId | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one instance has cost, or those of a month, a pool, a profile and a driver that are not kept any more:
    micro-dollars, from `from_ms` until `until_ms`, the end of what is billed. `bound` is what counts against limits: at
    the highest price, for `bound_most_ms` of the time from `bound_from_ms` until `bound_until_ms`; of a sum in total
    alone. `tasks` ended there by their own doing; `waiting` are those that it could have run and that waited when it
    went; `cause` is the word for its end."""

    id: int
    booked_ms: int
    instance: InstanceId
    pool: PoolName
    profile: ProfileName
    driver: str
    from_ms: int
    until_ms: int
    amount: int
    boot: int
    work: int
    idle: int
    lost: int
    bound: int
    bound_rate: int
    bound_from_ms: int
    bound_until_ms: int
    bound_most_ms: int
    template: str = ""
    image: str = ""
    zone: str = ""
    registered_ms: int | None = None
    tasks: int = 0
    waiting: int = 0
    cause: str = ""
