"""How a claim ends. Owns what becomes of the task and what is written; must not know who noticed the end."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import update

from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.task import TASK_TABLE, Cause, Outcome, TaskEvent, TaskState, event_after
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.purse import Charge
from cloud_dispatch.statestore.queue import Lot
from cloud_dispatch.statestore.rows import attempt_row
from cloud_dispatch.statestore.schema import tasks
from cloud_dispatch.statestore.seats import Hold, Seat

#: Of a command that never started these say nothing about the task: the claim goes back and costs no attempt.
_NOTHING_TRIED = frozenset({Cause.CANCELLED, Cause.PREEMPTED, Cause.INSTANCE_LOST})
_LOST = Outcome(Cause.INSTANCE_LOST, detail="the instance no longer has it")
#: So many times in a row a claim may be lost with its instance before its command has started: then that counts as an
#: attempt, since it may be the task by which its machines are lost. Counted since the store was opened.
MOST_LOST = 5
_REMEMBERED = 10_000
_SPOILT = f"lost with its instance {MOST_LOST} times before it could start; "
#: So much is told of what took the instance: every task that it held has it.
_DETAIL_LENGTH = 500
_HANDED_BACK = Outcome(Cause.INSTANCE_LOST, detail="handed back after it had started")
#: Where each event leads from a held state: the table's arrows, which agree on it.
_AFTER = {event: after for (before, event), after in TASK_TABLE.arrows.items() if before is TaskState.RUNNING}
_AFTER[TaskEvent.RELEASE] = TASK_TABLE.apply(TaskState.CLAIMED, TaskEvent.RELEASE)
_AFTER[TaskEvent.CANCELLED] = TASK_TABLE.apply(TaskState.CANCELLING, TaskEvent.CANCELLED)


class Ran(NamedTuple):
    """What an agent says of a command: when it ended, as far as it can be believed, and how long it ran."""

    ended_ms: int
    ran_ms: int | None


def end_claim(
    batch: Batch, hold: Hold, outcome: Outcome | None, started_ms: int | None, now: int, ran: Ran | None = None,
    *, spoilt: bool = False,
) -> None:  # fmt: skip
    """End `hold` as its agent reports. `outcome` None: handed back. `started_ms` None: its command never started.
    `ran`: it may have ended long before somebody could be told; not before it began, whatever its agent says, nor later
    than now. What the claim has cost its payer goes on until now: so long it may have been needed. `spoilt`: it counts
    as an attempt though nothing was tried.

    A cancelled task ends cancelled whatever is reported. An unstarted claim goes back to its old place without an
    attempt, unless the report is of the task's own making (it can't be started): that costs an attempt, so that it is
    bounded across instances.
    """
    lot = hold.lot
    if outcome is None:
        outcome = None if started_ms is None else _HANDED_BACK
    elif started_ms is None and outcome.cause in _NOTHING_TRIED and not spoilt:
        outcome = None
    if lot.line < 0:
        _settle(batch, hold, now)
    batch.memory.drop(hold)
    if hold.cancelling:
        if outcome is not None and outcome.cause is not Cause.CANCELLED:
            outcome = replace(outcome, cause=Cause.CANCELLED, manifest=())
        event = TaskEvent.CANCELLED
    elif outcome is None:
        event = TaskEvent.RELEASE
    else:
        event = event_after(outcome, lot.retry, lot.attempts + 1, cancelling=False)
    tried, expected_ms, ended_ms = lot.attempts, lot.expected_ms, now
    if outcome is not None:
        tried += 1
        if batch.memory.lost:
            batch.effects.append(lambda: batch.memory.lost.pop(hold.task, None))
        ended_ms = max(now if ran is None else min(ran.ended_ms, now), started_ms or hold.claimed_ms)
        batch.attempts.append(attempt_row(hold, tried, started_ms, ended_ms, outcome, now))
        if started_ms is not None:
            took_ms = ended_ms - started_ms if ran is None or ran.ran_ms is None else ran.ran_ms
            if outcome.cause is Cause.SUCCESS:
                batch.memory.succeeded(lot.shape, took_ms, lot.expected_ms)
            elif outcome.cause is Cause.PREEMPTED:
                expected_ms = _outlasted(batch, hold, took_ms, now)
    after = _AFTER[event]
    if after is TaskState.QUEUED:
        if expected_ms != lot.expected_ms:
            batch.write(update(tasks).where(tasks.c.id == hold.task).values(expected_ms=expected_ms))
        same = tried == lot.attempts
        _put_back(batch, hold.task, lot if same else lot._replace(attempts=tried, expected_ms=expected_ms))
    else:
        batch.memory.counts[after] += 1
        batch.task_ended(hold.task, after, tried, ended_ms)


def lose_claim(batch: Batch, hold: Hold, now: int) -> None:
    """End `hold` because nothing of it lives on its instance any more."""
    end_claim(batch, hold, _LOST, hold.started_ms, now)


def lose_all(batch: Batch, seat: Seat, own: Instance, now: int) -> None:
    """End everything that is held by an instance that is lost: `own`, which says by what. Beside what runs there a
    claim that has not started says nothing of its task: it may have waited for room."""
    holds = list(seat.held.values())
    alone = all(hold.started_ms is None for hold in holds)
    taken = _taken(own)
    lost = Outcome(Cause.INSTANCE_LOST, detail=taken)
    for hold in holds:
        if alone and _lost_again(batch, hold.task):
            again = Outcome(Cause.INSTANCE_LOST, detail=_SPOILT + taken)
            end_claim(batch, hold, again, hold.started_ms, now, spoilt=True)
        else:
            end_claim(batch, hold, lost, hold.started_ms, now)


def _taken(own: Instance) -> str:
    """What took the instance, as far as anything was seen; what it was launched for is no such reason."""
    cause = f" ({own.cause})" if own.cause not in ("", own.state.value) else ""
    reason = f": {own.reason}" if own.cause and own.reason else ""
    return f"its instance is {own.state.value}{cause}{reason}"[:_DETAIL_LENGTH]


def _lost_again(batch: Batch, task: int) -> bool:
    """Count that a claim of `task` was lost before it started; whether that was once too often."""
    lost = batch.memory.lost
    times = lost.get(task, 0) + 1
    spoilt = times >= MOST_LOST
    if len(lost) >= _REMEMBERED:
        batch.effects.append(lost.clear)  # of tasks that were cancelled meanwhile, and others that begin anew
    batch.effects.append(lambda: lost.pop(task, None) if spoilt else lost.update({task: times}))
    return spoilt


def _outlasted(batch: Batch, hold: Hold, ran_ms: int, now: int) -> int:
    """How long a task is expected to take whose agent had to end it after so long: twice that, if it had taken longer
    than was likely. Else it would be given as little time again and again, where that is what a machine's end is set
    by. How long one ran that was lost with its machine nobody knows. But no longer than a whole life there: what
    is expected to take longer than any lives is begun by whoever asks, however old."""
    lot, memory = hold.lot, batch.memory
    if not ran_ms > memory.likely_ms(lot) > 0:
        return lot.expected_ms
    instance = batch.instance(hold.seat.instance.id) or hold.seat.instance
    life = memory.purse.terms.remaining(instance, now)
    return min(2 * ran_ms, life.whole_ms) if life is not None and ran_ms < life.whole_ms else 2 * ran_ms


def _settle(batch: Batch, hold: Hold, now: int) -> None:
    """What the claim has cost its payer: until now, or until the last moment that its VM's hard end left it, however
    much later somebody looked."""
    memory, instance = batch.memory, batch.instance(hold.seat.instance.id) or hold.seat.instance
    paid = memory.payers.of(hold.task)
    if paid is None:
        return
    until_ms = now if instance.last_ms is None else min(now, instance.last_ms)
    charged = replace(paid.commitment, until_ms=max(until_ms, paid.commitment.from_ms))
    memory.settle(hold.task, hold.token, charged)
    row = Charge.of(hold.task, hold.token, instance.id, hold.lot.payer, charged)
    batch.charges.append(row)
    batch.effects.append(lambda: memory.charge(row))


def _put_back(batch: Batch, task: int, lot: Lot) -> None:
    batch.memory.enqueue(task, lot)
    batch.task_queued(task, lot)
    batch.queued[lot.shape] = batch.queued.get(lot.shape, 0) + 1
