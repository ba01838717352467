"""Logs in the Standard Workload Format."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput, NotFound
from cloud_dispatch.domain.resources import MIB, Resources
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.simulation.workload.items import WorkItem, Workload
from cloud_dispatch.simulation.workload.read import Form, Reading, form_of, read_workload
from cloud_dispatch.simulation.workload.swf import SwfLog, SwfRules


def job(
    *, submit: object = 0, run: object = 60, allocated: object = 2, used_memory: object = -1, requested: object = 4,
    requested_time: object = 120, memory: object = 1024, status: object = 1, user: int = 3, group: int = 5,
    preceding: int = -1,
) -> str:  # fmt: skip
    """A line of a log."""
    fields = (
        1, submit, 7, run, allocated, -1, used_memory, requested, requested_time, memory, status, user, group, -1, 1, 1,
        preceding, -1,
    )  # fmt: skip
    return " ".join(map(str, fields))


def read(tmp_path: Path, *lines: str, rules: SwfRules = SwfRules()) -> Workload:
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return read_workload(path, Reading(swf=rules))


def only(tmp_path: Path, line: str, rules: SwfRules = SwfRules()) -> WorkItem:
    (item,) = read(tmp_path, line, rules=rules).items
    return item


def test_a_job_becomes_a_task(tmp_path: Path) -> None:
    """Requested processors and time, memory from KiB a processor, user and group by their numbers."""
    _, item = read(tmp_path, job(), job(submit=10, run=60)).items
    assert item.submit_ms == 10_000
    assert item.run_ms == 60_000
    assert item.expected_ms == 120_000
    assert item.shape.resources == Resources(4000, 4 * MIB)
    assert (item.user, item.project, item.outcome) == ("user3", "group5", Cause.SUCCESS)


def test_what_is_expected_of_jobs_is_told(tmp_path: Path) -> None:
    """Users ask for more than they need: it is said that the planner goes by it, and of how many jobs."""
    told = "of 1 jobs the requested time is taken as the expected run time, all that the planner knows"
    assert told in read(tmp_path, job(), job(requested_time=-1)).assumptions
    assert not any("requested time" in text for text in read(tmp_path, job(requested_time=-1)).assumptions)


def test_allocated_processors_are_taken_where_asked_for(tmp_path: Path) -> None:
    """The rules choose between requested and allocated processors; each stands in for the other when unknown."""
    allocated = SwfRules(requested=False)
    assert only(tmp_path, job(), allocated).shape.resources.cpus_milli == 2000
    assert only(tmp_path, job(allocated=-1), allocated).shape.resources.cpus_milli == 4000
    assert only(tmp_path, job(requested=-1)).shape.resources.cpus_milli == 2000


def test_unknown_memory_is_used_memory_and_then_the_stated_default(tmp_path: Path) -> None:
    """-1 is unknown: what the job used comes next, then so much a cpu, and the assumptions count both."""
    found = read(
        tmp_path, job(memory=-1, used_memory=512), job(memory=-1, used_memory=-1), rules=SwfRules(memory_per_cpu=MIB)
    )
    assert [item.shape.resources.memory for item in found.items] == [2 * MIB, 4 * MIB]
    assert "of 1 jobs the log knows no requested memory: what they used is taken" in found.assumptions
    assert "of 1 jobs the log knows no memory: 1MiB a cpu is taken" in found.assumptions


def test_decimals_of_seconds_are_kept(tmp_path: Path) -> None:
    """Some logs have fractions of seconds."""
    assert only(tmp_path, job(run="1.2345")).run_ms == 1235


def test_failed_jobs_fail_and_cancelled_ones_use_their_time(tmp_path: Path) -> None:
    """Status 0 ends with an exit code, 5 runs as long as it did."""
    found = read(tmp_path, job(status=0), job(status=5, run=9))
    assert [(item.outcome, item.run_ms) for item in found.items] == [
        (Cause.EXIT_CODE, 60_000),
        (Cause.SUCCESS, 9_000),
    ]
    assert "1 cancelled jobs run as long as they did and then count as succeeded" in found.assumptions


def test_what_can_not_be_known_is_left_out_and_counted(tmp_path: Path) -> None:
    """No run time, no submit time, no processors, cancelled before the start, and parts of jobs."""
    found = read(
        tmp_path,
        job(),
        job(run=-1),
        job(run=0, status=5),
        job(submit=-1),
        job(allocated=-1, requested=-1),
        job(status=2),
        job(status=3, submit=-1),
        job(status=4),
    )
    assert found.tasks == 1
    assert "2 jobs are left out: the log does not know how long they ran, or they never did" in found.assumptions
    assert "1 jobs are left out: the log does not know when they were submitted" in found.assumptions
    assert "1 jobs are left out: the log does not know their processors" in found.assumptions
    assert "3 lines are left out: they are parts of jobs that have lines of their own" in found.assumptions


def test_a_job_that_followed_another_comes_at_its_own_time(tmp_path: Path) -> None:
    """Dependencies are not simulated, and that is said."""
    assert any("followed another one" in text for text in read(tmp_path, job(preceding=1)).assumptions)
    assert not any("followed another one" in text for text in read(tmp_path, job()).assumptions)


def test_header_fields_are_read_and_other_comments_passed_over(tmp_path: Path) -> None:
    """`; Name: value` is a header field, the first one of a name counts, bytes of other encodings do no harm."""
    path = tmp_path / "log.swf"
    path.write_bytes(
        b"; Computer: Cray\xe9\n;   MaxProcs:  128 \n; a remark\n;\n; MaxProcs: 7\n\n" + job().encode() + b"\n"
    )
    log = SwfLog(path)
    assert len(list(log.items())) == 1
    assert log.headers["MaxProcs"] == "128"
    assert set(log.headers) == {"Computer", "MaxProcs"}


def test_a_compressed_log_is_the_same(tmp_path: Path) -> None:
    """gzip is seen by the first bytes, whatever the file's name."""
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress((job() + "\n").encode()))
    assert form_of(path) is Form.SWF
    assert read_workload(path).tasks == 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_may_come_by_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    """By a name, as a shell gives one to what another command writes, and by the standard input."""
    body, pipe = pack((job() + "\n").encode()), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(body,))
    writer.start()
    assert read_workload(pipe, Reading(Form.SWF)).tasks == 1
    writer.join()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(body))))
    assert read_workload(Path("-"), Reading(Form.SWF)).tasks == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1 2 3", "log.swf:2: expected 18 fields, got 3"),
        (job(run="soon"), "log.swf:2: field 4 (run time): expected a number, -1 for unknown, got 'soon'"),
        (job(requested="1.5"), "log.swf:2: field 8 (requested processors): expected a whole number, -1 for unknown"),
        (job(run="nan"), "field 4 (run time)"),
        (job(run="1e99"), "field 4 (run time)"),
        (job(submit="9" * 40), "field 2 (submit time)"),
        (job(submit="9" * 15), "log.swf:2: field 2 (submit time): expected at most 100 years, in seconds, got '999999"),
        (job(run="9" * 15), "field 4 (run time): expected at most 100 years"),
        (job(requested_time="9" * 15), "field 9 (requested time): expected at most 100 years"),
        (job(run=-2), "log.swf:2: field 4 (run time): expected a number from 0 on, or -1 for unknown, got '-2'"),
        (job(submit="-0.5"), "field 2 (submit time): expected a number from 0 on, or -1 for unknown"),
        (job(requested=-4), "field 8 (requested processors): expected a number from 0 on, or -1 for unknown"),
        (job(status=9), "log.swf:2: field 11 (status): expected -1, 0, 1, 2, 3, 4 or 5, got '9'"),
        (job(requested=10**9), "field 8 (requested processors): expected at most 100000 processors"),
        (job(memory=10**15 - 1), "field 10 (requested memory): expected at most"),
        ("x" * 70_000, "log.swf:2: expected lines of at most 65536 bytes"),
    ],
)
def test_bad_input_is_refused_whole_with_its_place(tmp_path: Path, line: str, told: str) -> None:
    """File, line, field, what was expected and what was there."""
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, job(), line, job())
    assert told in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_torn_gzip_file_is_refused_with_the_line(tmp_path: Path) -> None:
    """A download that stopped in the middle is not taken for the whole log."""
    path = tmp_path / "log.swf.gz"
    whole = gzip.compress("".join(job(submit=n, run=n * 7919 % 4001) + "\n" for n in range(2000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match=r"log\.swf\.gz:\d+: expected a whole gzip file"):
        read_workload(path)


def test_garbage_after_the_first_bytes_of_gzip_is_refused(tmp_path: Path) -> None:
    """Something that begins like gzip and is none."""
    path = tmp_path / "log.swf"
    path.write_bytes(b"\x1f\x8bnothing of the kind")
    with pytest.raises(InvalidInput, match="gzip"):
        read_workload(path)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    """NotFound names the file."""
    with pytest.raises(NotFound, match=r"absent\.swf"):
        read_workload(tmp_path / "absent.swf")


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    """Comments alone are no workload, nor are jobs that are all left out: then it is said why."""
    with pytest.raises(InvalidInput, match="expected at least one task"):
        read(tmp_path, "; Computer: none")
    with pytest.raises(InvalidInput, match="expected at least one task") as refused:
        read(tmp_path, job(run=-1))
    assert refused.value.hint == "1 jobs are left out: the log does not know how long they ran, or they never did"


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """Before a comment, and before a job."""
    assert read(tmp_path, "\ufeff; Computer: none", job()).tasks == 1
    assert read(tmp_path, "\ufeff" + job()).tasks == 1
