"""Which failures to start say something of the machine, and which of the task."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import StoreUnavailable
from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Ended, Heard
from cloud_dispatch.reconcile import fitness
from cloud_dispatch.reconcile.fitness import MOST_LET_GO, WITHIN_MS, Unfit
from tests.reconcile.fake import World, world


async def fails(w: World, instance: InstanceId, *tasks: int) -> bool:
    """The tasks could not be started there. Whether the instance may still claim."""
    return await ends(w, instance, Cause.CANNOT_START, *tasks)


async def ends(w: World, instance: InstanceId, cause: Cause, *tasks: int) -> bool:
    """The tasks ended there. Whether the instance may still claim."""
    ended = tuple(Ended(TaskId(task), cause, "fit of lab") for task in tasks)
    news = w.fleet.heard(Heard(instance, "i", "idle", ended=ended))
    if news is not None:
        await news
    return w.fleet.directive(instance).claiming


async def serving(w: World) -> list[InstanceId]:
    """Instances that serve."""
    await w.submit(500)
    await w.passes(3)
    for row in w.rows:
        await w.register(row)
    return [row.id for row in w.rows]


async def test_a_task_that_can_start_nowhere_drains_no_machine(tmp_path: Path) -> None:
    """Its command is not there: it is tried again and again, on one machine and on others."""
    async with world(tmp_path) as w:
        instances = await serving(w)
        assert len(instances) > 1
        assert all([await fails(w, instance, 7) for _ in range(5) for instance in instances])


async def test_a_machine_that_fails_other_tasks_too_is_drained(tmp_path: Path) -> None:
    """Tasks that failed elsewhere before say nothing of it, those that have not do."""
    async with world(tmp_path) as w:
        one, other, *_ = await serving(w)
        assert await fails(w, one, 1, 2)
        assert await fails(w, other, 1, 2)
        assert await fails(w, other, 3, 4)
        assert not await fails(w, other, 1, 5)
        assert await fails(w, one, 5)


async def test_a_machine_on_which_fails_what_succeeds_elsewhere_is_drained(tmp_path: Path) -> None:
    """Its row says why; what works on goes on claiming."""
    async with world(tmp_path) as w:
        one, other, *_ = await serving(w)
        assert await ends(w, one, Cause.SUCCESS, *range(1, 31))
        assert await ends(w, other, Cause.EXIT_CODE, *range(31, 35))
        assert not await ends(w, other, Cause.EXIT_CODE, 35)
        assert await ends(w, one, Cause.SUCCESS, 36)
        row = w.store.instances()[other]
        assert row.cause == "tasks-fail"
        assert row.reason == "5 tasks in a row failed here; of the last 30 of fit of lab elsewhere 0 did"


async def test_an_operator_who_resumes_it_is_heeded(tmp_path: Path) -> None:
    """He knows what it was: what failed before is none of the next row."""
    async with world(tmp_path) as w:
        one, other, *_ = await serving(w)
        await ends(w, one, Cause.SUCCESS, *range(1, 31))
        assert not await ends(w, other, Cause.EXIT_CODE, *range(31, 36))
        await w.fleet.resume(other, "its disk was full")
        assert await ends(w, other, Cause.EXIT_CODE, *range(36, 40))
        assert not await ends(w, other, Cause.EXIT_CODE, 40)


async def test_no_more_than_a_dozen_are_let_go_within_an_hour(tmp_path: Path) -> None:
    """A share that is gone fails fifty kinds of work everywhere. Said is that it would be let go, once."""
    async with world(tmp_path) as w:
        one, other, third, *_ = await serving(w)
        await ends(w, one, Cause.SUCCESS, *range(1, 61))
        for _ in range(MOST_LET_GO):
            assert w.context.fitness.let_go(Unfit("tasks-fail", ""), w.clock.monotonic()) is not None
        assert await ends(w, other, Cause.EXIT_CODE, *range(101, 106))
        assert await ends(w, other, Cause.EXIT_CODE, 106)
        told = [event.detail for event in w.context.pending_events if event.action == "instance.unfit"]
        why = "5 tasks in a row failed here; of the last 60 of fit of lab elsewhere 0 did"
        assert told == [f"{why}; it is kept, as 12 were let go for that within an hour"]
        assert not await fails(w, third, 107, 108, 109)  # can't start what it is given: whoever else does
        w.clock.ms += WITHIN_MS
        assert not await ends(w, other, Cause.EXIT_CODE, 110)


async def test_who_could_not_be_let_go_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store can't say so just now, or it is ended already: another goes instead."""
    async with world(tmp_path) as w:
        one, other, *_ = await serving(w)
        await ends(w, one, Cause.SUCCESS, *range(1, 65))
        await ends(w, other, Cause.EXIT_CODE, *range(101, 105))

        async def full(*_: object, **__: object) -> None:
            raise StoreUnavailable("full")

        async def moot(*_: object, **__: object) -> None:
            return

        for task, answer in ((105, full), (106, moot)):
            with monkeypatch.context() as patch, suppress(StoreUnavailable):
                patch.setattr(w.context, "apply", answer)
                await ends(w, other, Cause.EXIT_CODE, task)
        for _ in range(MOST_LET_GO - 1):
            w.context.fitness.let_go(Unfit("tasks-fail", ""), w.clock.monotonic())
        assert not await ends(w, other, Cause.EXIT_CODE, 107)


async def test_only_so_many_tasks_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten first."""
    monkeypatch.setattr(fitness, "MOST_TASKS", 2)
    async with world(tmp_path) as w:
        one, *_ = await serving(w)
        await fails(w, one, 1, 2)
        assert list(w.context.fitness.failed) == [1, 2]
        await fails(w, one, 3)
        assert list(w.context.fitness.failed) == [2, 3]
