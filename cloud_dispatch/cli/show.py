"""How things look on a terminal. Owns tables and the texts of times and states; takes plain values of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

_COLOURS = {
    "succeeded": "green", "failed": "red", "cancelled": "yellow", "cancelling": "yellow", "running": "cyan",
    "busy": "cyan", "idle": "green", "draining": "yellow", "out-of-contact": "red", "lost": "red",
}  # fmt: skip
_COMMAND_WIDTH = 60


def moment(ms: int | None) -> str:
    """A moment in UTC to the second, `-` for none."""
    return "-" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(ms: int | None) -> str:
    """A length of time for people: `0.3s`, `42s`, `3m05s`, `2h10m`."""
    if ms is None:
        return "-"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def dollars(micro: int | None) -> str:
    """Micro-dollars as `$0.001234`."""
    return "unknown" if micro is None else f"${micro // 1_000_000}.{micro % 1_000_000:06d}"


def clean(text: object) -> str:
    """`text` without characters that a terminal obeys: names and commands are other people's."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> Table:
    """A plain table; states get their colour."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(*columns, box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for row in rows:
        made.add_row(*(Text(clean(cell), style=_COLOURS.get(str(cell), "")) for cell in row))
    return made


def outcome(task: Mapping[str, Any]) -> str:
    """Why the last attempt ended: `exit-code 3`, `signal 9`, `timeout`."""
    cause = task.get("cause") or ""
    if cause == "exit-code":
        return f"exit-code {task.get('exit_code')}"
    if cause == "signal":
        return f"signal {task.get('signal')}"
    return str(cause)


def ending(task: Mapping[str, Any]) -> str:
    """The outcome with what else is known of it: `cannot-start, command not found: fit`."""
    return ", ".join(filter(None, (outcome(task), clean(task["detail"] or ""))))


def shorten(text: str) -> str:
    """A command on one line of a table."""
    line = clean(text)
    return line if len(line) <= _COMMAND_WIDTH else line[: _COMMAND_WIDTH - 1] + "…"
