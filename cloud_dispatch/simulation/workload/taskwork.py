"""Task files as workloads. Owns how long a task of a file runs: what it expects, else what is assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_dispatch.demand.submission import SubmissionLimits, parse
from cloud_dispatch.demand.taskfile import read_tasks
from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.task import TaskSpec
from cloud_dispatch.simulation.workload.items import WorkItem


@dataclass
class TaskWork:
    """One task file, all of it submitted at once. `run_ms` is assumed of a task that says no `expected_runtime`."""

    path: Path
    run_ms: int
    limits: SubmissionLimits = SubmissionLimits()
    _unknown: int = 0

    def items(self) -> Iterator[WorkItem]:
        """Its tasks, arrays and sweeps expanded. InvalidInput with file, line and field for what the dispatcher would
        refuse too, NotFound for no such file."""
        found = read_tasks(self.path)
        for spec in parse(found.inputs, places=found.places, limits=self.limits):
            yield self._item(spec)

    def assumptions(self) -> list[str]:
        """How long tasks run, in sentences; complete once `items()` is."""
        told = ["all tasks are submitted at the start, and run as long as their expected_runtime says"]
        if self._unknown:
            told.append(f"{self._unknown} tasks say no expected_runtime: {format_duration(self.run_ms)} is assumed")
        return told

    def _item(self, spec: TaskSpec) -> WorkItem:
        self._unknown += not spec.expected_runtime_ms
        return WorkItem(
            submit_ms=0,
            shape=spec.shape,
            run_ms=spec.expected_runtime_ms or self.run_ms,
            expected_ms=spec.expected_runtime_ms,
            priority=spec.priority,
            user=spec.user,
            project=spec.project,
            retry=spec.retry,
            max_runtime_ms=spec.max_runtime_ms,
            assumed=not spec.expected_runtime_ms,
            checkpoints=bool(spec.checkpoint_signal),
        )
