"""The demo's tasks and the truth about them. Owns which files are worked on and the check of every result."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_dispatch.cli.demo import work
from cloud_dispatch.domain.errors import DispatchError, NotFound

if TYPE_CHECKING:
    from cloud_dispatch.client import Client, TaskView

#: Every so many tasks one asks for more than the smallest type has, so that several types are rented.
_WIDE_EVERY = 20
#: After the library's single modules, those of these packages.
_PACKAGES = ("asyncio", "concurrent/futures", "email", "encodings", "http", "json", "logging", "unittest", "xml/dom")


@dataclass(frozen=True, slots=True)
class Job:
    """One task of the demo: what to do with which file."""

    kind: str
    path: Path
    wide: bool

    def as_task(self) -> dict[str, Any]:
        return {
            "command": [sys.executable, "-I", "-S", str(Path(work.__file__).absolute()), self.kind, str(self.path)],
            "name": f"{self.kind} {self.path.name}",
            "cpus": 2 if self.wide else 0.5,
            "memory": "512MiB" if self.wide else "128MiB",
            "expected_runtime": "200ms",
            "max_runtime": "30s",
            "outputs": [work.OUTPUT],
            "project": "demo",
        }

    def truth(self) -> bytes:
        """What the task must write, computed here and now."""
        return work.line_of(self.kind, self.path.read_bytes())


def jobs(count: int) -> list[Job]:
    """`count` jobs on the modules of the standard library, by turns to hash and to compress; NotFound without them."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(library.glob("*.py"))
    for package in _PACKAGES:
        modules += sorted((library / package).glob("*.py"))
    if not modules:
        raise NotFound(f"there are no modules of the standard library below {library}")
    return [
        Job("compress" if i % 2 else "hash", modules[i // 2 % len(modules)], i % _WIDE_EVERY == _WIDE_EVERY - 1)
        for i in range(count)
    ]


def wrong_results(client: Client, ids: Sequence[int], wanted: Sequence[Job], ended: dict[int, TaskView]) -> list[str]:
    """What is not as it must be: each task's state, what it printed, and the file that it left, against the truth."""
    problems = []
    for task, job in zip(ids, wanted, strict=True):
        view, truth = ended.get(task), job.truth()
        if view is None or view["state"] != "succeeded":
            problems.append(f"task {task} ({job.kind} {job.path.name}) is {view['state'] if view else 'missing'}")
            continue
        try:
            printed = client.logs(task).body
            left = client.output(task, work.OUTPUT)
        except DispatchError as error:
            problems.append(f"task {task}: {error}")
            continue
        digest = {item["path"]: item["sha256"] for item in view["outputs"]}.get(work.OUTPUT, "")
        if printed != truth:
            problems.append(f"task {task} ({job.kind} {job.path.name}) printed {printed[:200]!r}, expected {truth!r}")
        if left != truth or digest != hashlib.sha256(truth).hexdigest():
            problems.append(f"task {task} ({job.kind} {job.path.name}) left another {work.OUTPUT} than expected")
    return problems
