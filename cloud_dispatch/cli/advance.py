"""How far a simulation has come, for who waits for it: a bar on a terminal, else a line now and then. Owns how Ctrl-C,
SIGTERM and SIGHUP end one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from cloud_dispatch.cli.session import messages, say, seconds
from cloud_dispatch.domain.durations import about

#: A bar moves so often; a line comes so seldom, and not before that.
_BAR_S, _LINE_S = 0.2, 20.0
#: What ends a simulation, and what it does otherwise. Batch schedulers send SIGTERM when a job's time is over; SIGHUP
#: comes when a terminal is closed, once from the system and once more from the shell.
_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class Advance(Protocol):
    """Told now and then how long the simulated time is, and how many tasks have ended by then. Says whether to go
    on."""

    def __call__(self, virtual_ms: int, ended: int) -> bool: ...


class _Seldom:
    """Shows what it is told, and how long the rest takes, at most once in `every_s`, until somebody ends it."""

    def __init__(
        self,
        every_s: float,
        show: Callable[[str, int], None],
        interrupted: Callable[[], bool],
        tasks: int,
        span_ms: int,
    ) -> None:
        self._every_s, self._show, self._interrupted = every_s, show, interrupted
        self._tasks, self._span_ms = tasks, span_ms
        self._began_s = self._last_s = seconds()

    def __call__(self, virtual_ms: int, ended: int) -> bool:
        now_s = seconds()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            left_s = rest_s(now_s - self._began_s, (ended, self._tasks), (virtual_ms, self._span_ms))
            left = "" if left_s is None else f", {about(left_s * 1000)} left at this pace"
            with suppress(OSError):  # nobody reads it any more, or the terminal is gone: the figures are still wanted
                self._show(f"{about(virtual_ms)} simulated{left}", ended)
        return not self._interrupted()


def rest_s(took_s: float, *shares: tuple[int, int]) -> int | None:
    """How long the rest takes where so much was done in `took_s`: by the least of `shares`, each a number and of how
    many it is. None where nobody can tell yet."""
    least = min((min(done / of, 1.0) for done, of in shares if of), default=0.0)
    return round(took_s * (1 - least) / least) if least else None


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Gives whether Ctrl-C was typed, or SIGTERM or SIGHUP came, meanwhile. A second one, of any, interrupts: what was
    taken of the machine is given back. One afterwards does what it always does."""
    heard: list[int] = []
    # who has a signal ignored, or a way of his own with it, keeps that
    ours = [number for number, usual in _USUAL.items() if signal.getsignal(number) is usual]
    if threading.current_thread() is not threading.main_thread():
        ours = []

    def note(number: int, _: object) -> None:
        heard.append(number)
        for each in ours:
            signal.signal(each, signal.default_int_handler)

    for number in ours:
        signal.signal(number, note)
    try:
        yield lambda: bool(heard)
    finally:
        for number in ours:
            signal.signal(number, _USUAL[number])


@contextmanager
def advancing(tasks: int, span_ms: int) -> Iterator[Advance]:
    """Whoever simulates `tasks` tasks, the last one submitted after `span_ms`, tells what this gives, and goes on until
    it says no: the first Ctrl-C, SIGTERM or SIGHUP ends the simulation, the second one the program. No thread draws: it
    would slow down the simulation."""
    with _interruption() as interrupted, _shown(tasks) as (every_s, show):
        yield _Seldom(every_s, show, interrupted, tasks, span_ms)


@contextmanager
def _shown(tasks: int) -> Iterator[tuple[float, Callable[[str, int], None]]]:
    """How often it is shown, and by what."""
    console = messages()
    if not console.is_terminal or console.is_dumb_terminal:

        def tell(text: str, ended: int) -> None:
            say(f"{ended} of {tasks} tasks ended, {text}")

        yield _LINE_S, tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("tasks ended, {task.description}")
    columns = (BarColumn(), MofNCompleteColumn(), words, TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, auto_refresh=False)
    bar = progress.add_task(f"{about(0)} simulated", total=tasks)

    def show(text: str, ended: int) -> None:
        progress.update(bar, completed=ended, description=text, refresh=True)

    progress.start()
    try:
        yield _BAR_S, show
    finally:
        with suppress(OSError):
            progress.stop()
