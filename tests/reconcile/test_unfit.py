"""Which failures to start say something of the machine, and which of the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Ended, Heard
from cloud_dispatch.reconcile import fitness
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


async def test_only_so_many_tasks_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten first."""
    monkeypatch.setattr(fitness, "MOST_TASKS", 2)
    async with world(tmp_path) as w:
        one, *_ = await serving(w)
        await fails(w, one, 1, 2)
        assert list(w.context.fitness.failed) == [1, 2]
        await fails(w, one, 3)
        assert list(w.context.fitness.failed) == [2, 3]
