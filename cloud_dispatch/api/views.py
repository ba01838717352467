"""Tasks and instances as people and programs see them over REST. Pure: values in, JSON-ready dicts out.

Owns the field names of docs/reference/rest-api.md and how an instance's life is split into boot, work and idle time.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import Amount, cost, format_amount, format_rate
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.domain.task import Artifact, Attempt, Outcome, Task, TaskSpec, TaskState
from cloud_dispatch.ports.store import Target

View = dict[str, Any]
Interval = tuple[int, int]


def task_view(task: Task) -> View:
    """A task. Of one that has ended its last attempt tells where and when it ran."""
    spec, lease, outcome = task.spec, task.lease, task.outcome
    ran: Attempt | None = None if lease is not None or task.state is TaskState.QUEUED else task.last
    return {
        "id": task.id,
        "name": spec.name,
        "command": spec.shell or shlex.join(spec.argv),
        "state": task.state,
        "priority": spec.priority,
        "project": spec.project,
        "user": spec.user,
        "array_id": spec.array_id,
        "array_index": spec.array_index,
        "submitted_ms": task.submitted_ms,
        "started_ms": lease.started_ms if lease else ran.started_ms if ran else None,
        "ended_ms": task.ended_ms,
        "attempts": task.attempts,
        "instance": lease.instance if lease else ran.instance if ran else None,
        "token": lease.token if lease else ran.token if ran else None,
        **_outcome_view(outcome),
        "outputs": artifact_views(accepted(task)),
        "shape": spec.shape.describe(),
    }


def _outcome_view(outcome: Outcome | None) -> View:
    if outcome is None:
        return {"cause": None, "exit_code": None, "signal": None, "detail": ""}
    return {
        "cause": outcome.cause,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "detail": outcome.detail,
    }


def accepted(task: Task) -> tuple[Artifact, ...]:
    """The manifest of the task's accepted result; empty while there is none."""
    return task.outcome.manifest if task.state is TaskState.SUCCEEDED and task.outcome is not None else ()


def artifact_views(manifest: Iterable[Artifact]) -> list[View]:
    return [{"path": a.path, "url": a.url, "size": a.size, "sha256": a.sha256} for a in manifest]


def spec_view(spec: TaskSpec) -> View:
    """Every field of a specification, sets in order."""
    view = asdict(spec)
    view["retry"] = {
        "max_attempts": spec.retry.max_attempts,
        "causes": sorted(spec.retry.causes),
        "exit_codes": sorted(spec.retry.exit_codes),
    }
    return view


def attempt_view(attempt: Attempt) -> View:
    return {
        "number": attempt.number,
        "token": attempt.token,
        "instance": attempt.instance,
        "claimed_ms": attempt.claimed_ms,
        "started_ms": attempt.started_ms,
        "ended_ms": attempt.ended_ms,
        "told_ms": attempt.told_ms,
        **_outcome_view(attempt.outcome),
        "max_rss": attempt.outcome.max_rss,
        "cpu_ms": attempt.outcome.cpu_ms,
    }


def busy_ms(intervals: Iterable[Interval]) -> int:
    """How long at least one of `intervals` (start, end) was under way."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        start = max(start, reached)
        if end > start:
            total += end - start
            reached = end
    return total


@dataclass(frozen=True, slots=True)
class Usage:
    """An instance's billed life: milliseconds booting, working and idle, and what it costs (None: unknown price).

    `worked_ms` is the moment at which its last attempt ended, None where none has."""

    boot_ms: int = 0
    work_ms: int = 0
    idle_ms: int = 0
    cost: Amount | None = Amount(0)
    worked_ms: int | None = None


def usage_of(instance: Instance, work_ms: int, now: int, worked_ms: int | None = None) -> Usage:
    """The life of `instance` up to `now` or its end, with `work_ms` of it spent on tasks."""
    if instance.launched_ms is None:
        return Usage()
    end = now if instance.ended_ms is None else instance.ended_ms
    total = max(end - instance.launched_ms, 0)
    ready = end if instance.registered_ms is None else instance.registered_ms
    boot = min(max(ready - instance.launched_ms, 0), total)
    work = min(max(work_ms, instance.busy_ms), total - boot)
    amount = None
    if instance.rate is not None:
        amount = cost(instance.rate, total, minimum_ms=instance.minimum_ms, increment_ms=max(instance.increment_ms, 1))
    return Usage(boot, work, total - boot - work, amount, worked_ms)


def instance_view(instance: Instance, usage: Usage, tasks: int, unreachable: str = "") -> View:
    """An instance with its usage; `tasks` is how many it holds now, `unreachable` why nobody can end it."""
    return {
        "id": instance.id,
        "pool": instance.pool,
        "profile": instance.profile,
        "type": instance.type,
        "zone": instance.zone,
        "market": instance.market,
        "state": instance.state,
        "behaviour": instance.behaviour,
        "vm": instance.vm,
        "rate_nano": instance.rate,
        "rate": "unknown" if instance.rate is None else format_rate(instance.rate),
        "intended_ms": instance.intended_ms,
        "launched_ms": instance.launched_ms,
        "registered_ms": instance.registered_ms,
        "ended_ms": instance.ended_ms,
        "tasks": tasks,
        "cpus_milli": instance.machine.capacity.cpus_milli,
        "memory": instance.machine.capacity.memory,
        "boot_ms": usage.boot_ms,
        "work_ms": usage.work_ms,
        "idle_ms": usage.idle_ms,
        "cost_micro": usage.cost,
        "cost": "unknown" if usage.cost is None else format_amount(usage.cost),
        "reason": instance.reason,
        "cause": instance.cause,
        "unreachable": unreachable,
    }


def usage_table(rows: Iterable[tuple[Instance, Usage]]) -> list[View]:
    """Usage summed by type and market, in order of name; instances that no provider ever billed are left out."""
    table: dict[tuple[str, str], View] = {}
    for instance, usage in rows:
        if instance.launched_ms is None:
            continue
        line = table.setdefault(
            (instance.type, instance.market),
            {"type": instance.type, "market": instance.market, "count": 0, "boot_ms": 0, "work_ms": 0, "idle_ms": 0,
             "cost_micro": 0},
        )  # fmt: skip
        line["count"] += 1
        line["boot_ms"] += usage.boot_ms
        line["work_ms"] += usage.work_ms
        line["idle_ms"] += usage.idle_ms
        line["cost_micro"] += usage.cost or 0
    return [table[key] for key in sorted(table)]


def pool_view(pool: Pool, instances: int, targets: Sequence[Target]) -> View:
    return {
        "name": pool.name,
        "profiles": list(pool.profiles),
        "instances": instances,
        "minimum": pool.minimum,
        "targets": [target_view(target) for target in targets],
        "caps": {"instances": pool.caps.instances, "vcpus": pool.caps.vcpus},
    }


def target_view(target: Target) -> View:
    return {"pool": target.pool, "source": target.source, "count": target.count, "expires_ms": target.expires_ms}


def event_view(event: Event) -> View:
    return asdict(event)
