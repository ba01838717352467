"""What a run amounted to. Owns the figures made of a record (times, money, use) and their JSON.

Pure over frozen values. Times are milliseconds, amounts micro-dollars. Must not know who ran what.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from cloud_dispatch.domain.ids import InstanceId, ProfileName, TaskId
from cloud_dispatch.domain.money import Amount, cost, format_amount, split
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.task import MACHINE_CAUSES, TERMINAL, Cause, TaskState
from cloud_dispatch.simulation.record import Record, Rental, TaskTimes

#: Points of a curve over time, at most.
SAMPLES = 120
Interval = tuple[int, int]
#: Of the time from one moment to a later one: how long it is, or what it cost.
Measure = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution of milliseconds; percentiles are the smallest value that so many per cent do not exceed."""

    count: int = 0
    mean: int = 0
    p50: int = 0
    p90: int = 0
    p99: int = 0
    longest: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """Something of instances (milliseconds or micro-dollars) by what it went to.

    boot: from launch to registration. work: at least one task ran whose result counted. lost: only tasks ran that had
    to run again, or the instance never registered. idle: the rest.
    """

    boot: int = 0
    work: int = 0
    idle: int = 0
    lost: int = 0

    @property
    def total(self) -> int:
        return self.boot + self.work + self.idle + self.lost

    def __add__(self, other: Parts) -> Parts:
        return Parts(self.boot + other.boot, self.work + other.work, self.idle + other.idle, self.lost + other.lost)


@dataclass(frozen=True, slots=True)
class TypeLine:
    """All instances of one profile, type and market. `unpriced`: how many of them have a cost that nobody knows."""

    profile: ProfileName
    type: str
    market: Market
    count: int
    time: Parts
    cost: Parts
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """[`at_ms`, the next sample): time-weighted mean of instances in thousandths, and the most at once."""

    at_ms: int
    mean_milli: int
    most: int


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a run. Times are relative to `start_ms`, its first submission or launch. `failures` counts the
    tasks that failed by the cause of their last run, `unsubmitted` the tasks that were to come after the run's end.

    `makespan_ms` is from the first submission to the last task's end, None where some task has not ended, or not come.
    `work_permille` is the share of the instances' time in which they worked, `cpu_permille` the share of the cpu time
    paid for that tasks asked for while they ran (lost runs left out).
    """

    start_ms: int
    makespan_ms: int | None
    tasks: Mapping[TaskState, int]
    failures: Mapping[Cause, int]
    runs: int
    wait: Spread
    turnaround: Spread
    time: Parts
    cost: Parts
    unpriced: int
    types: tuple[TypeLine, ...]
    work_permille: int
    cpu_permille: int
    most_instances: int
    curve: tuple[Sample, ...]
    assumptions: tuple[str, ...] = ()
    unsubmitted: int = 0

    @property
    def unfinished(self) -> int:
        """Tasks that have not ended when the run did."""
        return self.unsubmitted + sum(count for state, count in self.tasks.items() if state not in TERMINAL)


def report(record: Record, assumptions: Sequence[str] = ()) -> Report:
    """The figures of `record`. Each instance's amount is rounded up once and split exactly, by what was charged when:
    all sums hold."""
    starts = [task.submit_ms for task in record.tasks] + [rental.launched_ms for rental in record.rentals]
    start = min(starts, default=record.end_ms)
    lines = _type_lines(record)
    time, money = _sum(line.time for line in lines), _sum(line.cost for line in lines)
    curve = _curve(record, start)
    return Report(
        start_ms=start,
        makespan_ms=None if record.unsubmitted else _makespan(record.tasks),
        tasks=dict(sorted(Counter(task.state for task in record.tasks).items())),
        failures=_failures(record),
        runs=len(record.runs),
        wait=spread([task.started_ms - task.submit_ms for task in record.tasks if task.started_ms is not None]),
        turnaround=spread([task.ended_ms - task.submit_ms for task in record.tasks if task.ended_ms is not None]),
        time=time,
        cost=money,
        unpriced=sum(line.unpriced for line in lines),
        types=lines,
        work_permille=_permille(time.work, time.total),
        cpu_permille=_cpu_permille(record),
        most_instances=max((sample.most for sample in curve), default=0),
        curve=curve,
        assumptions=(*assumptions, *filter(None, [record.partial])),
        unsubmitted=record.unsubmitted,
    )


def spread(values: Sequence[int]) -> Spread:
    """The distribution of `values` (non-negative); the mean is rounded down."""
    if not values:
        return Spread()
    ordered = sorted(values)

    def percentile(percent: int) -> int:
        return ordered[-(-len(ordered) * percent // 100) - 1]

    mean = sum(ordered) // len(ordered)
    return Spread(len(ordered), mean, percentile(50), percentile(90), percentile(99), ordered[-1])


def _length(start: int, end: int) -> int:
    return end - start


def covered(intervals: Iterable[Interval], measure: Measure = _length) -> int:
    """How long at least one of `intervals` (start, end) was under way; with another `measure`, what it cost."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            total += measure(begin, end)
            reached = end
    return total


