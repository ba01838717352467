"""What the store answers a page at a time. Owns the shape of a page; must not know what a caller shows of it."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.task import Task


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks in order of id. `next` is where to go on, None: there are no others."""

    tasks: tuple[Task, ...] = ()
    next: TaskId | None = None
