"""Following tasks until they end. Owns the polling of their states, the progress bar, and what Ctrl-C asks.

Polls politely: one page of tasks at a time, less often while nothing changes, and through a restart of the dispatcher.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cloud_dispatch.cli import show
from cloud_dispatch.cli.exitcodes import INTERRUPTED, NOT_FOUND, OK, TASKS_FAILED
from cloud_dispatch.cli.session import emit, messages, pause, say, seconds
from cloud_dispatch.cli.waits import Waits, say_away
from cloud_dispatch.domain.errors import Denied, Unavailable

if TYPE_CHECKING:
    from cloud_dispatch.client import Client, TaskPage, TaskView

ENDED = frozenset({"succeeded", "failed", "cancelled"})
_SHORT_S, _LONG_S, _GROWTH = 0.1, 1.0, 1.3
_WAIT_MS = 10_000
#: How long a dispatcher may be away (a restart, an upgrade) before following gives up.
PATIENCE_S = 60.0
_SHOWN = 10
_PLAIN_EVERY_S = 5.0


class Watch:
    """The states of some tasks, by polling: `ended` grows, `pending` shrinks. `missing`: the dispatcher does not have
    them any more, so that nobody knows how they ended, and nobody waits for it."""

    def __init__(self, client: Client, ids: Sequence[int]) -> None:
        self._client = client
        self.total = len(set(ids))
        self.pending = set(ids)
        self.ended: dict[int, TaskView] = {}
        self.missing: set[int] = set()
        self.running = 0
        self.waiting: int | None = None  # the first that is queued, while none runs
        self._pause_s = _SHORT_S

    def poll(self) -> list[TaskView]:
        """The tasks that have ended since the last poll; Unavailable when the dispatcher is away."""
        from cloud_dispatch.client.client import PAGE

        fresh: list[TaskView] = []
        running, waiting = 0, None
        while self.pending:
            page = self._client.tasks(after=min(self.pending) - 1, limit=PAGE)
            ours = [task for task in page["tasks"] if task["id"] in self.pending]
            ended = [task for task in ours if task["state"] in ENDED]
            running += sum(task["state"] == "running" for task in ours)
            waiting = waiting or next((task["id"] for task in ours if task["state"] == "queued"), None)
            for task in ended:
                self.pending.discard(task["id"])
                self.ended[task["id"]] = task
            fresh += ended
            missing = self._missing_in(page)
            if len(ended) < len(ours) or not (ours or missing):
                break  # the head of the queue still runs: what is behind it is looked at in a later poll
        self.running, self.waiting = running, None if running else waiting
        self._pause_s = _SHORT_S if fresh else min(self._pause_s * _GROWTH, _LONG_S)
        return fresh

    def _missing_in(self, page: TaskPage) -> set[int]:
        """Those that should be on it, all tasks from the first pending one on, and are not: from here on missing."""
        there = {task["id"] for task in page["tasks"]}
        missing = {task for task in self.pending - there if page["next"] is None or task <= page["next"]}
        self.pending -= missing
        self.missing |= missing
        return missing

    def pause(self) -> None:
        """Wait before the next poll; longer while nothing happens."""
        pause(self._pause_s)


class Follow:
    """Following the tasks `ids` for a person or a program."""

    def __init__(self, client: Client, ids: Sequence[int], *, as_json: bool, logs: bool) -> None:
        self._client = client
        self._ids = list(ids)
        self._json = as_json
        self._logs = logs
        self._watch, self._waits = Watch(client, ids), Waits(client)
        self._interactive = sys.stdin.isatty() and sys.stderr.isatty()

    def until_ended(self) -> int:
        """Stay until every task has ended, or somebody interrupts; the exit code of `run`."""
        while True:
            try:
                if self._watch.total == 1 and not self._json:
                    self._one(self._ids[0])
                else:
                    self._many()
                return self._report()
            except KeyboardInterrupt:
                chosen = self._ask()
                if chosen == "go on":
                    continue
                if chosen == "cancel":
                    left = sorted(self._watch.pending)
                    cancelled = self._client.cancel(left) if left else []
                    say(f"{show.count(len(cancelled), 'task')} {'was' if len(cancelled) == 1 else 'were'} cancelled.")
                else:
                    self._say_left()
                return INTERRUPTED
            except (Unavailable, Denied, OSError):  # nobody to ask, or to tell: who submits again would double them
                if self._watch.pending:
                    self._say_left()
                raise

    def _one(self, task: int) -> None:
        """Print a task's output as it comes."""
        from cloud_dispatch.cli.logs import follow_log

        silence = partial(self._waits.look, task)
        follow_log(self._client, task, as_json=False, patience_s=PATIENCE_S, silence=silence)
        for _ in patiently(self._watch):
            pass

    def _many(self) -> None:
        with _progress(self._watch.total) as progress:
            for fresh in patiently(self._watch):
                if self._logs:
                    self._print_logs(fresh)
                progress.update(self._watch)
                self._waits.look(self._watch.waiting)

    def _print_logs(self, tasks: Sequence[TaskView]) -> None:
        for task in sorted(tasks, key=lambda task: task["id"]):
            offset = 0
            while True:
                chunk = self._client.logs(task["id"], offset=offset)
                sys.stdout.buffer.write(chunk.body)
                if chunk.complete or not chunk.body:
                    break
                offset = chunk.offset
            sys.stdout.flush()

    def _ask(self) -> str:
        """What to do with the tasks now: leave, cancel or go on. Without a terminal they are left."""
        if not self._interactive:
            return "leave"
        prompt = "\nInterrupted. [l]eave the tasks running, [c]ancel them, or [g]o on following? [l] "
        try:
            sys.stderr.write(prompt)
            sys.stderr.flush()
            answer = sys.stdin.readline().strip().lower()[:1]
        except KeyboardInterrupt:
            return "leave"
        return {"c": "cancel", "g": "go on"}.get(answer, "leave")

    def _say_left(self) -> None:
        first, left = min(self._ids), len(self._watch.pending)
        if len(self._ids) == 1:
            say(f"Task {first} goes on.")
            say(f"Follow it with `cloud-dispatch logs -f {first}`, end it with `cloud-dispatch cancel {first}`.")
            return
        say(f"{left} of {show.tasks(self._ids)}, {'goes' if left == 1 else 'go'} on.")
        see, end = f"`cloud-dispatch tasks --after {first - 1}`", "`cloud-dispatch cancel NUMBER...`"
        say(f"See them with {see}, end them with {end}.")

    def _report(self) -> int:
        """The end's words and exit code."""
        ended = [self._watch.ended[task] for task in sorted(self._watch.ended)]
        failed = [task for task in ended if task["state"] != "succeeded"]
        counts = {state: sum(task["state"] == state for task in ended) for state in sorted(ENDED)}
        value: dict[str, Any] = {"counts": counts, "tasks": ended}
        emit(value, self._json, lambda: None)
        if self._watch.total > 1:
            say(", ".join(f"{count} {state}" for state, count in counts.items() if count))
        for task in failed[:_SHOWN]:
            why = show.ending(task) or "no reason given"
            say(f"task {task['id']} {task['state']}: {why} ({show.shorten(task['command'])})")
        if len(failed) > _SHOWN:
            say(f"and {len(failed) - _SHOWN} more: cloud-dispatch tasks --state failed")
        if failed and self._watch.total > 1:
            say(f"What it wrote: cloud-dispatch logs {failed[0]['id']}")
        if missing := sorted(self._watch.missing):
            why = "the dispatcher does not have them any more (`store.retain_tasks`)"
            say(f"How {show.tasks(missing)}, ended is not known: {why}.")
        return TASKS_FAILED if failed else NOT_FOUND if missing else OK


