"""How far a simulation has come, for who waits for it: a bar on a terminal, else a line now and then. Owns how Ctrl-C
ends one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from cloud_dispatch.cli.session import messages, say, seconds
from cloud_dispatch.domain.durations import about

#: A bar moves so often; a line comes so seldom, and not before that.
_BAR_S, _LINE_S = 0.2, 20.0


class Advance(Protocol):
    """Told now and then how long the simulated time is, and how many tasks have ended by then. Says whether to go
    on."""

    def __call__(self, virtual_ms: int, ended: int) -> bool: ...


class _Seldom:
    """Passes on what it is told, at most once in `every_s`, until somebody types Ctrl-C."""

    def __init__(self, every_s: float, show: Callable[[int, int], None], interrupted: Callable[[], bool]) -> None:
        self._every_s, self._show, self._last_s, self._interrupted = every_s, show, seconds(), interrupted

    def __call__(self, virtual_ms: int, ended: int) -> bool:
        now_s = seconds()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._show(virtual_ms, ended)
        return not self._interrupted()


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Gives whether Ctrl-C was typed meanwhile. The second one raises KeyboardInterrupt, as does one afterwards."""
    typed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield lambda: False  # whoever started us ignores it, or has a way of their own
        return

    def note(number: int, _: object) -> None:
        typed.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(typed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def advancing(tasks: int) -> Iterator[Advance]:
    """Whoever simulates `tasks` tasks tells what this gives, and goes on until it says no: the first Ctrl-C ends the
    simulation, the second one the program. No thread draws: it would slow down the simulation."""
    with _interruption() as interrupted, _shown(tasks) as (every_s, show):
        yield _Seldom(every_s, show, interrupted)


@contextmanager
def _shown(tasks: int) -> Iterator[tuple[float, Callable[[int, int], None]]]:
    """How often it is shown, and by what."""
    console = messages()
    if not console.is_terminal or console.is_dumb_terminal:

        def tell(virtual_ms: int, ended: int) -> None:
            say(f"{about(virtual_ms)} simulated, {ended} of {tasks} tasks ended")

        yield _LINE_S, tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("tasks ended, {task.description} simulated")
    columns = (BarColumn(), MofNCompleteColumn(), words, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        bar = progress.add_task(about(0), total=tasks)

        def show(virtual_ms: int, ended: int) -> None:
            progress.update(bar, completed=ended, description=about(virtual_ms), refresh=True)

        yield _BAR_S, show
