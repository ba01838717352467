"""Studies of runs that end before their work does: by their patience, or because somebody stops them."""

from __future__ import annotations

from pathlib import Path

from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation.report import as_json, report
from cloud_dispatch.simulation.study.engine import answer
from cloud_dispatch.simulation.workload.items import WorkItem
from tests.simulation.study.scene import ONE, answered, asked, config


def test_work_that_outlasts_the_run_is_told(tmp_path: Path) -> None:
    """The run ends after its patience; what runs is unfinished and a finding says so."""
    long, short = WorkItem(0, ONE, 3_600_000, count=5), WorkItem(0, ONE, 1_000)
    found = answered(config(tmp_path), short, long, patience_ms=600_000)
    assert report(found.record).makespan_ms is None
    assert found.findings[0] == "5 of 6 tasks had not ended after 10m: 1 queued, 4 running"


def test_a_run_that_is_stopped_has_figures_of_what_was(tmp_path: Path) -> None:
    """Half an hour of a day: one task has ended, one runs, one has not come. What the instances cost by then adds up,
    and nothing of it looks as if it were of the whole run."""
    work = (WorkItem(0, ONE, 600_000), WorkItem(600_000, ONE, 7_200_000), WorkItem(86_400_000, ONE, 1_000, count=3))
    found = answer(asked(config(tmp_path), work).scenario, lambda virtual_ms, ended: virtual_ms < 1_800_000)
    figures = report(found.record)
    assert found.stopped
    assert found.findings == (
        "the run was stopped: all figures are of its first 30m alone",
        "4 of 5 tasks had not ended after 30m: 1 running, 3 not submitted yet",
    )
    assert (figures.makespan_ms, figures.unfinished, figures.unsubmitted) == (None, 4, 3)
    assert figures.time.total == found.record.end_ms - min(one.launched_ms for one in found.record.rentals)
    assert figures.cost.total == found.billed == 1_800_000
    assert figures.wait.count == 2
    assert as_json(figures)["unfinished"] == 4


def test_a_run_between_two_submissions_has_no_makespan(tmp_path: Path) -> None:
    """All that has come by then has ended, and that is not all."""
    work = (WorkItem(0, ONE, 60_000), WorkItem(86_400_000, ONE, 1_000))
    found = answer(asked(config(tmp_path), work).scenario, lambda virtual_ms, ended: virtual_ms < 3_600_000)
    assert report(found.record).tasks == {TaskState.SUCCEEDED: 1}
    assert report(found.record).makespan_ms is None
    assert found.findings[1] == "1 of 2 tasks had not ended after 60m: 1 not submitted yet"


def test_how_long_a_run_took_is_told_in_large_units(tmp_path: Path) -> None:
    """Nobody reads `10081m`."""
    work = (WorkItem(at, ONE, 5 * 3_600_000) for at in (0, 61_000))
    found = answered(config(tmp_path), *work, patience_ms=3 * 3_600_000).findings
    assert found[0] == "2 of 2 tasks had not ended after 3h: 2 running"


def test_instances_that_outlast_the_run_are_told(tmp_path: Path) -> None:
    """The work is done, and what has done it is still there."""
    settings = config(tmp_path)
    found = answered(settings, WorkItem(0, ONE, 60_000), patience_ms=70_000)
    assert found.findings == ("all tasks had ended, but not the run after 70s: 1 instances were left",)
