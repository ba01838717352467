"""What the port promises about submitting, listing, cancelling and prioritising tasks, and about demand."""

from __future__ import annotations

import asyncio

import pytest

from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound
from cloud_dispatch.domain.ids import ArrayId, TaskId
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Artifact, Cause, Outcome, RetryRules, TaskState, Transfer
from cloud_dispatch.ports.store import Store, TaskFilter
from cloud_dispatch.testing.store_builders import (
    START_MS,
    Agent,
    ManualClock,
    OpenStore,
    adopted,
    instance,
    result,
    spec,
)


class TasksContract:
    """Tests of the tasks' side; see `StoreContract`."""

    async def test_submitted_tasks_are_queued_with_ids_in_order(self, store: Store) -> None:
        """Ids are 1, 2, 3 in the order of the specifications, and every task is queued."""
        assert await store.submit([spec("a"), spec("b")]) == [1, 2]
        assert await store.submit([spec("c")]) == [3]
        assert [task.spec.name for task in await store.tasks(TaskFilter())] == ["a", "b", "c"]
        assert (await store.task(TaskId(2))).state is TaskState.QUEUED
        assert (await store.task(TaskId(2))).submitted_ms == START_MS
        assert store.task_counts()[TaskState.QUEUED] == 3

    async def test_a_specification_comes_back_as_it_was_given(self, store: Store) -> None:
        """Every field of a specification survives, unicode and rules included."""
        given = spec(
            "näme 名", env=(("A", "1"), ("Ü", "ß")), cwd="w", inputs=(Transfer("in", "http://x"),),
            outputs=(Transfer("out"),), max_runtime_ms=5, expected_runtime_ms=7, priority=-3, project="p", user="u",
            retry=RetryRules(7, frozenset({Cause.TIMEOUT}), frozenset({3, 4})), idempotency_key="k",
            array_id=ArrayId("arr"), array_index=2, gpu_type="a100", labels=(("zone", "b"),), preemptible=False,
            exclusive=True, max_per_instance=2, pool="default", checkpoint_signal="SIGUSR1",
        )  # fmt: skip
        (task,) = await store.submit([given])
        assert (await store.task(task)).spec == given

    async def test_a_bad_specification_queues_none_of_its_submission(self, store: Store) -> None:
        """All or nothing: the good ones of a refused submission are not there either."""
        with pytest.raises(InvalidInput):
            await store.submit([spec("good"), spec("bad", project="nul\0")])
        assert await store.tasks(TaskFilter()) == []
        assert await store.submit([spec("next")]) == [1]

    async def test_nothing_submitted_is_nothing(self, store: Store) -> None:
        """An empty submission is answered with no ids."""
        assert list(await store.submit([])) == []

    async def test_a_known_idempotency_key_gives_the_known_task(self, store: Store) -> None:
        """Submitting again under the same key queues nothing, in the same and in a later call."""
        first = await store.submit([spec("a", idempotency_key="k"), spec("a", idempotency_key="k"), spec("b")])
        assert first == [1, 1, 2]
        assert await store.submit([spec("c"), spec("a", idempotency_key="k")]) == [3, 1]
        assert store.task_counts()[TaskState.QUEUED] == 3

    async def test_concurrent_submissions_of_one_key_make_one_task(self, store: Store) -> None:
        """Calls that are committed together see each other's keys."""
        ids = await asyncio.gather(*[store.submit([spec("a", idempotency_key="k")]) for _ in range(20)])
        assert {task for (task,) in ids} == {1}

    async def test_a_key_with_another_specification_is_refused(self, store: Store) -> None:
        """A key names one specification; another under it is the caller's error, and nothing is queued."""
        await store.submit([spec("a", idempotency_key="k")])
        with pytest.raises(InvalidInput, match="'k'"):
            await store.submit([spec("new"), spec("b", idempotency_key="k")])
        with pytest.raises(InvalidInput, match="'m'"):
            await store.submit([spec("a", idempotency_key="m"), spec("b", idempotency_key="m")])
        array = [spec(array_id=ArrayId("x"), array_index=at, idempotency_key=f"x/{at}") for at in range(3)]
        with pytest.raises(InvalidInput) as caught:
            await store.submit([spec(), *array, spec("b", idempotency_key="k")])
        assert caught.value.place == "tasks[2].idempotency_key"
        assert store.task_counts()[TaskState.QUEUED] == 1

    async def test_an_unknown_task_is_not_found(self, store: Store) -> None:
        """Asking for a task that was never submitted says so; its attempts are none."""
        with pytest.raises(NotFound):
            await store.task(TaskId(9))
        with pytest.raises(NotFound):
            await store.prioritise(TaskId(9), 1)
        assert list(await store.attempts(TaskId(9))) == []

    async def test_lists_are_filtered_ordered_and_bounded(self, store: Store) -> None:
        """Filters combine; `after` and `limit` walk through ids in order; limits have bounds."""
        await store.submit([spec(f"t{n % 2}", project="p" if n < 4 else "q", user="u") for n in range(6)])
        await store.submit([spec("x", array_id=ArrayId("arr"))])
        assert [t.id for t in await store.tasks(TaskFilter(project="p", name="t1"))] == [2, 4]
        assert [t.id for t in await store.tasks(TaskFilter(user="u"), after=TaskId(2), limit=3)] == [3, 4, 5]
        assert [t.id for t in await store.tasks(TaskFilter(array_id=ArrayId("arr")))] == [7]
        assert [t.id for t in await store.tasks(TaskFilter(ids=(TaskId(5), TaskId(1), TaskId(99))))] == [1, 5]
        assert await store.tasks(TaskFilter(states=frozenset({TaskState.FAILED}))) == []
        assert [t.id for t in await store.tasks(TaskFilter(user="u"), before=TaskId(6), limit=2)] == [4, 5]
        assert [t.id for t in await store.tasks(TaskFilter(), after=TaskId(5), before=TaskId(99))] == [6, 7]
        assert await store.tasks(TaskFilter(), before=TaskId(1)) == []
        for limit in (0, 10_001):
            with pytest.raises(InvalidInput):
                await store.tasks(TaskFilter(), limit=limit)

    async def test_a_page_ends_early_where_tasks_are_large(self, store: Store) -> None:
        """Whoever walks along `next`, either way, meets each task once; one that is too large alone comes alone."""
        await store.submit([spec("x", env=(("A", "x" * size),)) for size in (10, 10, 9000, 90_000, 10, 10)])
        forth: list[list[int]] = []
        after: TaskId | None = TaskId(0)
        while after is not None:
            page = await store.page(TaskFilter(name="x"), after=after, limit=3, size=20_000)
            forth.append([task.id for task in page.tasks])
            after = page.next
        assert forth == [[1, 2, 3], [4], [5, 6]]
        page = await store.page(TaskFilter(), before=TaskId(6), limit=3, size=20_000)
        assert ([task.id for task in page.tasks], page.next) == ([5], 5)
        page = await store.page(TaskFilter(), before=TaskId(4), limit=2, size=20_000)
        assert ([task.id for task in page.tasks], page.next) == ([2, 3], 2)
        assert (await store.page(TaskFilter(ids=(TaskId(2), TaskId(3))), limit=2, size=20_000)).next is None
        assert (await store.page(TaskFilter(name="y"), limit=2, size=20_000)).tasks == ()

    async def test_what_tasks_made_counts_for_the_size_of_a_page(self, store: Store) -> None:
        """A manifest may be larger than what was asked for."""
        await store.submit([spec() for _ in range(3)])
        agent = await adopted(store)
        for _ in range(3):
            (claim,) = await agent.claim()
            manifest = (Artifact("x" * 9000, "", 1, "0" * 64),)
            await agent.sync(result(claim, Outcome(Cause.SUCCESS, 0, None, "", manifest)))
        page = await store.page(TaskFilter(), limit=3, size=20_000)
        assert ([task.id for task in page.tasks], page.next) == ([1, 2], 2)

    async def test_counts_are_by_state_and_filter(self, store: Store) -> None:
        """`count` agrees with `task_counts` for no filter, and counts only what matches otherwise."""
        await store.submit([spec(project="p"), spec(project="p"), spec(project="q")])
        await store.cancel(TaskFilter(ids=(TaskId(1),)))
        assert await store.count(TaskFilter()) == store.task_counts()
        counted = await store.count(TaskFilter(project="p"))
        assert (counted[TaskState.QUEUED], counted[TaskState.CANCELLED], counted[TaskState.FAILED]) == (1, 1, 0)

    async def test_cancel_ends_queued_tasks_at_once(self, store: Store) -> None:
        """A queued task is cancelled and never claimed; those that had ended are not named again."""
        await store.submit([spec(project="p"), spec(project="p"), spec(project="q")])
        assert await store.cancel(TaskFilter(project="p")) == [1, 2]
        assert await store.cancel(TaskFilter(project="p")) == []
        task = await store.task(TaskId(1))
        assert (task.state, task.ended_ms) == (TaskState.CANCELLED, START_MS)
        await store.adopt(own := instance())
        assert [claim.task for claim in await Agent(store, own).claim(5)] == [3]

    async def test_cancel_of_a_held_task_waits_for_its_agent(self, store: Store) -> None:
        """A held task becomes cancelling, and stays so until nothing of the attempt lives."""
        await store.submit([spec()])
        await store.adopt(own := instance())
        (claim,) = await (agent := Agent(store, own)).claim()
        assert await store.cancel(TaskFilter(ids=(claim.task,))) == [1]
        assert await store.cancel(TaskFilter(ids=(claim.task,))) == []
        assert (await store.task(claim.task)).state is TaskState.CANCELLING
        assert (await agent.sync()).kill == (claim.token,)

    async def test_cancel_matches_states(self, store: Store) -> None:
        """A filter by state cancels tasks in that state only."""
        await store.submit([spec(), spec()])
        await store.adopt(own := instance())
        await Agent(store, own).claim(1)
        assert await store.cancel(TaskFilter(states=frozenset({TaskState.QUEUED}))) == [2]
        assert await store.cancel(TaskFilter(states=frozenset({TaskState.CLAIMED}))) == [1]

    async def test_cancel_of_everything_has_to_be_said(self, store: Store) -> None:
        """An empty filter is refused, so that a forgotten condition cancels nothing."""
        await store.submit([spec()])
        with pytest.raises(InvalidInput):
            await store.cancel(TaskFilter())
        assert store.task_counts()[TaskState.QUEUED] == 1

    async def test_a_new_priority_counts_at_the_next_claim(self, store: Store) -> None:
        """The best priority comes first, then the lowest id, whatever the order of submission."""
        await store.submit([spec(), spec(priority=5), spec(), spec(priority=5)])
        changed = await store.prioritise(TaskId(3), 9)
        assert (changed.id, changed.spec.priority) == (3, 9)
        await store.prioritise(TaskId(2), -1)
        await store.adopt(own := instance())
        assert [claim.task for claim in await Agent(store, own).claim(4)] == [3, 4, 1, 2]

    async def test_a_held_task_comes_back_with_its_new_priority(self, store: Store) -> None:
        """The priority of a held task matters once it is queued again."""
        await store.submit([spec(), spec()])
        await store.adopt(own := instance())
        agent = Agent(store, own)
        (claim,) = await agent.claim()
        await store.prioritise(claim.task, -5)
        await agent.sync(result(claim, None, None))
        assert [claim.task for claim in await agent.claim(2)] == [2, 1]

    async def test_an_ended_task_has_no_priority_any_more(self, store: Store) -> None:
        """Conflict once the task has ended."""
        await store.submit([spec()])
        await store.cancel(TaskFilter(ids=(TaskId(1),)))
        with pytest.raises(Conflict):
            await store.prioritise(TaskId(1), 3)

    async def test_demand_is_by_shape(self, store: Store, clock: ManualClock) -> None:
        """Waiting tasks are counted by shape with what the planner needs; ended and held ones are not."""
        told = [spec(expected_runtime_ms=ms) for ms in (100, 90, 50)]
        await store.submit([spec(priority=1), *told])
        clock.now_ms += 10
        await store.submit([spec(cpus_milli=2000, priority=7)])
        small, large = sorted(store.waiting(), key=lambda demand: demand.shape.resources.cpus_milli)
        assert small.shape == spec().shape
        assert (small.count, small.lengths) == (4, ((50, 1), (190, 2)))
        assert (small.priority, small.oldest_ms) == (1, START_MS)
        assert (large.count, large.lengths, large.priority, large.oldest_ms) == (1, (), 7, START_MS + 10)
        await store.adopt(own := instance())
        await Agent(store, own).claim(1)
        assert {demand.shape.resources.cpus_milli for demand in store.waiting()} == {1000}

    async def test_listeners_hear_of_what_enters_the_queue(self, store: Store) -> None:
        """A listener is called after the commit, with the shape and how many, for submissions and for returns."""
        heard: list[tuple[Shape, int, int]] = []
        store.subscribe(lambda shape, count: heard.append((shape, count, store.task_counts()[TaskState.QUEUED])))
        await store.submit([spec(), spec(), spec(cpus_milli=2000)])
        assert sorted((shape.resources.cpus_milli, count) for shape, count, _ in heard) == [(1000, 2), (2000, 1)]
        assert {queued for _, _, queued in heard} == {3}
        heard.clear()
        await store.adopt(own := instance())
        agent = Agent(store, own)
        (claim,) = await agent.claim()
        assert heard == []
        await agent.sync(result(claim, None, None))
        assert [(shape.resources.cpus_milli, count) for shape, count, _ in heard] == [(1000, 1)]

    async def test_the_queue_survives_a_restart(self, open_store: OpenStore, clock: ManualClock) -> None:
        """Order, priorities, counts, ids and identity are the same after closing and opening again."""
        first = await open_store(clock)
        await first.submit([spec("a"), spec("b", priority=2), spec("c"), spec("d", cpus_milli=2000)])
        await first.prioritise(TaskId(3), 5)
        await first.cancel(TaskFilter(ids=(TaskId(1),)))
        before = (first.id, first.task_counts(), {d.shape: d for d in first.waiting()})
        await first.close()
        again = await open_store(clock)
        assert (again.id, again.task_counts(), {d.shape: d for d in again.waiting()}) == before
        await again.adopt(own := instance())
        assert [claim.task for claim in await Agent(again, own).claim(9)] == [3, 2, 4]
        assert await again.submit([spec()]) == [5]
        assert await again.check() == []
