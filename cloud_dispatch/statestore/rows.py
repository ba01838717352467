"""Between rows and values. Owns the codecs; must not know when anything is read or written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import msgspec
from sqlalchemy import Row

from cloud_dispatch.domain.ids import FencingToken, InstanceId, TaskId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.shape import Machine, Shape
from cloud_dispatch.domain.task import (
    Artifact,
    Attempt,
    Cause,
    Lease,
    Outcome,
    RetryRules,
    Task,
    TaskSpec,
    TaskState,
)
from cloud_dispatch.statestore.seats import Hold
from cloud_dispatch.statestore.stretches import stretch_of

encode = msgspec.json.encode
_spec = msgspec.json.Decoder(TaskSpec)
_retry = msgspec.json.Decoder(RetryRules)
_shape = msgspec.json.Decoder(Shape)
_machine = msgspec.json.Decoder(Machine)
_manifest = msgspec.json.Decoder(tuple[Artifact, ...])
DEFAULT_RETRY = RetryRules()
CAUSE_TEXT = {cause: cause.value for cause in Cause}
_CAUSES = {cause.value: cause for cause in Cause}
_INSTANCE_ORDER = tuple(field.name for field in fields(Instance))
_instance_values = attrgetter(*_INSTANCE_ORDER)
INSTANCE_FIELDS = frozenset(_INSTANCE_ORDER)


def spec_of(body: bytes) -> TaskSpec:
    return _spec.decode(body)


def shape_of(body: bytes) -> Shape:
    return _shape.decode(body)


def retry_row(retry: RetryRules) -> bytes | None:
    return None if retry == DEFAULT_RETRY else encode(retry)


def retry_of(body: bytes | None) -> RetryRules:
    return DEFAULT_RETRY if body is None else _retry.decode(body)


def attempt_row(
    hold: Hold, number: int, started_ms: int | None, ended_ms: int, outcome: Outcome, told_ms: int
) -> tuple[Any, ...]:
    """In the order of the table's columns."""
    return (
        hold.task, hold.token, number, hold.seat.instance.id, hold.claimed_ms, started_ms, ended_ms,
        CAUSE_TEXT[outcome.cause], outcome.exit_code, outcome.signal, outcome.detail, outcome.max_rss, outcome.cpu_ms,
        encode(outcome.manifest) if outcome.manifest else None, stretch_of(hold.token), told_ms,
    )  # fmt: skip


def outcome_of(row: Row[Any]) -> Outcome:
    return Outcome(
        cause=_CAUSES[row.cause],
        exit_code=row.exit_code,
        signal=row.signal,
        detail=row.detail,
        manifest=_manifest.decode(row.manifest) if row.manifest else (),
        max_rss=row.max_rss,
        cpu_ms=row.cpu_ms,
    )


def attempt_of(row: Row[Any]) -> Attempt:
    return Attempt(
        task=TaskId(row.task),
        number=row.number,
        token=FencingToken(row.token),
        instance=InstanceId(row.instance),
        claimed_ms=row.claimed_ms,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        told_ms=row.ended_ms if row.told_ms is None else row.told_ms,
        outcome=outcome_of(row),
    )


def task_of(row: Row[Any], last: Attempt | None) -> Task:
    """From a row of `tasks` with `body` of `specs`; the row's priority is the current one."""
    spec = spec_of(row.body)
    if spec.priority != row.priority:
        spec = replace(spec, priority=row.priority)
    lease = None
    if row.token is not None:
        lease = Lease(FencingToken(row.token), InstanceId(row.instance), row.claimed_ms, row.started_ms)
    return Task(
        id=TaskId(row.id),
        spec=spec,
        state=TaskState(row.state),
        submitted_ms=row.submitted_ms,
        attempts=row.attempts,
        lease=lease,
        ended_ms=row.ended_ms,
        last=last,
    )


def instance_row(instance: Instance) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(_INSTANCE_ORDER, _instance_values(instance), strict=True))
    row["machine"] = encode(instance.machine)
    for name in ("state", "market", "behaviour"):
        row[name] = row[name].value
    return row


def machine_of(body: bytes) -> Machine:
    return _machine.decode(body)


def instance_of(row: Row[Any]) -> Instance:
    values: dict[str, Any] = dict(row._mapping)
    values["machine"] = machine_of(values["machine"])
    values["state"] = InstanceState(values["state"])
    values["market"] = Market(values["market"])
    values["behaviour"] = Behaviour(values["behaviour"])
    return Instance(**values)


def last_attempts(rows: Iterable[Row[Any]]) -> Mapping[int, Attempt]:
    """By task, from rows of `attempts` in order of token."""
    last = {row.task: row for row in rows}
    return {task: attempt_of(row) for task, row in last.items()}