def _makespan(tasks: Sequence[TaskTimes]) -> int | None:
    ends = [task.ended_ms for task in tasks if task.ended_ms is not None]
    return max(ends) - min(task.submit_ms for task in tasks) if ends and len(ends) == len(tasks) else None


def _last_runs(record: Record) -> Mapping[TaskId, int]:
    """The position of each task's last run."""
    last: dict[TaskId, int] = {}
    for position, run in enumerate(record.runs):
        known = last.get(run.task)
        if known is None or record.runs[known].started_ms <= run.started_ms:
            last[run.task] = position
    return last


def _failures(record: Record) -> Mapping[Cause, int]:
    last = _last_runs(record)
    failed = (task.task for task in record.tasks if task.state is TaskState.FAILED and task.task in last)
    causes = (record.runs[last[task]].cause for task in failed)
    return dict(Counter(cause for cause in causes if cause is not None).most_common())


def _lost_runs(record: Record) -> set[int]:
    """Positions of the runs that had to be done again: by the machine's fault, or not the last of their task."""
    kept = set(_last_runs(record).values())
    return {p for p, run in enumerate(record.runs) if p not in kept or run.cause in MACHINE_CAUSES}


def _type_lines(record: Record) -> tuple[TypeLine, ...]:
    worked, lost = _intervals(record)
    lines: dict[tuple[ProfileName, str, Market], TypeLine] = {}
    for rental in record.rentals:
        ran = worked.get(rental.instance, ()), lost.get(rental.instance, ())
        time = _parts(rental, *ran, record.end_ms)
        amount = rental_cost(rental, record.end_ms)
        priced = _parts(rental, *ran, record.end_ms, _charge(rental)) if rental.prices else time
        money = Parts() if amount is None else _split(amount, priced if priced.total else time)
        key = (rental.profile, rental.type, rental.market)
        line = lines.get(key) or TypeLine(*key, 0, Parts(), Parts())
        unpriced = line.unpriced + (amount is None)
        lines[key] = TypeLine(*key, line.count + 1, line.time + time, line.cost + money, unpriced)
    return tuple(lines[key] for key in sorted(lines))


def _intervals(record: Record) -> tuple[dict[InstanceId, list[Interval]], dict[InstanceId, list[Interval]]]:
    """By instance: when runs that counted were under way, and when those that were lost."""
    lost_runs = _lost_runs(record)
    worked: dict[InstanceId, list[Interval]] = {}
    lost: dict[InstanceId, list[Interval]] = {}
    for position, run in enumerate(record.runs):
        end = record.end_ms if run.ended_ms is None else run.ended_ms
        (lost if position in lost_runs else worked).setdefault(run.instance, []).append((run.started_ms, end))
    return worked, lost


def _charge(rental: Rental) -> Measure:
    """What the meter charged for the time in between: nano-dollars an hour x milliseconds."""
    moments = [moment for moment, _ in rental.prices]
    lengths = [end - start for start, end in pairwise(moments)]
    reached = list(accumulate((rate * ms for (_, rate), ms in zip(rental.prices, lengths, strict=False)), initial=0))

    def until(moment: int) -> int:
        at = bisect_right(moments, moment) - 1
        return reached[at] + rental.prices[at][1] * (moment - moments[at]) if at >= 0 else 0

    return lambda start, end: until(end) - until(start)


def _split(amount: Amount, by: Parts) -> Parts:
    return Parts(*split(amount, (by.boot, by.work, by.idle, by.lost)))


def _parts(
    rental: Rental, worked: Iterable[Interval], lost: Iterable[Interval], end_ms: int, measure: Measure = _length
) -> Parts:
    end = _end(rental, end_ms)
    if rental.registered_ms is None:
        # Still booting is a boot; ended without ever having registered is money for nothing.
        total = measure(rental.launched_ms, end)
        return Parts(boot=total) if rental.ended_ms is None else Parts(lost=total)
    ready = min(max(rental.registered_ms, rental.launched_ms), end)
    inside = [_clipped(interval, ready, end) for interval in worked]
    outside = [_clipped(interval, ready, end) for interval in lost]
    work = covered(inside, measure)
    wasted = covered([*inside, *outside], measure) - work
    boot, rest = measure(rental.launched_ms, ready), measure(ready, end)
    return Parts(boot=boot, work=work, lost=wasted, idle=rest - work - wasted)


