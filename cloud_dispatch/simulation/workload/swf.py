"""Logs in the Standard Workload Format. Owns its fields, its codes, and how a job of a cluster becomes tasks here.

The format: lines of 18 numbers, -1 for what is unknown; lines that begin with `;` are comments, of which some are
header fields (`; MaxProcs: 128`). Jobs are lines with status 0 (failed), 1 (completed) or 5 (cancelled); 2, 3 and 4 are
parts of a job that has a line of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from cloud_dispatch.demand.fields import MAX_BYTES, MAX_CPUS_MILLI, shorten
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import KIB, Resources, format_size
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.workload.items import LONGEST_MS, WorkItem
from cloud_dispatch.simulation.workload.lines import lines

FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average cpu time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
#: Fields that may have decimals; all others are whole numbers.
_DECIMALS = frozenset({1, 2, 3, 5, 6, 8, 9, 17})
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?")
_HEADER = re.compile(r";\s*([A-Za-z][A-Za-z ]*?)\s*:\s*(.*?)\s*")
_MAX_HEADERS = 1_000
_PARTS = frozenset({2, 3, 4})
_STATUSES = frozenset({-1, 0, 1, 2, 3, 4, 5})
_SUBMIT, _RUN, _ALLOCATED, _USED_MEMORY, _REQUESTED, _REQUESTED_TIME, _REQUESTED_MEMORY = 1, 3, 4, 6, 7, 8, 9
_STATUS, _USER, _GROUP, _PRECEDING = 10, 11, 12, 16
_TIMES = (_SUBMIT, _RUN, _REQUESTED_TIME)
#: Fields that count here, and are -1 where a log knows nothing of them, but no other number below 0.
_COUNTED = (*_TIMES, _ALLOCATED, _USED_MEMORY, _REQUESTED, _REQUESTED_MEMORY)


@dataclass(frozen=True, slots=True)
class SwfRules:
    """What a log leaves open. `requested`: processors as asked for, else as allocated (each stands in where the other
    is unknown). `memory_per_cpu` bytes where the log knows of no memory."""

    requested: bool = True
    memory_per_cpu: int = 512 * 2**20


@dataclass
class SwfLog:
    """One log. `items()` reads it once; afterwards `headers` and `assumptions()` say what was found on the way."""

    path: Path
    rules: SwfRules = SwfRules()
    headers: dict[str, str] = field(default_factory=dict)
    _seen: Counter[str] = field(default_factory=Counter)
    _shapes: dict[tuple[int, int], Shape] = field(default_factory=dict)

    def items(self) -> Iterator[WorkItem]:
        """A task a job, in the log's order. InvalidInput at `log.swf:17: field 4 (run time)` for what is none."""
        for number, raw in lines(self.path):
            line = raw.decode("utf-8", "replace").strip().removeprefix("\ufeff")  # only comments have more than digits
            if line.startswith(";"):
                self._note(line)
            elif line:
                item = self._item(_fields(line, f"{self.path}:{number}"), f"{self.path}:{number}")
                if item is not None:
                    yield item

    def assumptions(self) -> list[str]:
        """How the log was read, in sentences; complete once `items()` is."""
        chosen, other = ("requested", "allocated") if self.rules.requested else ("allocated", "requested")
        told = [
            f"a job of n processors is one task of n cpu; processors are those {chosen}, where known, else {other}",
            "jobs wait for no other job, and for no think time",
        ]
        per_cpu = format_size(self.rules.memory_per_cpu)
        texts: Mapping[str, str] = {
            "no memory": f"of {{}} jobs the log knows no memory: {per_cpu} a cpu is taken",
            "used memory": "of {} jobs the log knows no requested memory: what they used is taken",
            "expected": "of {} jobs the requested time is taken as the expected run time, all that the planner knows",
            "no run time": "{} jobs are left out: the log does not know how long they ran, or they never did",
            "no submit time": "{} jobs are left out: the log does not know when they were submitted",
            "no processors": "{} jobs are left out: the log does not know their processors",
            "part": "{} lines are left out: they are parts of jobs that have lines of their own",
            "cancelled": "{} cancelled jobs run as long as they did and then count as succeeded",
            "no status": "of {} jobs the log does not know how they ended: they succeed",
            "preceded": "{} jobs followed another one; here they come at their submit time whatever it does",
        }
        return told + [text.format(self._seen[key]) for key, text in texts.items() if self._seen[key]]

    def _note(self, line: str) -> None:
        match = _HEADER.fullmatch(line)
        if match and len(self.headers) < _MAX_HEADERS:
            self.headers.setdefault(match[1], match[2])

    def _item(self, values: list[str], place: str) -> WorkItem | None:
        _check(values, place)
        status = int(values[_STATUS])
        if status not in _STATUSES:
            raise _refused(place, _STATUS, "-1, 0, 1, 2, 3, 4 or 5", values)
        reason = "part" if status in _PARTS else ""
        submit_ms, run_ms = _milliseconds(values[_SUBMIT]), _milliseconds(values[_RUN])
        cpus = self._processors(values)
        if not reason and submit_ms < 0:
            reason = "no submit time"
        if not reason and (run_ms < 0 or (run_ms == 0 and status == 5)):
            reason = "no run time"
        if not reason and cpus <= 0:
            reason = "no processors"
        if reason:
            self._seen[reason] += 1
            return None
        if cpus * 1000 > MAX_CPUS_MILLI:
            raise _refused(place, _REQUESTED, f"at most {MAX_CPUS_MILLI // 1000} processors", values)
        self._seen["cancelled"] += status == 5
        self._seen["no status"] += status == -1
        self._seen["preceded"] += int(values[_PRECEDING]) > 0
        expected_ms = max(_milliseconds(values[_REQUESTED_TIME]), 0)
        self._seen["expected"] += expected_ms > 0
        return WorkItem(
            submit_ms=submit_ms,
            shape=self._shape(cpus, self._memory(values, cpus, place)),
            run_ms=run_ms,
            expected_ms=expected_ms,
            user=_name("user", values[_USER]),
            project=_name("group", values[_GROUP]),
            outcome=Cause.EXIT_CODE if status == 0 else Cause.SUCCESS,
        )

    def _processors(self, values: list[str]) -> int:
        requested, allocated = int(values[_REQUESTED]), int(values[_ALLOCATED])
        first, second = (requested, allocated) if self.rules.requested else (allocated, requested)
        return first if first > 0 else second

    def _memory(self, values: list[str], cpus: int, place: str) -> int:
        """Bytes of the whole job: the log has KiB a processor."""
        for at, remark in ((_REQUESTED_MEMORY, ""), (_USED_MEMORY, "used memory")):
            if (each := Decimal(values[at])) > 0:
                self._seen[remark] += 1
                memory = -(-each * KIB * cpus // 1)
                if memory > MAX_BYTES:
                    raise _refused(place, at, f"at most {MAX_BYTES} bytes of memory a job", values)
                return int(memory)
        self._seen["no memory"] += 1
        return self.rules.memory_per_cpu * cpus

    def _shape(self, cpus: int, memory: int) -> Shape:
        """Jobs that ask for the same share one shape."""
        shape = self._shapes.get((cpus, memory))
        if shape is None:
            shape = self._shapes[cpus, memory] = Shape(Resources(cpus * 1000, memory))
        return shape


def _fields(line: str, place: str) -> list[str]:
    values = line.split()
    if len(values) != len(FIELDS):
        raise InvalidInput(f"expected {len(FIELDS)} fields, got {len(values)}", place=place)
    for at, text in enumerate(values):
        match = _NUMBER.fullmatch(text)
        if match is None or (match[1] and at not in _DECIMALS):
            what = "a number" if at in _DECIMALS else "a whole number"
            raise _refused(place, at, f"{what}, -1 for unknown", values)
    return values


def _check(values: list[str], place: str) -> None:
    """What the format has no word for, or no log is old enough for, is a mistake of whoever wrote it."""
    for at in _COUNTED:
        if values[at].startswith("-") and Decimal(values[at]) not in (-1, 0):
            raise _refused(place, at, "a number from 0 on, or -1 for unknown", values)
    for at in _TIMES:
        if _milliseconds(values[at]) > LONGEST_MS:
            raise _refused(place, at, "at most 100 years, in seconds", values)


def _refused(place: str, at: int, expected: str, values: list[str]) -> InvalidInput:
    return InvalidInput(
        f"expected {expected}, got {shorten(values[at])}", place=f"{place}: field {at + 1} ({FIELDS[at]})"
    )


def _milliseconds(text: str) -> int:
    """From seconds; negative for unknown."""
    if "." not in text:
        return int(text) * 1000
    return int((Decimal(text) * 1000).to_integral_value(rounding="ROUND_HALF_UP"))


def _name(kind: str, text: str) -> str:
    return f"{kind}{text}" if int(text) >= 0 else ""