def patiently(watch: Watch) -> Iterator[list[TaskView]]:
    """The watch's polls until nothing is pending; Unavailable once the dispatcher was away for too long."""
    away_since: float | None = None
    while watch.pending:
        try:
            fresh = watch.poll()
            away_since = None
        except Unavailable as error:
            if away_since is None:
                away_since = seconds()
                say_away(error, PATIENCE_S)
            if seconds() - away_since > PATIENCE_S:
                raise
            fresh = []
        yield fresh
        if watch.pending:
            watch.pause()


class Display(Protocol):
    def update(self, watch: Watch) -> None:
        """Show where the tasks are."""


class _Bar:
    def __init__(self, progress: Any, total: int) -> None:
        self._progress = progress
        self._bar = progress.add_task("tasks", total=total, failed=0, running=0)

    def update(self, watch: Watch) -> None:
        failed = sum(task["state"] != "succeeded" for task in watch.ended.values())
        self._progress.update(self._bar, completed=len(watch.ended), failed=failed, running=watch.running)


class _Lines:
    """For pipes and logs: a line now and then, and only when something changed."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._last = (-1, 0.0)

    def update(self, watch: Watch) -> None:
        done, before = len(watch.ended), self._last
        if done != before[0] and (done == self._total or seconds() - before[1] >= _PLAIN_EVERY_S):
            self._last = (done, seconds())
            say(f"{done} of {show.count(self._total, 'task')} ended")


@contextmanager
def _progress(total: int) -> Iterator[Display]:
    console = messages()
    if not console.is_terminal:
        yield _Lines(total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[running]} running, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, total)
