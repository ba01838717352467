"""How much of a log is wanted. Owns windows, scales, the bound on tasks, and the splitting of jobs too wide for a VM.

A log may be far larger than memory: `collect` holds at most as many items as tasks are wanted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import Resources, format_cpus
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.workload.items import LONGEST_MS, WorkItem, Workload, compact

#: What is read where nobody says how many.
DEFAULT_TASKS = 1_000_000
#: More than this is never held in memory.
MAX_TASKS = 10_000_000


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a workload that is simulated.

    The window [`from_ms`, `until_ms`) is in the log's own time; what is left then starts at the window's start, and
    without `from_ms` with the first submission: logs count from an epoch, or from long before their first job. `tasks`
    keeps the first so many. `arrivals` and `runtimes` multiply the times of submission and of running (and what was
    expected of it), not the limits of these. A task of more than `split_cpus_milli` and no GPU becomes several of at
    most so many; 0 leaves it whole.
    """

    from_ms: int | None = None
    until_ms: int | None = None
    tasks: int = DEFAULT_TASKS
    arrivals: Fraction = Fraction(1)
    runtimes: Fraction = Fraction(1)
    split_cpus_milli: int = 0

    def __post_init__(self) -> None:
        first_ms = self.from_ms or 0
        if first_ms < 0:
            raise InvalidInput("expected a window that begins at 0 or later", place="from_ms")
        if self.until_ms is not None and self.until_ms <= first_ms:
            raise InvalidInput("expected a window that ends after it begins", place="until_ms")
        if not 1 <= self.tasks <= MAX_TASKS:
            raise InvalidInput(f"expected 1 to {MAX_TASKS} tasks, got {self.tasks}", place="tasks")
        if self.arrivals < 0:
            raise InvalidInput("expected a factor of 0 (all at once) or above", place="arrivals")
        if self.runtimes <= 0:
            raise InvalidInput("expected a factor above 0", place="runtimes")
        if self.split_cpus_milli < 0:
            raise InvalidInput("expected a number of cpus above 0", place="split_cpus_milli")


@dataclass(slots=True)
class _Tally:
    """What was left out or changed, for the assumptions."""

    outside: int = 0
    beyond: int = 0
    split: int = 0
    timed_out: int = 0
    shortened: int = 0


def collect(items: Iterable[WorkItem], cut: Cut, origin: str, told: Callable[[], Sequence[str]] = tuple) -> Workload:
    """The workload that `cut` leaves of `items`, which may come in any order and are read to the end. Its assumptions
    are what was left out or changed; `told` says it of the source. InvalidInput when nothing is left."""
    tally = _Tally()
    chosen = _first(compact(_inside(items, cut, tally)), cut.tasks, tally)
    if not chosen:
        where = "the window" if tally.outside else "it"
        why = "; ".join(text for text in told() if "left out" in text)
        message = f"expected at least one task in {where}, got none that can be simulated"
        raise InvalidInput(message, place=origin, hint=why)
    begins_ms = chosen[0].submit_ms if cut.from_ms is None else cut.from_ms
    if begins_ms or cut.arrivals != 1 or cut.runtimes != 1:
        chosen = [
            replace(
                item,
                submit_ms=_scale(item.submit_ms - begins_ms, cut.arrivals),
                run_ms=_scale(item.run_ms, cut.runtimes),
                expected_ms=_scale(item.expected_ms, cut.runtimes),
            )
            for item in chosen
        ]
    longest_ms = max(max(item.submit_ms, item.run_ms, item.expected_ms) for item in chosen)
    if longest_ms > LONGEST_MS:
        raise InvalidInput("expected no time above 100 years, scales included", place=origin)
    chosen = [_limited(item, tally) for item in chosen]  # the scales are not the limits'
    return Workload(tuple(compact(chosen)), origin, tuple(_told(cut, tally, begins_ms)))


