"""Complaints about the queue: a retry that stands behind others, and a controller that hundreds of jobs make slow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.pool import Caps
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.snapshot import DemandItem
from cloud_dispatch.ports.store import SyncCall, SyncDone
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.conduct import Conduct
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.scenario import Work
from cloud_dispatch.simulation.world import World
from tests.simulation.complaints import plants
from tests.simulation.complaints.staging import ALONE
from tests.simulation.complaints.story import Evidence, Story
from tests.simulation.scenes import scene

# -- 20: a retry's back-off inverts priority

_PLAIN = 12
_TRIES = 3


def _urgent_ones_fail(found: Evidence) -> Iterator[str]:
    if [number for task, number, cause in found.attempts() if task > _PLAIN and cause == Cause.PREEMPTED] == []:
        yield "no urgent task lost an attempt"
    first = _first_urgent_ms(found)
    if not any(s.task <= _PLAIN and s.at_ms > first for s in found.starts):
        yield "nothing plain was waiting behind the urgent tasks"


def _first_urgent_ms(found: Evidence) -> int:
    return min((s.at_ms for s in found.starts if s.task > _PLAIN), default=10**9)


def _urgent_first(found: Evidence) -> Iterator[str]:
    """From the first start of an urgent task to the last, nothing plain is started between."""
    urgent = [s.at_ms for s in found.starts if s.task > _PLAIN]
    between = [s for s in found.starts if s.task <= _PLAIN and min(urgent) < s.at_ms < max(urgent)]
    if between:
        yield f"{len(between)} plain tasks were started before urgent ones that had failed"
    if len(urgent) != 2 * _TRIES:
        yield f"the urgent tasks were tried {len(urgent)} times, not {2 * _TRIES}"


def _back_of_the_queue(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer has what failed wait, while the rest of the queue goes on."""

    def plant(living: Incarnation) -> None:
        store: Any = living.store
        sync = store.sync

        async def demoting(call: SyncCall) -> SyncDone:
            failed = [r.task for r in call.results if r.outcome is not None and r.outcome.cause is not Cause.SUCCESS]
            if not failed:
                done: SyncDone = await sync(call)
                return done
            done = await sync(msgspec.structs.replace(call, want=0, ahead=0))
            for task in failed:
                if sum(1 for _ in await store.attempts(task)) < _TRIES:
                    await store.prioritise(task, -1)
            return done

        store.sync = demoting

    plants.dispatcher(world, plant)


PRIORITY = Story(
    20,
    "a-retry-keeps-its-priority",
    scene(
        work=(
            Work(count=_PLAIN, conduct=Conduct(run_ms=12_000), shape=ALONE),
            Work(
                submit_ms=70_000, count=2, conduct=Conduct(run_ms=6_000, cause=Cause.PREEMPTED), shape=ALONE,
                priority=5, max_attempts=_TRIES,
            ),
        ),
        caps=Caps(instances=1),
    ),
    _urgent_ones_fail,
    _urgent_first,
    _back_of_the_queue,
    "plain tasks were started before urgent ones",
)  # fmt: skip

# -- 21: the controller is slow at hundreds of jobs

_JOBS = 800


def _count_work(world: World, evidence: Evidence) -> None:
    """The function calls of every pass: what it sees and what it plans, with what waits meanwhile."""
    passes: list[tuple[int, int]] = evidence.noted.setdefault("passes", [])

    def plant(living: Incarnation) -> None:
        context: Any = living.parts.context if living.parts else None
        inside = context.planning.run

        async def counted(work: Callable[..., Any], *args: Any) -> Any:
            def weighed(*args: Any) -> Any:
                if work is not plan:
                    return work(*args)
                result, calls = _weigh(work, *args)
                waiting = sum(item.count for item in args[0].demand)
                passes.append((waiting, calls))
                return result

            return await inside(weighed, *args)

        context.planning.run = counted

    world.plants.append(plant)


def _weigh(work: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """What `work` gives, and how many functions were called for it."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = work(*args)
    finally:
        sys.setprofile(before)
    return result, calls


def _long_and_short_queues(found: Evidence) -> Iterator[str]:
    waiting = [count for count, _ in found.noted["passes"]]
    if not any(count > _JOBS // 2 for count in waiting) or not any(0 < count < _JOBS // 20 for count in waiting):
        yield "the queue was not both long and short"


def _passes_are_cheap(found: Evidence) -> Iterator[str]:
    """A pass costs what its shapes cost, whatever number of jobs stands behind them. With a short queue all find room,
    and nothing that could be rented is looked at: what tells is a long queue, of whose jobs nothing is asked."""
    longest = max((calls for count, calls in found.noted["passes"] if count > _JOBS // 2), default=0)
    if longest > 2 * _JOBS:
        yield f"planning took {longest} function calls with a queue of {_JOBS} jobs"
    if len(found.commits) > 3 * _JOBS:
        yield f"{len(found.commits)} transactions for {_JOBS} jobs"


def _job_by_job(world: World, patch: pytest.MonkeyPatch) -> None:
    """The peer looks at each job by itself."""

    class EachJob:
        def __init__(self, source: Any) -> None:
            self._source = source
            self.name: str = source.name

        def demand(self, now: int) -> tuple[Any, ...]:
            found = []
            for item in self._source.demand(now):
                single = isinstance(item, DemandItem)
                found += [replace(item, count=1) for _ in range(item.count)] if single else [item]
            return tuple(found)

    def plant(living: Incarnation) -> None:
        loop: Any = living.parts.loop if living.parts else None
        loop._sources = [EachJob(source) for source in loop._sources]

    plants.dispatcher(world, plant)


MANY_JOBS = Story(
    21,
    "hundreds-of-jobs-do-not-make-a-pass-dear",
    scene(
        Cloud.EC2,
        work=(
            Work(count=_JOBS, conduct=Conduct(run_ms=4_000), shape=Shape(Resources(500, GIB // 4)), expected_ms=4_000),
        ),
        caps=Caps(instances=6),
    ),
    _long_and_short_queues,
    _passes_are_cheap,
    _job_by_job,
    "function calls with a queue of 800 jobs",
    stage=_count_work,
)

STORIES = (PRIORITY, MANY_JOBS)
