"""A statestore's own history. Owns how its tasks, attempts and instances become a record, and a workload to run again.

Works on any open store through the port: a backup of a dispatcher's, or that of a simulated run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.task import Attempt, Cause, Task, TaskState
from cloud_dispatch.ports.store import Store, TaskFilter
from cloud_dispatch.simulation.record import Record, Rental, Run, TaskTimes
from cloud_dispatch.simulation.workload.items import OWN_CAUSES, BootTime, WorkItem

#: Rows asked for at once, and the most gone instances that are looked at (the newest).
PAGE = 10_000


async def record_of(store: Store, now: int | None = None, gone: Sequence[Instance] | None = None) -> Record:
    """All that `store` remembers, as of `now` (None: its own last moment).

    Launches that made no VM are left out. `gone` are the instances that are gone, of somebody who has seen them go.
    Without, and of more than PAGE, the older ones are left out too, and the record says so.
    """
    past = await store.past_instances(limit=PAGE) if gone is None else gone
    instances = [*past, *store.instances().values()]
    attempts: dict[TaskId, list[Attempt]] = {}
    for instance in instances:
        for attempt in await store.attempts_of(instance.id):
            attempts.setdefault(attempt.task, []).append(attempt)
    tasks: list[TaskTimes] = []
    runs: list[Run] = []
    after = TaskId(0)
    while page := await store.tasks(TaskFilter(), after=after, limit=PAGE):
        after = page[-1].id
        for task in page:
            own = attempts.get(task.id, [])
            if len(own) < task.attempts:  # some instance of it is known no more
                own = list(await store.attempts(task.id))
            ran = _runs(task, own)
            runs += ran
            tasks.append(_times(task, ran))
    rentals = tuple(sorted(filter(None, map(_rental, instances)), key=lambda own: (own.launched_ms, own.instance)))
    end_ms = _last(tasks, runs, rentals) if now is None else now
    partial = (
        "" if gone is not None or len(past) < PAGE else f"of the instances that are gone only the newest {PAGE} count"
    )
    return Record(tuple(tasks), tuple(runs), rentals, end_ms, partial)


def _runs(task: Task, attempts: list[Attempt]) -> list[Run]:
    ended = [
        Run(task.id, own.instance, own.started_ms, own.ended_ms, own.outcome.cause, own.outcome.exit_code)
        for own in sorted(attempts, key=lambda own: own.token)
        if own.started_ms is not None
    ]
    lease = task.lease
    if lease is not None and lease.started_ms is not None:
        ended.append(Run(task.id, lease.instance, lease.started_ms))
    return ended


def _times(task: Task, runs: list[Run]) -> TaskTimes:
    spec = task.spec
    return TaskTimes(
        task=task.id,
        submit_ms=task.submitted_ms,
        started_ms=min((run.started_ms for run in runs), default=None),
        ended_ms=task.ended_ms,
        state=task.state,
        shape=spec.shape,
        expected_ms=spec.expected_runtime_ms,
        priority=spec.priority,
        user=spec.user,
        project=spec.project,
        retry=spec.retry,
        max_runtime_ms=spec.max_runtime_ms,
        checkpoints=bool(spec.checkpoint_signal),
    )


def _rental(instance: Instance) -> Rental | None:
    if instance.launched_ms is None:
        return None
    return Rental(
        instance=instance.id,
        pool=instance.pool,
        profile=instance.profile,
        type=instance.type,
        zone=instance.zone,
        market=instance.market,
        cpus_milli=instance.vcpus * 1000,  # what is paid for: the machine's capacity lacks what its pool reserves
        launched_ms=instance.launched_ms,
        registered_ms=instance.registered_ms,
        ended_ms=instance.ended_ms,
        rate=instance.rate,
        minimum_ms=instance.minimum_ms,
        increment_ms=instance.increment_ms,
        vm=instance.vm,
    )


def _last(tasks: list[TaskTimes], runs: list[Run], rentals: tuple[Rental, ...]) -> int:
    """The last moment that anything in the store speaks of."""
    return max(
        (
            0,
            *(task.submit_ms if task.ended_ms is None else task.ended_ms for task in tasks),
            *(run.started_ms if run.ended_ms is None else run.ended_ms for run in runs),
            *(rental.ended_ms or rental.registered_ms or rental.launched_ms for rental in rentals),
        )
    )


def _exit_code(runs: list[Run]) -> int:
    """The last that is known, if it says that something failed."""
    return next((run.exit_code for run in reversed(runs) if run.exit_code), 1)


@dataclass
class HistoryWork:
    """The tasks of a record as work to be done again; times count from its first submission. `run_ms` is assumed of a
    task that never ran to an end and expects nothing."""

    record: Record
    run_ms: int
    _seen: Counter[str] = field(default_factory=Counter)

    def items(self) -> Iterator[WorkItem]:
        """A task each, in order of submission."""
        runs: dict[TaskId, list[Run]] = {}
        for run in self.record.runs:
            runs.setdefault(run.task, []).append(run)
        start = min((task.submit_ms for task in self.record.tasks), default=0)
        for task in self.record.tasks:
            known = self._ran(task, runs.get(task.task, []))
            if known is None:
                continue
            run_ms, outcome, recorded = known
            # What once ended of itself was within its limit, however long the dispatcher saw it run.
            limit_ms = max(task.max_runtime_ms, run_ms) if task.max_runtime_ms and recorded else task.max_runtime_ms
            yield WorkItem(
                submit_ms=task.submit_ms - start,
                shape=task.shape,
                run_ms=run_ms,
                expected_ms=task.expected_ms,
                priority=task.priority,
                user=task.user,
                project=task.project,
                outcome=outcome,
                exit_code=_exit_code(runs.get(task.task, [])),
                retry=task.retry,
                max_runtime_ms=limit_ms,
                assumed=not recorded and not task.expected_ms,
                checkpoints=task.checkpoints,
            )

    def _ran(self, task: TaskTimes, runs: list[Run]) -> tuple[int, Cause, bool] | None:
        """How long an undisturbed attempt takes, how it ends, and whether that is recorded; None for a task that is
        left out."""
        whole = [(run.ended_ms - run.started_ms, run.cause) for run in runs if run.ended_ms is not None]
        if whole and whole[-1][1] in OWN_CAUSES and task.state in (TaskState.SUCCEEDED, TaskState.FAILED):
            kept_ms = sum(ran for ran, cause in whole if task.checkpoints and cause is Cause.PREEMPTED)
            self._seen["resumed" if kept_ms else "retried"] += len(whole) > 1
            return kept_ms + whole[-1][0], whole[-1][1] or Cause.SUCCESS, True
        if task.state is TaskState.CANCELLED and not whole:
            self._seen["cancelled"] += 1
            return None
        if task.state in (TaskState.CANCELLED, TaskState.FAILED) and whole:
            self._seen["interrupted"] += 1
            return max(ran for ran, _ in whole), Cause.SUCCESS, True
        self._seen["unknown"] += 1
        return task.expected_ms or self.run_ms, Cause.SUCCESS, False

    def assumptions(self) -> list[str]:
        """What the history does not say, in sentences; complete once `items()` is."""
        assumed = format_duration(self.run_ms)
        texts = {
            "retried": "{} tasks took several attempts: here each one takes as long, and ends, as the last did",
            "resumed": "{} tasks with a checkpoint_signal were preempted: here each attempt takes as long as those that"
            " were and the last together",
            "cancelled": "{} tasks that were cancelled before they started are left out",
            "interrupted": "{} tasks were cancelled or lost while they ran: they run as long as they did, and succeed",
            "unknown": f"{{}} tasks have not run to an end: they take what they expect, else {assumed}",
        }
        told = [text.format(self._seen[key]) for key, text in texts.items() if self._seen[key]]
        return [*filter(None, [self.record.partial]), *told]

    def boots(self) -> list[BootTime]:
        """Recorded boot times, in order of launch."""
        return [
            BootTime(own.profile, own.type, own.zone, own.market, max(own.registered_ms - own.launched_ms, 0))
            for own in self.record.rentals
            if own.registered_ms is not None
        ]
