"""Questions that the memory can't answer. Owns the queries; each runs on a reader's connection and sees what is
committed. All are bounded: by a limit, or in windows of ids so that nothing waits long behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.task import Attempt, Task
from cloud_dispatch.ports.pages import LedgerEntry, TaskPage
from cloud_dispatch.ports.store import PlanEntry, StoredPlan, TaskFilter
from cloud_dispatch.statestore.records import plan_of
from cloud_dispatch.statestore.rows import attempt_of, instance_of, last_attempts, task_of
from cloud_dispatch.statestore.schema import attempts, counters, events, instances, ledger, plans, specs, tasks
from cloud_dispatch.statestore.stretches import of_instance
from cloud_dispatch.statestore.tasks import matching

#: Ids counted by one query.
COUNT_WINDOW = 100_000
_CHUNK = 500


def one_task(connection: Connection, task: TaskId) -> Task:
    found = list_tasks(connection, TaskFilter(ids=(task,)), TaskId(0), None, 1)
    if not found:
        last = connection.scalar(select(counters.c.value).where(counters.c.name == "task")) or 0
        hint = "it ended longer ago than tasks are kept (`store.retain_tasks`)" if 0 < task <= last else ""
        raise NotFound(f"there is no task {task}", hint=hint)
    return found[0]


def list_tasks(
    connection: Connection, where: TaskFilter, after: TaskId, before: TaskId | None, limit: int
) -> list[Task]:
    query = select(tasks, specs.c.body).join_from(tasks, specs).where(tasks.c.id > after, matching(where)).limit(limit)
    if before is None:
        rows = list(connection.execute(query.order_by(tasks.c.id)))
    else:
        rows = list(connection.execute(query.where(tasks.c.id < before).order_by(tasks.c.id.desc())))[::-1]
    last: dict[int, Attempt] = {}
    tried = [row.id for row in rows if row.attempts]
    for at in range(0, len(tried), _CHUNK):
        ended = select(attempts).where(attempts.c.task.in_(tried[at : at + _CHUNK])).order_by(attempts.c.token)
        last.update(last_attempts(connection.execute(ended)))
    return [task_of(row, last.get(row.id)) for row in rows]


def page_of_tasks(
    connection: Connection, where: TaskFilter, after: TaskId, before: TaskId | None, limit: int, size: int
) -> TaskPage:
    """What is large is measured before it is read: the database knows how long it is without."""
    made = select(func.sum(func.length(attempts.c.manifest))).where(attempts.c.task == tasks.c.id).scalar_subquery()
    query = select(tasks.c.id, func.length(specs.c.body), made).join_from(tasks, specs)
    query = query.where(tasks.c.id > after, matching(where)).limit(limit + 1)
    if before is None:
        query = query.order_by(tasks.c.id)
    else:
        query = query.where(tasks.c.id < before).order_by(tasks.c.id.desc())
    chosen: list[TaskId] = []
    following, total = None, 0
    for task, asked, manifests in connection.execute(query):
        total += asked + int(manifests or 0)
        if len(chosen) == limit or (chosen and total > size):
            following = chosen[-1]
            break
        chosen.append(TaskId(task))
    if not chosen:
        return TaskPage()
    return TaskPage(tuple(list_tasks(connection, replace(where, ids=tuple(chosen)), TaskId(0), None, limit)), following)


def first_kept(connection: Connection, after: int) -> int | None:
    """The first id after `after` that is kept: of a hundred million tasks that ended the last may be, and to go through
    the windows of all took a second."""
    found: int | None = connection.scalar(select(func.min(tasks.c.id)).where(tasks.c.id > after))
    return found


def count_tasks(connection: Connection, where: TaskFilter, first: int) -> dict[str, int]:
    """By state, of `COUNT_WINDOW` ids from `first` on."""
    query = select(tasks.c.state, func.count()).group_by(tasks.c.state)
    query = query.where(tasks.c.id >= first, tasks.c.id < first + COUNT_WINDOW, matching(where))
    return {row[0]: row[1] for row in connection.execute(query)}


def attempts_of_task(connection: Connection, task: TaskId) -> list[Attempt]:
    query = select(attempts).where(attempts.c.task == task).order_by(attempts.c.token)
    return [attempt_of(row) for row in connection.execute(query)]


def attempts_of_instance(connection: Connection, instance: InstanceId) -> list[Attempt]:
    query = of_instance(instance, *attempts.c).order_by(attempts.c.token)
    return [attempt_of(row) for row in connection.execute(query)]


def one_instance(connection: Connection, instance: InstanceId) -> Instance:
    row = connection.execute(select(instances).where(instances.c.id == instance)).first()
    if row is None:
        raise NotFound(f"there is no instance {instance}")
    return instance_of(row)


def past_instances(connection: Connection, limit: int) -> list[Instance]:
    gone = select(instances).where(instances.c.state == InstanceState.GONE.value)
    query = gone.order_by(instances.c.ended_ms.desc(), instances.c.id.desc()).limit(limit)
    return [instance_of(row) for row in connection.execute(query)]


def list_plans(connection: Connection, before: int | None, limit: int) -> list[PlanEntry]:
    query = select(plans.c.id, plans.c.at_ms, plans.c.plan).order_by(plans.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(plans.c.id < before)
    return [PlanEntry(row.id, row.at_ms, row.plan) for row in connection.execute(query)]


def one_plan(connection: Connection, plan: int) -> StoredPlan:
    row = connection.execute(select(plans).where(plans.c.id == plan)).first()
    if row is None:
        raise NotFound(f"there is no plan {plan}", hint="it may be past its retention")
    return plan_of(row)


def list_events(
    connection: Connection, instance: InstanceId | None, task: TaskId | None, before: int | None, after: int | None,
    limit: int,
) -> Sequence[Event]:  # fmt: skip
    c = events.c
    query: Any = select(events).limit(limit)
    if instance is not None:
        query = query.where(c.instance == instance)
    if task is not None:
        query = query.where(c.task == task)
    if before is not None:
        query = query.where(c.id < before)
    if after is not None:
        rows = list(connection.execute(query.where(c.id > after).order_by(c.id)))[::-1]
    else:
        rows = list(connection.execute(query.order_by(c.id.desc())))
    return [Event(row.at_ms, row.action, row.instance, row.task, row.detail, row.plan, row.id) for row in rows]


def list_ledger(connection: Connection, from_ms: int, until_ms: int | None, limit: int) -> Sequence[LedgerEntry]:
    c = ledger.c
    query = select(ledger).where(c.until_ms > from_ms)
    if until_ms is not None:
        query = query.where(c.from_ms < until_ms)
    return [LedgerEntry(**row._mapping) for row in connection.execute(query.order_by(c.id).limit(limit))]
