"""A statestore's history as a record and as a workload."""

from __future__ import annotations

from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path

import pytest

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.instance import InstanceEvent
from cloud_dispatch.domain.task import Cause, Outcome, RetryRules, TaskState
from cloud_dispatch.ports.store import InstanceChange, Store, TaskFilter
from cloud_dispatch.simulation.workload import history
from cloud_dispatch.simulation.workload.cut import Cut
from cloud_dispatch.simulation.workload.history import record_of
from cloud_dispatch.simulation.workload.items import WorkItem
from cloud_dispatch.simulation.workload.read import Reading, from_record
from cloud_dispatch.statestore import open_store
from cloud_dispatch.testing.store_builders import START_MS, Agent, ManualClock, adopted, result, spec


class _Names:
    def name(self, purpose: str, length: int = 12) -> str:
        return "s" + "0" * (length - 1)

    def secret(self, purpose: str) -> str:
        return purpose

    def fraction(self, purpose: str) -> float:
        return 0.5


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{tmp_path}/store.sqlite", clock=clock, entropy=_Names(), executor=Inline())
    yield opened
    await opened.close()


async def a_worker(store: Store) -> Agent:
    """An instance that booted for 40 s before the first moment."""
    return await adopted(store, launched_ms=START_MS - 40_000, registered_ms=START_MS, ended_ms=None)


async def work(agent: Agent, clock: ManualClock, ran_ms: int, outcome: Outcome) -> TaskId:
    """Claim the next task, run it for `ran_ms`, and report its end; its number."""
    (claimed,) = await agent.claim()
    agent.runs(claimed, 0)
    await agent.sync()
    clock.now_ms += ran_ms
    await agent.sync(result(claimed, outcome, ran_ms))
    return claimed.task


async def test_what_happened_is_in_the_record(store: Store, clock: ManualClock) -> None:
    """Submission, start and end of a task, its run, and the instance's launch, registration and end."""
    agent = await a_worker(store)
    await store.submit([spec("a", user="ann", project="p", expected_runtime_ms=9_000, checkpoint_signal="SIGHUP")])
    clock.now_ms += 2_000
    number = await work(agent, clock, 7_000, Outcome(Cause.SUCCESS, exit_code=0))
    clock.now_ms += 500
    changes = [InstanceChange(agent.id, event) for event in (InstanceEvent.TERMINATE, InstanceEvent.GONE)]
    await store.change(changes)
    found = await record_of(store)
    (task,), (run,), (rental,) = found.tasks, found.runs, found.rentals
    assert (task.task, task.submit_ms, task.started_ms) == (number, START_MS, START_MS + 2_000)
    assert (task.ended_ms, task.state) == (START_MS + 9_000, TaskState.SUCCEEDED)
    assert (task.user, task.project, task.expected_ms, task.checkpoints) == ("ann", "p", 9_000, True)
    assert (run.started_ms, run.ended_ms, run.cause) == (START_MS + 2_000, START_MS + 9_000, Cause.SUCCESS)
    assert (rental.launched_ms, rental.registered_ms) == (START_MS - 40_000, START_MS)
    assert rental.ended_ms == found.end_ms == START_MS + 9_500


async def test_what_runs_now_is_a_run_without_an_end(store: Store, clock: ManualClock) -> None:
    """A held task counts up to the moment at which the record is made."""
    agent = await a_worker(store)
    await store.submit([spec("a")])
    (claimed,) = await agent.claim()
    agent.runs(claimed, 0)
    await agent.sync()
    found = await record_of(store, clock.now() + 5_000)
    assert [(run.started_ms, run.ended_ms) for run in found.runs] == [(START_MS, None)]
    assert found.end_ms == START_MS + 5_000


async def test_launches_that_made_no_vm_are_not_in_the_record(store: Store) -> None:
    """Nothing was rented."""
    await adopted(store)
    assert (await record_of(store)).rentals == ()


async def items(store: Store) -> tuple[tuple[WorkItem, ...], tuple[str, ...]]:
    found = from_record(await record_of(store), "history", Reading(run_ms=90_000))
    return found.items, found.assumptions


async def test_history_runs_again_as_it_ran(store: Store, clock: ManualClock) -> None:
    """Times count from the first submission; each task takes and ends as its last attempt did."""
    agent = await a_worker(store)
    await store.submit([spec("a"), spec("b")])
    await work(agent, clock, 7_000, Outcome(Cause.SUCCESS, exit_code=0))
    await work(agent, clock, 3_000, Outcome(Cause.EXIT_CODE, exit_code=3))
    await store.submit([spec("c")])
    await work(agent, clock, 1_000, Outcome(Cause.SUCCESS, exit_code=0))
    found, assumptions = await items(store)
    assert [(item.submit_ms, item.run_ms, item.outcome) for item in found] == [
        (0, 7_000, Cause.SUCCESS),
        (0, 3_000, Cause.EXIT_CODE),
        (10_000, 1_000, Cause.SUCCESS),
    ]
    assert assumptions == ()