def _inside(items: Iterable[WorkItem], cut: Cut, tally: _Tally) -> Iterator[WorkItem]:
    for item in items:
        if item.submit_ms < (cut.from_ms or 0) or (cut.until_ms is not None and item.submit_ms >= cut.until_ms):
            tally.outside += item.count
        elif 0 < cut.split_cpus_milli < item.shape.resources.cpus_milli and not item.shape.resources.gpus:
            tally.split += item.count
            yield from divided(item, cut.split_cpus_milli)
        else:
            yield item


def divided(item: WorkItem, cpus_milli: int) -> Iterator[WorkItem]:
    """`item`, which asks for no GPU, as tasks of at most `cpus_milli`, each with its share (rounded up) of memory and
    disk."""
    want = item.shape.resources
    whole, rest = divmod(want.cpus_milli, cpus_milli)
    for cpus, count in ((cpus_milli, whole), (rest, 1)):
        if cpus and count:
            share = Resources(
                cpus, -(-want.memory * cpus // want.cpus_milli), -(-want.disk * cpus // want.cpus_milli), 0
            )
            yield replace(item, shape=replace(item.shape, resources=share), count=item.count * count)


def _first(items: Iterable[WorkItem], tasks: int, tally: _Tally) -> list[WorkItem]:
    """The `tasks` that are submitted first, in order; those of one moment in the order in which they came."""
    heap: list[tuple[int, int, WorkItem]] = []  # the latest of those kept is on top
    held = 0
    for number, item in enumerate(items):
        heapq.heappush(heap, (-item.submit_ms, -number, item))
        held += item.count
        while held - heap[0][2].count >= tasks:
            latest = heapq.heappop(heap)[2]
            held -= latest.count
            tally.beyond += latest.count
    if held > tasks:
        latest_ms, number, latest = heap[0]
        tally.beyond += held - tasks
        heap[0] = (latest_ms, number, replace(latest, count=latest.count - (held - tasks)))
    return [item for _, _, item in sorted(heap, reverse=True)]


def _scale(milliseconds: int, by: Fraction) -> int:
    """Rounded half up."""
    if by == 1:
        return milliseconds
    return (2 * milliseconds * by.numerator + by.denominator) // (2 * by.denominator)


def _limited(item: WorkItem, tally: _Tally) -> WorkItem:
    """`item` within its max_runtime: what would run longer times out there, but no guess makes a task fail."""
    if not 0 < item.max_runtime_ms < item.run_ms:
        return item
    if item.assumed:
        tally.shortened += item.count
        return replace(item, run_ms=item.max_runtime_ms)
    tally.timed_out += item.count
    return replace(item, run_ms=item.max_runtime_ms, outcome=Cause.TIMEOUT)


def _told(cut: Cut, tally: _Tally, begins_ms: int) -> list[str]:
    told = []
    if begins_ms and cut.from_ms is None:
        told.append(f"the run begins with the first submission, at {format_duration(begins_ms)} by the log's own time")
    if tally.outside:
        until = "the end" if cut.until_ms is None else format_duration(cut.until_ms)
        told.append(
            f"{tally.outside} tasks outside the window {format_duration(cut.from_ms or 0)} to {until} are left out"
        )
    if tally.beyond:
        told.append(f"only the first {cut.tasks} tasks are taken, {tally.beyond} later ones are left out")
    if tally.split:
        told.append(
            f"{tally.split} tasks of more than {format_cpus(cut.split_cpus_milli)} cpu are split into independent tasks"
            " of at most so many, which need not run at the same time"
        )
    if cut.arrivals != 1:
        told.append(f"times between submissions are multiplied by {cut.arrivals}")
    if cut.runtimes != 1:
        told.append(f"run times are multiplied by {cut.runtimes}")
    if tally.timed_out:
        told.append(f"{tally.timed_out} tasks would run past their max_runtime: they end there as timed out")
    if tally.shortened:
        told.append(
            f"{tally.shortened} tasks whose run time is assumed take no longer than their max_runtime, and succeed"
        )
    return told
