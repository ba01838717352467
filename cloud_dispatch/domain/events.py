"""What happened, for people and for `explain`. Owns the event record; must not know who reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_dispatch.domain.ids import InstanceId, TaskId


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `action` is a stable dotted name (docs/reference/events.md lists them all). `id` is the
    store's: it rises with every event, and nobody has one before it is stored."""

    at_ms: int
    action: str
    instance: InstanceId | None = None
    task: TaskId | None = None
    detail: str = ""
    plan: int | None = None
    id: int | None = field(default=None, compare=False)
