"""Logs of jobs as CSV. Owns the columns, their units, and how a row becomes a task.

The header names the columns, in any order; which there are is in COLUMNS. A column of times may say its unit
(`submit_s`, `run_h`); `arrival_time` and `length` are hours, as in the public traces that use these names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloud_dispatch.demand import fields
from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import GIB, Resources, format_size
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.workload.cut import MAX_TASKS
from cloud_dispatch.simulation.workload.items import LONGEST_MS, OWN_CAUSES, WorkItem
from cloud_dispatch.simulation.workload.lines import texts

#: Milliseconds of a unit of time.
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_TIMES = ("submit", "run", "expected")
#: Other names of columns, with their field and the unit that they are known to be in.
_KNOWN = {"arrival_time": ("submit", "h"), "length": ("run", "h")}
#: Every field that a column may name; `submit` and `run` must be there.
COLUMNS = (
    *_TIMES, "cpus", "memory", "disk", "gpus", "gpu_type", "pool", "preemptible", "count", "priority", "user",
    "project", "outcome",
)  # fmt: skip
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,20})?")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class CsvRules:
    """What a file leaves open. `unit`: of columns of times that do not say theirs (None: seconds, or what the column is
    known for). `memory_per_cpu` bytes where there is no column of memory."""

    unit: str | None = None
    memory_per_cpu: int = GIB // 2


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its name in the file, its field, and milliseconds of its unit (0: not a time)."""

    name: str
    field: str
    unit_ms: int = 0