def _clipped(interval: Interval, low: int, high: int) -> Interval:
    return min(max(interval[0], low), high), min(max(interval[1], low), high)


def _end(rental: Rental, end_ms: int) -> int:
    return max(end_ms if rental.ended_ms is None else rental.ended_ms, rental.launched_ms)


def rental_cost(rental: Rental, end_ms: int) -> Amount | None:
    """What `rental` has cost by its end, or by `end_ms`; None for a price that nobody knows."""
    if rental.billed is not None or rental.rate is None:
        return rental.billed
    return cost(
        rental.rate,
        _end(rental, end_ms) - rental.launched_ms,
        minimum_ms=rental.minimum_ms,
        increment_ms=max(rental.increment_ms, 1),
    )


def _cpu_permille(record: Record) -> int:
    lost_runs, tasks = _lost_runs(record), {task.task: task for task in record.tasks}
    used = sum(
        ((record.end_ms if run.ended_ms is None else run.ended_ms) - run.started_ms)
        * tasks[run.task].shape.resources.cpus_milli
        for position, run in enumerate(record.runs)
        if position not in lost_runs and run.task in tasks
    )
    paid = sum((_end(rental, record.end_ms) - rental.launched_ms) * rental.cpus_milli for rental in record.rentals)
    return _permille(used, paid)


def _permille(part: int, whole: int) -> int:
    return part * 1000 // whole if whole else 0


def _sum(parts: Iterable[Parts]) -> Parts:
    return sum(parts, Parts())


def _curve(record: Record, start: int) -> tuple[Sample, ...]:
    """Instances over time in at most SAMPLES steps of equal length (the last may be shorter)."""
    last = max((_end(rental, record.end_ms) for rental in record.rentals), default=start)
    if last <= start:
        return ()
    step = -(-(last - start) // SAMPLES)
    changes: Counter[int] = Counter()
    for rental in record.rentals:
        changes[rental.launched_ms] += 1
        changes[_end(rental, record.end_ms)] -= 1
    moments = sorted(changes)
    samples, now, at = [], 0, 0
    for begin in range(start, last, step):
        end = min(begin + step, last)
        area, most, reached = 0, 0, begin
        while at < len(moments) and moments[at] < end:
            area += now * (moments[at] - reached)
            most = max(most, now if moments[at] > reached else 0)
            reached = moments[at]
            now += changes[reached]
            at += 1
        area += now * (end - reached)
        samples.append(Sample(begin - start, area * 1000 // (end - begin), max(most, now)))
    return tuple(samples)


def as_json(found: Report) -> dict[str, Any]:
    """`found` as plain values: times in milliseconds, amounts in micro-dollars, shares as fractions."""
    return {
        "makespan_ms": found.makespan_ms,
        "tasks": {state.value: count for state, count in found.tasks.items()},
        "failed_by": {cause.value: count for cause, count in found.failures.items()},
        "unfinished": found.unfinished,
        "runs": found.runs,
        "wait_ms": _spread_json(found.wait),
        "turnaround_ms": _spread_json(found.turnaround),
        "time_ms": _parts_json(found.time),
        "cost_micro": _parts_json(found.cost),
        "cost": format_amount(Amount(found.cost.total)),
        "unpriced_instances": found.unpriced,
        "utilisation": {"instances": found.work_permille / 1000, "cpus": found.cpu_permille / 1000},
        "instances": {
            "total": sum(line.count for line in found.types),
            "most": found.most_instances,
            "by_type": [
                {
                    "profile": line.profile,
                    "type": line.type,
                    "market": line.market.value,
                    "count": line.count,
                    "time_ms": _parts_json(line.time),
                    "cost_micro": _parts_json(line.cost),
                    "unpriced": line.unpriced,
                }
                for line in found.types
            ],
            "over_time": [
                {"at_ms": sample.at_ms, "mean": sample.mean_milli / 1000, "most": sample.most} for sample in found.curve
            ],
        },
        "assumptions": list(found.assumptions),
    }


def _spread_json(found: Spread) -> dict[str, int | None]:
    """null, not 0, where there is nothing to measure: it would be the best of all."""
    values = {"mean": found.mean, "p50": found.p50, "p90": found.p90, "p99": found.p99, "max": found.longest}
    return {"count": found.count, **{name: value if found.count else None for name, value in values.items()}}


def _parts_json(parts: Parts) -> dict[str, int]:
    return {"boot": parts.boot, "work": parts.work, "idle": parts.idle, "lost": parts.lost, "total": parts.total}
