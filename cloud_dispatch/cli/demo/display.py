"""What the demo shows while it runs and at its end. Owns the live display, the plain lines and the final table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cloud_dispatch.cli import show
from cloud_dispatch.cli.follow import Watch
from cloud_dispatch.cli.session import console, messages, say, seconds

if TYPE_CHECKING:
    from cloud_dispatch.client import InstanceView

Update = Callable[[Watch, "Sequence[InstanceView]"], None]
#: Plain lines come so far apart while tasks end, and at least so often while none does.
_EVERY_S, _SILENCE_S = 2.0, 10.0


def states_of(instances: Sequence[InstanceView]) -> str:
    """`2 busy, 1 booting`."""
    counts = Counter(instance["state"] for instance in instances)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"


@contextmanager
def progress(total: int) -> Iterator[Update]:
    """Something to show the state of the tasks and instances with: a live display, or lines without a terminal."""
    screen = messages()
    if not screen.is_terminal:
        yield _lines(total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("tasks"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("instances: {task.fields[instances]}"),
    )  # fmt: skip
    with Progress(*columns, console=screen) as bars:
        bar = bars.add_task("tasks", total=total, instances="none")

        def update(watch: Watch, instances: Sequence[InstanceView]) -> None:
            bars.update(bar, completed=len(watch.ended), instances=states_of(instances))

        yield update


def _lines(total: int) -> Update:
    last = [-1.0, -_EVERY_S]

    def update(watch: Watch, instances: Sequence[InstanceView]) -> None:
        now, done = seconds(), len(watch.ended)
        changed = done != last[0] and (done == total or now - last[1] >= _EVERY_S)
        if changed or now - last[1] >= _SILENCE_S:
            last[:] = [done, now]
            say(f"{done} of {total} tasks ended; instances: {states_of(instances)}")

    return update


def print_summary(summary: dict[str, Any], took_s: float) -> None:
    """The table at the end."""
    spans = ("boot_ms", "work_ms", "idle_ms")
    rows = [
        (
            line["type"],
            line["market"],
            line["count"],
            *(f"{line[key] / 1000:.1f}" for key in spans),
            show.dollars(line["cost_micro"]),
        )
        for line in summary["instances"]
    ]
    columns = ("instance type", "market", "launched", "boot s", "work s", "idle s", "cost")
    console().print(show.table(columns, rows))
    tasks = summary["tasks"]
    print(f"tasks succeeded {tasks.get('succeeded', 0)}, failed {tasks.get('failed', 0)}, in {took_s:.1f} s")
    print(f"cost {show.dollars(summary['cost_micro'])}, per task {show.dollars(summary['cost_per_task_micro'])}")
