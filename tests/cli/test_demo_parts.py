"""The parts of the demo: its tasks are real, its checks find what is wrong, and nothing of it goes unseen."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cli.demo import dispatcher as demo_dispatcher
from cloud_dispatch.cli.demo import work, workload
from cloud_dispatch.cli.demo.dispatcher import Dispatcher
from cloud_dispatch.demand.submission import parse
from cloud_dispatch.domain.errors import NotFound, Unavailable


def test_jobs_are_valid_tasks_on_real_files() -> None:
    """Every job is a file of the standard library, by turns hashed and compressed, and is a task that parses."""
    jobs = workload.jobs(200)
    assert len({(job.kind, job.path) for job in jobs}) == 200
    assert {job.kind for job in jobs} == {"hash", "compress"}
    assert all(job.path.is_file() for job in jobs)
    assert len(parse([job.as_task() for job in jobs])) == 200
    assert 0 < sum(job.wide for job in jobs) < 50


@pytest.mark.parametrize("position", [0, 1])
def test_task_writes_the_truth(tmp_path: Path, position: int) -> None:
    """What the command of a task prints and leaves is what the direct computation says."""
    job = workload.jobs(2)[position]
    done = subprocess.run(job.as_task()["command"], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert done.stdout == job.truth()
    assert (tmp_path / work.OUTPUT).read_bytes() == job.truth()


def test_truth_is_hash_and_compression_of_the_content() -> None:
    """The results are what hashlib and zlib say, and the compressed bytes give the content back."""
    content = b"import this\n" * 100
    packed = zlib.compress(content, 9)
    assert work.result_of("hash", content)["sha256"] == hashlib.sha256(content).hexdigest()
    found = work.result_of("compress", content)
    assert (found["packed"], found["sha256"]) == (len(packed), hashlib.sha256(packed).hexdigest())
    assert json.loads(work.line_of("hash", content))["size"] == len(content)


class Results:
    """A client that hands out results; tests break one of them."""

    def __init__(self, jobs: list[workload.Job]) -> None:
        self.printed = {number: job.truth() for number, job in enumerate(jobs, 1)}
        self.left = dict(self.printed)
        self.views: dict[int, Any] = {
            number: {
                "state": "succeeded",
                "outputs": [{"path": work.OUTPUT, "sha256": hashlib.sha256(truth).hexdigest()}],
            }
            for number, truth in self.printed.items()
        }

    def logs(self, task: int) -> Any:
        return type("Chunk", (), {"body": self.printed[task]})

    def output(self, task: int, path: str) -> bytes:
        if task not in self.left:
            raise NotFound(f"the result of task {task} has no output {path!r}")
        return self.left[task]


def _found(results: Results, jobs: list[workload.Job]) -> list[str]:
    ids = list(range(1, len(jobs) + 1))
    return workload.wrong_results(results, ids, jobs, results.views)  # type: ignore[arg-type]


def test_right_results_pass_the_check() -> None:
    """Nothing is said of what is as it must be."""
    jobs = workload.jobs(4)
    assert _found(Results(jobs), jobs) == []


def test_each_kind_of_wrong_result_is_found() -> None:
    """A failed task, another print, another file, a missing file and a wrong manifest are each named."""
    jobs = workload.jobs(6)
    results = Results(jobs)
    results.views[1]["state"] = "failed"
    results.printed[2] = b"something else"
    results.left[3] = b"something else"
    del results.left[4]
    results.views[5]["outputs"][0]["sha256"] = "0" * 64
    del results.views[6]
    problems = _found(results, jobs)
    assert len(problems) == 6
    for number, (words, problem) in enumerate(
        zip(["is failed", "printed", "left another", "no output", "left another", "is missing"], problems, strict=True),
        1,
    ):
        assert problem.startswith(f"task {number}")
        assert words in problem


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
@pytest.mark.parametrize("by", ["environment", "argument"])
def test_process_of_an_instance_that_is_left_is_seen_and_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A process that carries the demo's folder is found until it is gone; others are not touched."""
    monkeypatch.setattr(demo_dispatcher, "GONE_S", 0.1)
    demo = Dispatcher(tmp_path)
    assert demo.leftovers() == []
    code = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"]
    words = [*code, str(tmp_path / "vm")] if by == "argument" else code
    environment = {**os.environ, "VM": str(tmp_path / "vm")} if by == "environment" else dict(os.environ)
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert demo.leftovers() == [f"process {process.pid} of an instance is left"]
        demo.abandon()
        assert process.wait(10) == -9
    assert demo.leftovers() == []


def test_folder_of_an_instance_that_is_left_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance in the local provider's registry counts as left, processes or not."""
    monkeypatch.setattr(demo_dispatcher, "GONE_S", 0.1)
    (tmp_path / "state/providers/local/vms/abc-0").mkdir(parents=True)
    assert Dispatcher(tmp_path).leftovers() == ["instance abc-0 is left"]


@pytest.mark.process
def test_dispatcher_that_does_not_start_is_told_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatcher that ends at once is not waited for, and the error names its log."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    begin = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not start .*dispatcher\.log"):
        Dispatcher(tmp_path).start()
    assert time.monotonic() - begin < 10
