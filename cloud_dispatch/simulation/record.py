"""A run as data: what became of its tasks and its instances. Owns the values; a simulated run and the statestore of a
real one give alike ones.

Moments are epoch milliseconds, durations milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName, TaskId, VmId
from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause, RetryRules, TaskState


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """A task as its run left it. `started_ms` is its first start, None where it never started."""

    task: TaskId
    submit_ms: int
    started_ms: int | None
    ended_ms: int | None
    state: TaskState
    shape: Shape
    expected_ms: int = 0
    priority: int = 0
    user: str = ""
    project: str = ""
    retry: RetryRules = RetryRules()
    max_runtime_ms: int = 0
    checkpoints: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """An attempt that started. One that still runs has no end and no cause."""

    task: TaskId
    instance: InstanceId
    started_ms: int
    ended_ms: int | None = None
    cause: Cause | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Rental:
    """An instance from its launch to its end. `billed` is what the cloud's own meter says, None where only the rate is
    known (and the cost follows from it). `prices` are the meter's nano-dollars an hour, each from a moment on; none
    where it costs the same all the time. `cpus_milli` are all that it has, what its pool reserves included."""

    instance: InstanceId
    pool: PoolName
    profile: ProfileName
    type: str
    zone: str
    market: Market
    cpus_milli: int
    launched_ms: int
    registered_ms: int | None
    ended_ms: int | None
    rate: Rate | None
    minimum_ms: int = 0
    increment_ms: int = 1000
    billed: Amount | None = None
    vm: VmId = VmId("")
    prices: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A whole run, looked at at `end_ms`: what has no end by then is counted up to it. `partial` says what of it is
    not known, "" when nothing is missing. `unsubmitted` counts the tasks that were to come only later."""

    tasks: tuple[TaskTimes, ...]
    runs: tuple[Run, ...]
    rentals: tuple[Rental, ...]
    end_ms: int
    partial: str = ""
    unsubmitted: int = 0
