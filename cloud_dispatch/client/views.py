"""What the REST API answers with, as typed dictionaries. Owns the names of fields; times are ms since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict


class OutputView(TypedDict):
    path: str
    url: str
    size: int
    sha256: str


class Submitted(TypedDict):
    """The numbers of tasks that were submitted, in order, the ids of their arrays, and what to know of them at once."""

    ids: list[int]
    arrays: list[str]
    notes: list[str]


class RerunView(TypedDict):
    """A task that has ended, the one that runs in its place, and that one's state."""

    task: int
    again: int
    state: str


class TaskView(TypedDict):
    id: int
    name: str
    command: str
    state: str
    priority: int
    project: str
    user: str
    array_id: str
    array_index: int
    submitted_ms: int
    started_ms: int | None
    ended_ms: int | None
    attempts: int
    instance: str | None
    token: int | None
    cause: str | None
    exit_code: int | None
    signal: int | None
    detail: str
    outputs: list[OutputView]
    shape: str


class AttemptView(TypedDict):
    number: int
    token: int
    instance: str
    claimed_ms: int
    started_ms: int | None
    ended_ms: int
    told_ms: int
    cause: str
    exit_code: int | None
    signal: int | None
    detail: str
    max_rss: int
    cpu_ms: int


class TaskDetail(TaskView):
    attempts_list: list[AttemptView]
    spec: dict[str, Any]


class TaskPage(TypedDict):
    """`next` is the id to ask on after, None at the end."""

    tasks: list[TaskView]
    next: int | None


class InstanceView(TypedDict):
    id: str
    pool: str
    profile: str
    type: str
    zone: str
    market: str
    state: str
    behaviour: str
    vm: str
    rate_nano: int | None
    rate: str
    intended_ms: int
    launched_ms: int | None
    registered_ms: int | None
    ended_ms: int | None
    tasks: int
    cpus_milli: int
    memory: int
    boot_ms: int
    work_ms: int
    idle_ms: int
    cost_micro: int | None
    cost: str
    reason: str
    cause: str
    unreachable: str


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of an attempt's log. `offset`: of the byte after them. `complete`: the task ended and all is read."""

    body: bytes
    offset: int
    complete: bool
    attempt: str
