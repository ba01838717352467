"""The benchmarks of ours run against the real dispatcher, on a load too small to measure anything."""

from pathlib import Path

import pytest

from bench import claims, e2e, latency, product
from bench.processes import BenchmarkFailed

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.mark.parametrize("case", [claims.SINGLE, claims.BATCH100], ids=lambda case: str(case.metric))
def test_claims_drains_the_real_queue_and_finds_every_task_in_the_store(case: claims.Case, tmp_path: Path) -> None:
    """Registration, claims and results go the way of real agents; the store's file is counted afterwards."""
    assert claims.drain(tmp_path / "run", case, 1_000) > 0


def test_e2e_runs_every_task_as_a_process(tmp_path: Path) -> None:
    """Two local instances boot, run everything, and are gone with the dispatcher."""
    assert e2e.run(tmp_path / "run", 60) > 0


def test_latency_sees_the_output_of_its_task(tmp_path: Path) -> None:
    """The first byte is followed by the task's success."""
    with product.dispatcher(tmp_path / "run", e2e.configuration(1)) as started:
        product.wait_for_instances(started, 1)
        assert latency.first_byte(started) > 0
    product.check_store(started.store, 1)


def test_wrong_number_of_succeeded_tasks_fails_the_benchmark(tmp_path: Path) -> None:
    """A figure for tasks that are not in the store must never be printed."""
    with product.dispatcher(tmp_path / "run", e2e.configuration(1)) as started:
        assert started.succeeded() == 0
    with pytest.raises(BenchmarkFailed, match=r"7 tasks were submitted .* 0 succeeded"):
        product.check_store(started.store, 7)
