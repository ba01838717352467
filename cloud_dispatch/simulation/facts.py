"""What a transaction of the statestore says, in the checkers' words. The one place that reads the store's batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.payer import Payer
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.statestore.batch import ATTEMPT_ORDER, TASK_ORDER, Batch
from cloud_dispatch.statestore.schema import plans

_TASK, _PROJECT, _USER, _SHAPE = (TASK_ORDER.index(name) for name in ("id", "project", "user_name", "shape"))
_OF_ATTEMPTS = ("task", "token", "number", "instance", "cause", "exit_code", "signal")
_attempt_values = itemgetter(*[ATTEMPT_ORDER.index(name) for name in _OF_ATTEMPTS])


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
    exit_code: int | None = None
    signal: int | None = None


class Commit(msgspec.Struct, frozen=True):
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
    """What `batch` wrote. Most batches are a result and a claim: what is not there costs nothing."""
    new, after = batch.new_tasks, batch.after
    return Commit(
        new_tasks=[row[_TASK] for row in new] if new else (),
        live=[LiveTask(row[7], row[0], row[2], row[3], row[4]) for row in batch.live.values()],
        ended=[(row[3], row[0]) for row in batch.ended.values()],
        attempts=[EndedAttempt(*_attempt_values(row)) for row in batch.attempts],
        instances=tuple(batch.instances.values()),
        pruned=frozenset(batch.pruned),
        payers=_payers(batch) if new else (),
        plans=_plans(after) if after else (),
    )


def _payers(batch: Batch) -> list[tuple[TaskId, Payer, Shape]]:
    return [
        (row[_TASK], Payer(row[_PROJECT], row[_USER]), batch.memory.shapes[row[_SHAPE]])
        for row in batch.new_tasks
        if row[_PROJECT] or row[_USER]
    ]


def _plans(writes: Sequence[tuple[Any, Sequence[Mapping[str, Any]]]]) -> list[tuple[bytes, bytes]]:
    return [
        (row["snapshot"], row["plan"])
        for statement, rows in writes
        if getattr(statement, "table", None) is plans
        for row in rows
    ]
