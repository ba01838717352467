"""Why. Owns the answers to "why does this task wait" and "why is this instance here", from rows, events and plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.instance import Behaviour, InstanceState
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import HELD, Task, TaskState
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.plan import Launch, Plan
from cloud_dispatch.reconcile import unreachable
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.spend import UNSURE, is_unsure

_NEVER = "unsatisfiable"
#: Of so many launches that were not made it is told why: a plan may have a thousand, mostly for one reason.
_TOLD = 5


async def task(context: Context, number: int) -> dict[str, Any]:
    """Why task `number` is where it is; NotFound when there is none."""
    found = await context.store.task(TaskId(number))
    attempts = await context.store.attempts(found.id)
    events = await context.store.events(task=found.id)
    reasons = _waiting_reasons(context, found) if found.state is TaskState.QUEUED else []
    if found.state in HELD and found.lease is not None:
        reasons.append(f"instance {found.lease.instance} holds it under token {found.lease.token}")
        if found.state is TaskState.CANCELLING:
            reasons.append("it was cancelled; it ends when the instance confirms that nothing of it lives")
    reasons.extend(f"attempt {a.number} on {a.instance} ended: {a.outcome.describe()}" for a in attempts)
    if found.state is TaskState.FAILED and found.outcome is not None:
        rules = found.spec.retry
        if not rules.wants(found.outcome):
            reasons.append(f"{found.outcome.cause} is not among the causes that its retry rules name")
        elif found.attempts >= rules.max_attempts:
            reasons.append(f"all {rules.max_attempts} attempts are used up")
    return {
        "subject": f"task {number}",
        "state": str(found.state),
        "shape": found.spec.shape.describe(),
        "reasons": reasons,
        "events": [_event(event) for event in events],
    }


def _waiting_reasons(context: Context, found: Task) -> list[str]:
    stopped = str(context.stop) if context.stop.launches else ""
    if context.last is None:
        return [stopped or "no plan has been made yet since the dispatcher started"]
    _, plan = context.last
    shape = found.spec.shape
    reasons = [
        f"no offering can ever run it: {u.reason}" + (f"; nearest: {u.nearest}" if u.nearest else "")
        for u in plan.unsatisfiable
        if u.shape == shape
    ]
    payer = context.store.payer_of(found.spec)
    waiting = [w for w in plan.waiting if w.shape == shape and w.payer == payer]
    reasons.extend(w.reason for w in waiting)
    if any(w.left < w.count for w in waiting):
        untold = list(_not_begun(context, plan, shape))
        reasons.extend(untold[:_TOLD])
        if more := len(untold[_TOLD:]):
            plural = "es of it were" if more > 1 else " of it was"
            reasons.append(f"{more} more launch{plural} not made as planned: `plans` and `replay` tell why")
    if any(Obstacle.BUDGET in w.obstacles for w in waiting) and is_unsure(context.store):
        reasons.append(UNSURE)
    if stopped and not any(stopped in reason for reason in reasons):
        reasons.insert(0, stopped)
    if not reasons:
        reasons.append("it will be claimed by the next instance that has room")
    ahead = sum(d.count for d in context.store.waiting() if d.priority > found.spec.priority)
    if ahead:
        reasons.append(f"shapes with more urgent tasks are waiting too ({ahead} task{'' if ahead == 1 else 's'})")
    return reasons


def _not_begun(context: Context, plan: Plan, shape: Shape) -> Iterator[str]:
    """What the last plan launches that could run `shape`, and was not launched after all."""
    for number, begun in sorted(context.less.items()):
        action = plan.actions[number]
        if isinstance(action, Launch) and _can_run(context, action, shape):
            what = f"{action.slots} x {action.offering.key} that the last plan launches for pool {action.pool}"
            yield f"of {what} {begun.slots or 'none'} {'was' if begun.slots == 1 else 'were'}: {begun.why}"


def _can_run(context: Context, action: Launch, shape: Shape) -> bool:
    pool = context.settings.pools.get(action.pool)
    if pool is None:  # it has left since
        return shape.pool in ("", action.pool)
    return not action.offering.machine(
        pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance
    ).misfit(shape)


def unserved(context: Context) -> dict[str, int]:
    """How many waiting tasks nothing is launched for, under each obstacle in their way; `unsatisfiable`: no offering
    can ever run them. From the last plan."""
    held: dict[str, int] = dict.fromkeys((*map(str, Obstacle), _NEVER), 0)
    if context.last is not None:
        for waiting in context.last[1].waiting:
            for obstacle in waiting.obstacles:
                held[str(obstacle)] += waiting.left
        held[_NEVER] = sum(shape.count for shape in context.last[1].unsatisfiable)
    return held


def missing(context: Context) -> dict[str, int]:
    """How many instances each pool has fewer than its minimum or a target wants, and nothing is launched for. From the
    last plan."""
    short = dict.fromkeys(map(str, context.settings.pools), 0)
    if context.last is not None:
        short.update({shortfall.pool: shortfall.missing for shortfall in context.last[1].shortfalls})
    return short


async def instance(context: Context, name: InstanceId) -> dict[str, Any]:
    """Why instance `name` was launched, is what it is, or ended; NotFound when there is none."""
    row = context.store.instances().get(name) or await context.store.instance(name)
    events = await context.store.events(instance=name)
    launched = next((e for e in reversed(events) if e.action == "instance.launching"), None)
    reasons = [f"launched: {launched.detail}"] if launched else []
    if row.cause or row.state is InstanceState.GONE:
        reasons.append(f"{row.state} ({row.cause or 'ended'}): {row.reason}")
    elif not launched:
        reasons.append(row.reason)
    if row.behaviour is not Behaviour.RUN:
        reasons.append(f"an operator set it to {row.behaviour}")
    held = context.store.leases_of(name)
    if held:
        reasons.append(f"it holds {len(held)} claim{'' if len(held) == 1 else 's'}")
    if nobody := unreachable.why(context, row):
        reasons.append(nobody)
    if name in context.in_doubt:
        reasons.append("its launch was not answered: the provider is asked whether the VM exists")
    plan_ids = sorted({e.plan for e in events if e.plan is not None})
    return {
        "subject": f"instance {name}",
        "state": str(row.state),
        "reasons": reasons,
        "plans": plan_ids,
        "events": [_event(event) for event in events],
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "at_ms": event.at_ms,
        "action": event.action,
        "instance": event.instance,
        "task": event.task,
        "detail": event.detail,
        "plan": event.plan,
    }
