"""What a transaction of the statestore says, in the checkers' words. The one place that reads the store's batches."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.statestore.batch import ATTEMPT_ORDER, TASK_ORDER, Batch
from cloud_dispatch.statestore.schema import plans

_TASK = TASK_ORDER.index("id")
_A_TASK, _A_TOKEN, _A_NUMBER, _A_INSTANCE, _A_CAUSE = (
    ATTEMPT_ORDER.index(name) for name in ("task", "token", "number", "instance", "cause")
)


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A task that has not ended, as the transaction leaves it. `token` and `instance` of its claim, if any."""

    task: int
    state: str
    attempts: int
    token: int | None
    instance: str | None


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    task: int
    token: int
    number: int
    instance: str
    cause: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One durable transaction. `ended` is by task, its terminal state."""

    new_tasks: tuple[int, ...]
    live: tuple[LiveTask, ...]
    ended: tuple[tuple[int, str], ...]
    attempts: tuple[EndedAttempt, ...]
    instances: tuple[Instance, ...]
    pruned: frozenset[int]
    plans: tuple[tuple[bytes, bytes], ...] = ()  # snapshot, compressed, and plan as they are stored


def commit_of(batch: Batch) -> Commit:
    """What `batch` wrote."""
    return Commit(
        new_tasks=tuple(row[_TASK] for row in batch.new_tasks),
        live=tuple(LiveTask(row[7], row[0], row[2], row[3], row[4]) for row in batch.live.values()),
        ended=tuple((row[3], row[0]) for row in batch.ended.values()),
        attempts=tuple(
            EndedAttempt(row[_A_TASK], row[_A_TOKEN], row[_A_NUMBER], row[_A_INSTANCE], row[_A_CAUSE])
            for row in batch.attempts
        ),
        instances=tuple(batch.instances.values()),
        pruned=frozenset(batch.pruned),
        plans=tuple(
            (row["snapshot"], row["plan"])
            for statement, rows in batch.after
            if getattr(statement, "table", None) is plans
            for row in rows
        ),
    )
