"""From a file to a workload. Owns which form a file has; each form is read by a module of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cloud_dispatch.demand.submission import SubmissionLimits
from cloud_dispatch.simulation.record import Record
from cloud_dispatch.simulation.workload.csvlog import CsvLog, CsvRules, is_task_file
from cloud_dispatch.simulation.workload.cut import Cut, collect
from cloud_dispatch.simulation.workload.history import HistoryWork
from cloud_dispatch.simulation.workload.items import Workload
from cloud_dispatch.simulation.workload.swf import SwfLog, SwfRules
from cloud_dispatch.simulation.workload.taskwork import TaskWork


class Form(StrEnum):
    """What a file holds. `auto`: told by its name, and of a `.csv` by its header."""

    AUTO = "auto"
    TASKS = "tasks"
    SWF = "swf"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read what a file leaves open. `run_ms`: of tasks whose run time nobody knows."""

    form: Form = Form.AUTO
    cut: Cut = Cut()
    run_ms: int = 600_000
    swf: SwfRules = SwfRules()
    csv: CsvRules = CsvRules()
    limits: SubmissionLimits = SubmissionLimits()


def form_of(path: Path) -> Form:
    """The form of `path` by its name (a last `.gz` apart) and, of a `.csv`, its header. NotFound when it is needed and
    there is no such file."""
    suffix = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
    if suffix.lower() == ".swf":
        return Form.SWF
    if suffix.lower() == ".csv" and not is_task_file(path):
        return Form.CSV
    return Form.TASKS


def read_workload(path: Path, reading: Reading = Reading()) -> Workload:
    """The workload that `path` holds. All or nothing: InvalidInput with file, line and column for the first thing that
    is not of its form, NotFound when there is no such file."""
    form = form_of(path) if reading.form is Form.AUTO else reading.form
    source: SwfLog | CsvLog | TaskWork
    if form is Form.SWF:
        source = SwfLog(path, reading.swf)
    elif form is Form.CSV:
        source = CsvLog(path, reading.csv)
    else:
        source = TaskWork(path, reading.run_ms, reading.limits)
    return _collected(source, reading.cut, str(path))


def _collected(source: SwfLog | CsvLog | TaskWork | HistoryWork, cut: Cut, origin: str) -> Workload:
    made = collect(source.items(), cut, origin, source.assumptions)
    return Workload(made.items, made.origin, (*source.assumptions(), *made.assumptions))


def from_record(record: Record, origin: str, reading: Reading = Reading()) -> Workload:
    """The workload of a statestore's history, with the boot times that it knows. InvalidInput for one without tasks."""
    source = HistoryWork(record, reading.run_ms)
    return replace(_collected(source, reading.cut, origin), boots=tuple(source.boots()))
