"""Logs of jobs as CSV."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.workload.csvlog import CsvRules
from cloud_dispatch.simulation.workload.cut import Cut
from cloud_dispatch.simulation.workload.items import Workload
from cloud_dispatch.simulation.workload.read import Form, Reading, form_of, read_workload

TRACES = Path(__file__).parents[4] / "shared" / "data" / "traces"
#: Tasks, and the hour of the last submission.
REAL = {
    "azure-100k.csv.gz": (99_988, 8759),
    "pai-100k.csv.gz": (99_998, 8759),
    "mustang-trace-2015-100k.csv.gz": (100_000, 8755),
}


def read(tmp_path: Path, text: str, rules: CsvRules = CsvRules()) -> Workload:
    path = tmp_path / "log.csv"
    path.write_text(text)
    return read_workload(path, Reading(csv=rules))


def test_columns_say_their_units(tmp_path: Path) -> None:
    """Seconds unless the column says otherwise."""
    found = read(tmp_path, "submit,run_h,expected_ms\n0,1,1\n1.5,2,7\n")
    _, item = found.items
    assert (item.submit_ms, item.run_ms, item.expected_ms) == (1_500, 7_200_000, 7)
    assert "column submit is in units of 1s" in found.assumptions
    assert not any("run_h" in text for text in found.assumptions)


def test_every_column_reaches_the_task(tmp_path: Path) -> None:
    """What a row says of its task is in the item."""
    found = read(
        tmp_path,
        "submit_s,run_s,expected_s,cpus,memory,disk,gpus,gpu_type,pool,preemptible,count,priority,user,project,"
        "outcome\n0,10,20,0.5,2GiB,3GiB,1,a100,big,false,4,-2,ann,night,exit-code\n",
    )
    (item,) = found.items
    assert item.shape.resources == Resources(500, 2 * GIB, 3 * GIB, 1)
    assert (item.shape.gpu_type, item.shape.pool, item.shape.preemptible) == ("a100", "big", False)
    assert (item.count, item.priority, item.user, item.project) == (4, -2, "ann", "night")
    assert (item.expected_ms, item.outcome) == (20_000, Cause.EXIT_CODE)
    assert found.assumptions == ()


def test_what_a_file_does_not_say_is_assumed_and_told(tmp_path: Path) -> None:
    """One cpu, the given memory a cpu, success; empty cells are the same as no column."""
    found = read(tmp_path, "submit,run,cpus\n0,1,\n0,1,3\n", CsvRules(memory_per_cpu=GIB))
    assert [item.shape.resources for item in found.items] == [Resources(1000, GIB), Resources(3000, 3 * GIB)]
    assert "every task asks for 1GiB of memory a cpu: the file has no column memory" in found.assumptions
    assert "every task succeeds: the file has no column outcome" in found.assumptions
    assert "the planner knows of no run time before: the file has no column expected" in found.assumptions


def test_the_names_of_public_traces_are_hours_unless_told_otherwise(tmp_path: Path) -> None:
    """`arrival_time` and `length` are hours; the rules can say another unit."""
    text = "arrival_time,length,cpus\n0,1,1\n0.5,0.25,4\n"
    _, item = read(tmp_path, text).items
    assert (item.submit_ms, item.run_ms) == (1_800_000, 900_000)
    _, item = read(tmp_path, text, CsvRules(unit="s")).items
    assert (item.submit_ms, item.run_ms) == (500, 250)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "log.csv:1: expected a header"),
        ("submit,cpus\n", "log.csv:1: expected a column run"),
        ("submit,run,colour\n", "log.csv:1: no such column 'colour' (columns: submit, run"),
        ("submit,submit_h,run\n", "log.csv:1: expected each field in one column"),
        ("submit,run\n0,1\n\n1,2,3\n", "log.csv:4: expected 2 columns, got 3"),
        ("submit,run\n0,\n", "log.csv:2: run: expected a time as a number"),
        ("submit,run\n0,-1\n", "log.csv:2: run: expected a time as a number"),
        ("submit,run\n0,inf\n", "log.csv:2: run: expected a time as a number"),
        ("submit,run_h\n0,999999999\n", "log.csv:2: run_h: expected a time as a number from 0 to 100 years"),
        ("submit,run,cpus\n0,1,2\n0,1,none\n", "log.csv:3: cpus: expected a number of cpus"),
        ("submit,run,memory\n0,1,0\n", "log.csv:2: memory: expected more than no memory"),
        ("submit,run,memory\n0,1,4096\n", "log.csv:2: memory: expected at least 1MiB, got 4096 bytes"),
        ("submit,run,count\n0,1,0\n", "log.csv:2: count: expected a whole number from 1"),
        ("submit,run,outcome\n0,1,preempted\n", "log.csv:2: outcome: expected one of exit-code"),
        ("submit,run,preemptible\n0,1,perhaps\n", "log.csv:2: preemptible: expected true or false"),
        ('submit,run\n0,"1\n', "log.csv:2: expected CSV"),
        ("submit,run\n", "expected at least one task"),
    ],
)
def test_bad_input_is_refused_whole_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    """File, line, column, and what was expected there."""
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, text)
    assert told in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A file in another encoding is told by its line."""
    path = tmp_path / "log.csv"
    path.write_bytes(b"submit,run,user\n0,1,\xe9\n")
    with pytest.raises(InvalidInput, match=r"log\.csv:2: expected UTF-8 text"):
        read_workload(path)


def test_a_csv_with_commands_is_a_task_file(tmp_path: Path) -> None:
    """The header tells a log from a task file; a name alone tells the other forms."""
    path = tmp_path / "tasks.csv"
    path.write_text("name,command\na,true\n")
    assert form_of(path) is Form.TASKS
    path.write_text("submit,run\n0,1\n")
    assert form_of(path) is Form.CSV
    packed = tmp_path / "log.csv.gz"
    packed.write_bytes(gzip.compress(b"submit,run\n0,1\n"))
    assert form_of(packed) is Form.CSV
    assert form_of(tmp_path / "any.jsonl") is Form.TASKS


@pytest.mark.parametrize("name", REAL)
def test_real_traces_are_read_whole(name: str) -> None:
    """The public traces have as many jobs and last as long as their descriptions say."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the trace {name} is not beside the checkout")
    found = read_workload(path, Reading(cut=Cut(split_cpus_milli=64_000)))
    tasks, hours = REAL[name]
    assert found.span_ms // 3_600_000 == hours
    assert found.tasks >= tasks
    assert max(item.shape.resources.cpus_milli for item in found.items) <= 64_000
