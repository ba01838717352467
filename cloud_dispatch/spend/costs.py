"""What was spent, as people ask for it: by whom, where, when. Owns the words of the question and of the answer.

Amounts are integers of micro-dollars; days are days of UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.spend.windows import FOREVER_MS


class CostKey(StrEnum):
    """By what costs are added up. `provider` is a driver's name; a task may have none (None): what is nobody's, or was
    of tasks that are not kept any more."""

    PROJECT = "project"
    USER = "user"
    POOL = "pool"
    PROVIDER = "provider"
    PROFILE = "profile"
    DAY = "day"
    TASK = "task"


class Cost(NamedTuple):
    """Micro-dollars: of attempts whose outcome counted, of the others, and of what the VMs cost besides."""

    work: int = 0
    retry: int = 0
    idle: int = 0

    @property
    def whole(self) -> int:
        return self.work + self.retry + self.idle

    def plus(self, other: Cost) -> Cost:
        return Cost(self.work + other.work, self.retry + other.retry, self.idle + other.idle)


def total_of(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    total = Cost()
    for cost in costs:
        total = total.plus(cost)
    return total


@dataclass(frozen=True, slots=True)
class CostQuery:
    """Costs of days that begin in [`since_ms`, `until_ms`), of a project, user or pool (empty: any), added up by `by`,
    which names each key once."""

    by: tuple[CostKey, ...] = (CostKey.PROJECT,)
    since_ms: int = 0
    until_ms: int = FOREVER_MS
    project: str = ""
    user: str = ""
    pool: str = ""


#: A day is the moment at which it began, a task its number; everything else is a name.
KeyValue = str | int | None


class CostRow(NamedTuple):
    """The values of the keys, in the order of `by`, and what they cost."""

    keys: tuple[KeyValue, ...]
    cost: Cost

    @property
    def place(self) -> tuple[tuple[bool, KeyValue], ...]:
        """Where it stands in the order of keys: numbers rising, names by letters, none last."""
        return tuple((value is None, value if value is not None else 0) for value in self.keys)


@dataclass(frozen=True, slots=True)
class Costs:
    """Rows in order of their keys. `running` instances still live: they count up to now. `unpriced`: so many have no
    known price, and count as nothing but their disks and addresses."""

    rows: tuple[CostRow, ...]
    running: int = 0
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class CostPage:
    """Rows of one instance after the other: a task that ran on two has two. `next` is where to go on, None: the end."""

    rows: tuple[CostRow, ...]
    next: tuple[InstanceId, int] | None = None


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """What an attempt has cost, up to now where it still runs (`ended_ms` and `cause` None). `rate`: of its VM, None
    unknown. `cost` None: its VM is not kept any more."""

    task: TaskId
    token: FencingToken
    number: int
    instance: InstanceId
    started_ms: int | None
    ended_ms: int | None
    cause: str | None
    rate: Rate | None
    cost: Cost | None
