"""What happened, for people and for `explain`. Owns the event record; must not know who reads it."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_dispatch.domain.ids import InstanceId, TaskId


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `action` is a stable dotted name (docs/reference/events.md lists them all)."""

    at_ms: int
    action: str
    instance: InstanceId | None = None
    task: TaskId | None = None
    detail: str = ""
    plan: int | None = None