@dataclass
class CsvLog:
    """One file. `items()` reads it once; afterwards `assumptions()` says how it was understood."""

    path: Path
    rules: CsvRules = CsvRules()
    _columns: tuple[_Column, ...] = ()
    _shapes: dict[tuple[Any, ...], Shape] = field(default_factory=dict)

    def items(self) -> Iterator[WorkItem]:
        """A task a row, in the file's order. InvalidInput at `trace.csv:17: cpus` for what is not of this form."""
        rows = csv.reader((line for _, line in texts(self.path)), strict=True)
        try:
            for row in rows:
                place = f"{self.path}:{rows.line_num}"
                if not self._columns:
                    self._columns = _header(row, place, self.rules)
                elif any(row):
                    yield self._item(row, place)
        except csv.Error as error:
            raise InvalidInput(f"expected CSV: {error}", place=f"{self.path}:{rows.line_num}") from None
        if not self._columns:
            raise InvalidInput("expected a header that names the columns, got nothing", place=f"{self.path}:1")

    def assumptions(self) -> list[str]:
        """How the file was read, in sentences; complete once `items()` is."""
        told = [
            f"column {column.name} is in units of {format_duration(column.unit_ms)}"
            for column in self._columns
            if column.unit_ms and column.name in (*_TIMES, *_KNOWN)
        ]
        present = {column.field for column in self._columns}
        if "expected" not in present:
            told.append("the planner knows of no run time before: the file has no column expected")
        if "cpus" not in present:
            told.append("every task asks for 1 cpu: the file has no column cpus")
        if "memory" not in present:
            each = format_size(self.rules.memory_per_cpu)
            told.append(f"every task asks for {each} of memory a cpu: the file has no column memory")
        if "outcome" not in present:
            told.append("every task succeeds: the file has no column outcome")
        return told

    def _item(self, row: list[str], place: str) -> WorkItem:
        if len(row) != len(self._columns):
            raise InvalidInput(f"expected {len(self._columns)} columns, got {len(row)}", place=place)
        values: dict[str, Any] = {}
        for column, cell in zip(self._columns, row, strict=True):
            text = cell.strip()
            if not text and column.field not in ("submit", "run"):
                continue
            try:
                values[column.field] = _time(text, column.unit_ms) if column.unit_ms else _READERS[column.field](text)
            except ValueError as error:
                raise InvalidInput(str(error), place=f"{place}: {column.name}") from None
        return WorkItem(
            submit_ms=values["submit"],
            shape=self._shape(values),
            run_ms=values["run"],
            count=values.get("count", 1),
            expected_ms=values.get("expected", 0),
            priority=values.get("priority", 0),
            user=values.get("user", ""),
            project=values.get("project", ""),
            outcome=values.get("outcome", Cause.SUCCESS),
        )

    def _shape(self, values: dict[str, Any]) -> Shape:
        """Rows that ask for the same share one shape."""
        wanted: int = values.get("cpus", 1000)
        assumed = -(-self.rules.memory_per_cpu * wanted // 1000)
        key = (
            wanted, values.get("memory", assumed), values.get("disk", 0), values.get("gpus", 0),
            values.get("gpu_type", ""), values.get("pool", ""), values.get("preemptible", True),
        )  # fmt: skip
        shape = self._shapes.get(key)
        if shape is None:
            cpus, memory, disk, gpus, gpu_type, pool, preemptible = key
            shape = Shape(Resources(cpus, memory, disk, gpus), gpu_type=gpu_type, pool=pool, preemptible=preemptible)
            self._shapes[key] = shape
        return shape


def is_task_file(path: Path) -> bool:
    """Whether a CSV file is a task file: its header has a column `command`."""
    first = next(iter(texts(path)), (1, ""))[1]
    return "command" in [cell.strip().strip('"') for cell in first.split(",")]


def _header(row: list[str], place: str, rules: CsvRules) -> tuple[_Column, ...]:
    columns = tuple(_column(cell.strip(), place, rules) for cell in row)
    named = [column.field for column in columns]
    for wanted in ("submit", "run"):
        if wanted not in named:
            raise InvalidInput(f"expected a column {wanted} (with its unit, such as {wanted}_s)", place=place)
    if len(set(named)) != len(named):
        raise InvalidInput("expected each field in one column", place=place)
    return columns


def _column(name: str, place: str, rules: CsvRules) -> _Column:
    field_name, unit = _KNOWN.get(name, (name, "s"))
    if field_name in COLUMNS:
        return _Column(name, field_name, UNITS[rules.unit or unit] if field_name in _TIMES else 0)
    base, _, suffix = name.rpartition("_")
    if base in _TIMES and suffix in UNITS:
        return _Column(name, base, UNITS[suffix])
    raise InvalidInput(
        f"no such column {fields.shorten(name)}",
        place=place,
        hint=f"columns: {', '.join((*COLUMNS, *_KNOWN))}; {', '.join(_TIMES)} may end in _ms, _s, _m, _h",
    )


def _time(text: str, unit_ms: int) -> int:
    """Milliseconds, rounded half up."""
    if _NUMBER.fullmatch(text):
        value = int((Decimal(text) * unit_ms).to_integral_value(rounding="ROUND_HALF_UP"))
        if value <= LONGEST_MS:
            return value
    raise ValueError(f"expected a time as a number from 0 to 100 years, got {fields.shorten(text)}")


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if re.fullmatch(r"[+-]?\d{1,10}", text) and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"expected a whole number from {low} to {high}, got {fields.shorten(text)}")

    return read


def _truth(text: str) -> bool:
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    raise ValueError(f"expected true or false, got {fields.shorten(text)}")


def _outcome(text: str) -> Cause:
    if text in OWN_CAUSES:
        return Cause(text)
    raise ValueError(f"expected one of {', '.join(sorted(OWN_CAUSES))}, got {fields.shorten(text)}")


_READERS: dict[str, Callable[[str], Any]] = {
    "cpus": fields.cpus,
    "memory": fields.memory,
    "disk": fields.size,
    "gpus": _whole(0, fields.MAX_GPUS),
    "gpu_type": fields.word,
    "pool": fields.word,
    "preemptible": _truth,
    "count": _whole(1, MAX_TASKS),
    "priority": _whole(-fields.MAX_PRIORITY, fields.MAX_PRIORITY),
    "user": fields.word,
    "project": fields.word,
    "outcome": _outcome,
}
