"""Task files as workloads."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.demand.submission import SubmissionLimits
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.task import Cause, RetryRules
from cloud_dispatch.simulation.workload.cut import Cut
from cloud_dispatch.simulation.workload.items import Workload
from cloud_dispatch.simulation.workload.read import Reading, read_workload


def read(tmp_path: Path, *tasks: dict[str, Any], limit: int = 100, cut: Cut = Cut()) -> Workload:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, tasks)))
    return read_workload(path, Reading(run_ms=90_000, cut=cut, limits=SubmissionLimits(tasks=limit)))


def test_an_array_stays_one_item(tmp_path: Path) -> None:
    """A thousand copies are one item with a count of a thousand."""
    array = {"command": "true", "array": 1000, "cpus": 2, "memory": "4GiB", "expected_runtime": "5m", "project": "p"}
    found = read(tmp_path, array, limit=1000)
    (item,) = found.items
    assert (item.count, item.run_ms, item.expected_ms, item.project) == (1000, 300_000, 300_000, "p")
    assert item.shape.resources == Resources(2000, 4 * GIB)


def test_a_task_without_an_expected_runtime_takes_the_stated_default(tmp_path: Path) -> None:
    """The planner is told nothing of it, the simulated task takes the default, and the assumptions say so."""
    found = read(tmp_path, {"command": "true"}, {"command": "true", "expected_runtime": 5})
    assert [(item.run_ms, item.expected_ms) for item in found.items] == [(90_000, 0), (5_000, 5_000)]
    assert "1 tasks say no expected_runtime: 90s is assumed" in found.assumptions


def test_a_task_that_writes_down_how_far_it_is_stays_known(tmp_path: Path) -> None:
    """The simulator does not do it, and has to say of how many."""
    found = read(tmp_path, {"command": "a", "checkpoint_signal": "SIGUSR1"}, {"command": "a"})
    assert [(item.count, item.checkpoints) for item in found.items] == [(1, True), (1, False)]


def test_a_task_does_not_run_past_its_limit(tmp_path: Path) -> None:
    """A task that says it runs longer than its max_runtime times out there."""
    found = read(tmp_path, {"command": "true", "expected_runtime": 11, "max_runtime": 10})
    assert [(item.run_ms, item.outcome) for item in found.items] == [(10_000, Cause.TIMEOUT)]
    assert "1 tasks would run past their max_runtime: they end there as timed out" in found.assumptions


def test_an_assumed_run_time_makes_no_task_fail(tmp_path: Path) -> None:
    """Nobody said that it takes longer than its max_runtime: it takes that long, and the assumptions say so."""
    found = read(tmp_path, {"command": "true", "array": 3, "max_runtime": 10})
    assert [(item.count, item.run_ms, item.outcome) for item in found.items] == [(3, 10_000, Cause.SUCCESS)]
    told = "3 tasks whose run time is assumed take no longer than their max_runtime, and succeed"
    assert told in found.assumptions


@pytest.mark.parametrize(
    ("expected", "factor", "run_ms", "outcome"),
    [
        ("50m", Fraction(10), 3_600_000, Cause.TIMEOUT),
        ("2h", Fraction(1, 10), 720_000, Cause.SUCCESS),
    ],
)
def test_scaled_run_times_meet_the_limit_as_it_is(
    tmp_path: Path, expected: str, factor: Fraction, run_ms: int, outcome: Cause
) -> None:
    """What fits times out when it is made ten times as long, what did not fit succeeds when it is made shorter."""
    task = {"command": "true", "expected_runtime": expected, "max_runtime": "1h"}
    (item,) = read(tmp_path, task, cut=Cut(runtimes=factor)).items
    assert (item.run_ms, item.outcome) == (run_ms, outcome)


def test_a_task_is_tried_again_by_its_own_rules(tmp_path: Path) -> None:
    """How often, and after what."""
    (item,) = read(tmp_path, {"command": "true", "retry": ["timeout", "exit-code:75"], "max_attempts": 2}).items
    assert item.retry == RetryRules(2, frozenset({Cause.TIMEOUT}), frozenset({75}))


def test_what_the_dispatcher_would_refuse_is_refused(tmp_path: Path) -> None:
    """The same checks, the same places, the same bound on a submission."""
    with pytest.raises(InvalidInput, match=r"tasks\.jsonl:2: cpus: expected a number of cpus"):
        read(tmp_path, {"command": "true"}, {"command": "true", "cpus": "many"})
    with pytest.raises(InvalidInput, match="expected at most 100 tasks"):
        read(tmp_path, {"command": "true", "array": 101})
