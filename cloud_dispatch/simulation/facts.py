"""What a transaction of the statestore says, in the checkers' words. The one place that reads the store's batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.statestore.batch import ATTEMPT_ORDER, TASK_ORDER, Batch
from cloud_dispatch.statestore.schema import plans

_TASK, _PROJECT, _USER, _SHAPE = (TASK_ORDER.index(name) for name in ("id", "project", "user_name", "shape"))
_A_TASK, _A_TOKEN, _A_NUMBER, _A_INSTANCE, _A_CAUSE = (
    ATTEMPT_ORDER.index(name) for name in ("task", "token", "number", "instance", "cause")
)


class LiveTask(msgspec.Struct, frozen=True, gc=False):
    """A task that has not ended, as the transaction leaves it. `token` and `instance` of its claim, if any."""

    task: TaskId
    state: str
    attempts: int
    token: FencingToken | None
    instance: InstanceId | None


class EndedAttempt(msgspec.Struct, frozen=True, gc=False):
    task: int
    token: int
    number: int
    instance: str
    cause: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One durable transaction. `ended` is by task, its terminal state; `payers` and shapes of new tasks that have a
    project or a user."""

    new_tasks: Sequence[TaskId]
    live: Sequence[LiveTask]
    ended: Sequence[tuple[TaskId, str]]
    attempts: Sequence[EndedAttempt]
    instances: Sequence[Instance]
    pruned: frozenset[int]
    plans: Sequence[tuple[bytes, bytes]] = ()  # snapshot, compressed, and plan as they are stored
    payers: Sequence[tuple[TaskId, Payer, Shape]] = ()


def commit_of(batch: Batch) -> Commit:
    """What `batch` wrote."""
    return Commit(
        new_tasks=[row[_TASK] for row in batch.new_tasks],
        live=[LiveTask(row[7], row[0], row[2], row[3], row[4]) for row in batch.live.values()],
        ended=[(row[3], row[0]) for row in batch.ended.values()],
        attempts=[
            EndedAttempt(row[_A_TASK], row[_A_TOKEN], row[_A_NUMBER], row[_A_INSTANCE], row[_A_CAUSE])
            for row in batch.attempts
        ],
        instances=tuple(batch.instances.values()),
        pruned=frozenset(batch.pruned),
        payers=[
            (row[_TASK], Payer(row[_PROJECT], row[_USER]), batch.memory.shapes[row[_SHAPE]])
            for row in batch.new_tasks
            if row[_PROJECT] or row[_USER]
        ],
        plans=[
            (row["snapshot"], row["plan"])
            for statement, rows in batch.after
            if getattr(statement, "table", None) is plans
            for row in rows
        ],
    )