async def test_recorded_boot_times_come_with_the_workload(store: Store) -> None:
    """By type, zone and market, for a simulated cloud to boot alike."""
    await a_worker(store)
    await store.submit([spec("a")])
    (boot,) = from_record(await record_of(store), "history").boots
    assert (boot.profile, boot.type, boot.zone, boot.boot_ms) == ("local", "t4", "a", 40_000)


async def test_a_history_of_more_instances_than_are_looked_at_says_so(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boot times are the newest ones'; how long tasks took is known of all."""
    for batch, ran_ms in (("old", 5_000), ("new", 7_000)):
        agent = await adopted(store, batch, launched_ms=clock.now_ms - ran_ms, registered_ms=clock.now_ms)
        await store.submit([spec("a")])
        await work(agent, clock, ran_ms, Outcome(Cause.SUCCESS, exit_code=0))
        await store.change([InstanceChange(agent.id, InstanceEvent.GONE)])
    monkeypatch.setattr(history, "PAGE", 1)
    found = from_record(await record_of(store), "history")
    assert [boot.boot_ms for boot in found.boots] == [7_000]
    assert [item.run_ms for item in found.items] == [5_000, 7_000]
    assert "of the instances that are gone only the newest 1 count" in found.assumptions


async def test_an_attempt_that_the_machine_cut_short_says_nothing_of_the_task(store: Store, clock: ManualClock) -> None:
    """A preempted attempt and then a whole one: the task takes as long as the whole one."""
    agent = await a_worker(store)
    await store.submit([spec("a")])
    await work(agent, clock, 2_000, Outcome(Cause.PREEMPTED))
    await work(agent, clock, 6_000, Outcome(Cause.SUCCESS, exit_code=0))
    found, assumptions = await items(store)
    assert [item.run_ms for item in found] == [6_000]
    assert any("1 tasks took several attempts" in text for text in assumptions)


async def test_what_was_written_down_before_a_preemption_is_a_part_of_the_work(
    store: Store, clock: ManualClock
) -> None:
    """A task with a checkpoint signal: what its preempted attempt has done and what the last one added; an attempt that
    failed has left nothing."""
    agent = await a_worker(store)
    retry = RetryRules(5, frozenset({Cause.PREEMPTED, Cause.TIMEOUT}))
    await store.submit([spec("a", checkpoint_signal="SIGUSR1", retry=retry)])
    await work(agent, clock, 2_000, Outcome(Cause.PREEMPTED))
    await work(agent, clock, 500, Outcome(Cause.TIMEOUT))
    await work(agent, clock, 6_000, Outcome(Cause.SUCCESS, exit_code=0))
    found, assumptions = await items(store)
    assert [item.run_ms for item in found] == [8_000]
    assert [text for text in assumptions if text.startswith("1 tasks with a checkpoint_signal were preempted")]


async def test_cancelled_and_unknown_tasks_are_assumed_and_told(store: Store, clock: ManualClock) -> None:
    """One cancelled in the queue is left out, one that waits takes what it expects, else the default."""
    await store.submit([spec("gone"), spec("waits", expected_runtime_ms=5_000), spec("waits too")])
    await store.cancel(TaskFilter(ids=(TaskId(1),)))
    found, assumptions = await items(store)
    assert [(item.run_ms, item.expected_ms) for item in found] == [(5_000, 5_000), (90_000, 0)]
    assert "1 tasks that were cancelled before they started are left out" in assumptions
    assert "2 tasks have not run to an end: they take what they expect, else 90s" in assumptions


async def test_attempts_of_forgotten_instances_are_found_by_their_task(store: Store, clock: ManualClock) -> None:
    """Where an instance's row is beyond reach, its attempts still count."""
    agent = await a_worker(store)
    await store.submit([spec("a")])
    await work(agent, clock, 6_000, Outcome(Cause.SUCCESS, exit_code=0))

    class Forgetful:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def instances(self) -> dict[str, object]:
            return {}

    found = await record_of(Forgetful())  # type: ignore[arg-type]
    assert [run.ended_ms for run in found.runs] == [START_MS + 6_000]


async def test_a_recorded_end_stands_and_a_longer_run_meets_the_limit(store: Store, clock: ManualClock) -> None:
    """The dispatcher saw it run a little longer than its max_runtime, and it succeeded; ten times as long it can't."""
    agent = await a_worker(store)
    await store.submit([spec("a", max_runtime_ms=60_000)])
    await work(agent, clock, 60_200, Outcome(Cause.SUCCESS, exit_code=0))
    record = await record_of(store)
    (item,) = from_record(record, "history").items
    assert (item.run_ms, item.outcome) == (60_200, Cause.SUCCESS)
    (item,) = from_record(record, "history", Reading(cut=Cut(runtimes=Fraction(10)))).items
    assert (item.run_ms, item.outcome) == (60_200, Cause.TIMEOUT)
