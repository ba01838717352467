"""How things look on a terminal. Owns tables and the texts of times and states; takes plain values of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

_COLOURS = {
    "succeeded": "green", "failed": "red", "cancelled": "yellow", "cancelling": "yellow", "running": "cyan",
    "busy": "cyan", "idle": "green", "draining": "yellow", "out-of-contact": "red", "lost": "red",
}  # fmt: skip
_COMMAND_WIDTH = 60
#: Free text in fewer characters a line is a tower of words.
_LEAST_TEXT = 20
_GAP, _INDENT = " " * 3, " " * 2


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


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    text: str = "",
    *,
    right: Sequence[str] = (),
    total: bool = False,
) -> Listing:
    """A plain table; states get their colour. `text`: the column of free text; `right`: those whose values stand to the
    right; `total`: the last row is set apart."""
    return Listing(columns, rows, text, right, total)


class Listing:
    """Rows under their titles, in as much width as there is.

    Ids, amounts, states and times are there to be read whole and typed: none is cut or folded, and columns that find no
    place beside the others stand on a line below them. The one column of free text is folded into what is left.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], text: str, right: Sequence[str], total: bool
    ) -> None:
        self._head = [(title, "") for title in columns]
        self._rows = [[(clean(cell), _COLOURS.get(str(cell), "")) for cell in row] for row in rows]
        self._text = columns.index(text) if text else None
        self._right = {columns.index(title) for title in right}
        self._total = total

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.box import SIMPLE_HEAD
        from rich.cells import cell_len
        from rich.table import Table

        wholes = [max(cell_len(cell) for cell, _ in cells) for cells in zip(self._head, *self._rows, strict=True)]
        lines = _placed(wholes, self._text, options.max_width - 2)  # the box has a space on either side
        made = Table(box=SIMPLE_HEAD, pad_edge=False)
        made.add_column(self._stacked(console, lines, self._head))
        for row in self._rows:
            made.add_row(self._stacked(console, lines, row))
        if self._total and len(self._rows) > 1:
            made.rows[-2].end_section = True
        yield made

    def _stacked(self, console: Console, lines: Sequence[Mapping[int, int]], row: Sequence[tuple[str, str]]) -> Text:
        """A row, or the titles, on all the lines that it takes."""
        from rich.text import Text

        made: list[Text] = []
        for number, line in enumerate(lines):
            cells = [(at, Text(*row[at]).wrap(console, width, overflow="fold")) for at, width in line.items()]
            for part in range(max(len(folded) for _, folded in cells)):
                own = [folded[part].copy() if part < len(folded) else Text() for _, folded in cells]
                for (at, _), cell in zip(cells, own, strict=True):
                    cell.align("right" if at in self._right else "left", line[at])
                made.append(Text(_INDENT if number else "") + Text(_GAP).join(own))
        return Text("\n").join(made)


def _placed(wholes: Sequence[int], text: int | None, width: int) -> list[dict[int, int]]:
    """The columns on each line of a row, with their widths there; `wholes` are those that they would like."""
    lines: list[dict[int, int]] = [{}]
    left = width
    for column, whole in enumerate(wholes):
        least = min(whole, _LEAST_TEXT) if column == text else whole
        if lines[-1] and least > left:
            lines.append({})
            left = width - len(_INDENT)
        lines[-1][column] = max(min(least, left), 1)
        left -= least + len(_GAP)
    for number, line in enumerate(lines):
        if text in line:  # it gets what the others of its line leave
            others = sum(own + len(_GAP) for at, own in line.items() if at != text)
            line[text] = max(min(wholes[text], width - others - (len(_INDENT) if number else 0)), 1)
    return lines


def count(number: int, thing: str) -> str:
    """`1 task`, `3 tasks`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def tasks(ids: Sequence[int]) -> str:
    """By their numbers: `task 17`, `3 tasks, 17 to 19`."""
    return f"task {ids[0]}" if len(ids) == 1 else f"{count(len(ids), 'task')}, {min(ids)} to {max(ids)}"


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
