"""How far a simulation has come, for who waits for it: a bar on a terminal, else a line now and then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cloud_dispatch.cli.session import messages, say, seconds
from cloud_dispatch.domain.durations import about

#: A bar moves so often; a line comes so seldom, and not before that.
_BAR_S, _LINE_S = 0.2, 20.0


class Advance(Protocol):
    """Told now and then how long the simulated time is, and how many tasks have ended by then."""

    def __call__(self, virtual_ms: int, ended: int) -> None: ...


class _Seldom:
    """Passes on what it is told, at most once in `every_s`."""

    def __init__(self, every_s: float, show: Advance) -> None:
        self._every_s, self._show, self._last_s = every_s, show, seconds()

    def __call__(self, virtual_ms: int, ended: int) -> None:
        now_s = seconds()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._show(virtual_ms, ended)


@contextmanager
def advancing(tasks: int) -> Iterator[Advance]:
    """Whoever simulates `tasks` tasks tells what this gives. No thread draws: it would slow down the simulation."""
    console = messages()
    if not console.is_terminal or console.is_dumb_terminal:

        def tell(virtual_ms: int, ended: int) -> None:
            say(f"{about(virtual_ms)} simulated, {ended} of {tasks} tasks ended")

        yield _Seldom(_LINE_S, tell)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("tasks ended, {task.description} simulated")
    columns = (BarColumn(), MofNCompleteColumn(), words, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        bar = progress.add_task(about(0), total=tasks)

        def show(virtual_ms: int, ended: int) -> None:
            progress.update(bar, completed=ended, description=about(virtual_ms), refresh=True)

        yield _Seldom(_BAR_S, show)
