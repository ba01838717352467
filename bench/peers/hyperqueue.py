"""HyperQueue, two workers of one cpu each, running ``true`` as real processes.

PyPI's ``hyperqueue`` has no ``hq`` program; it holds the server and the workers as native threads behind its Python
API, which is what runs here. Best fair settings: one job of all tasks, no output files, no journal (its default), so
that nothing survives a crash of its server; ours acknowledges after an fsynced commit.
"""

import shutil
import time
from pathlib import Path

import hyperqueue as hyperqueue_package
from hyperqueue.cluster import WorkerConfig

from bench.processes import BenchmarkFailed

WARM_UP_TASKS = 500
WORKERS = 2
WARM_UP_FRACTION = 0.05
MINIMUM_REPORTS = 5


def _job(folder: Path, tasks: int) -> hyperqueue_package.Job:
    program = shutil.which("true") or "/bin/true"
    job = hyperqueue_package.Job(default_workdir=folder, max_fails=1)
    for _ in range(tasks):
        job.program([program], stdout=None, stderr=None)
    return job


def measure(folder: Path, tasks: int) -> float:
    """Tasks a second, between the first report with 5 % of the tasks done and the last one before all are done.

    The client reports about once a second; to time the whole job by it would charge the peer up to a second of polling.
    """
    with hyperqueue_package.LocalCluster(server_dir=str(folder / "server")) as cluster:
        for _ in range(WORKERS):
            cluster.start_worker(WorkerConfig(cores=1))
        client = cluster.client()
        client.wait_for_jobs([client.submit(_job(folder, WARM_UP_TASKS))])
        reports: list[tuple[float, int]] = []

        def report(jobs: dict[int, dict[str, int]]) -> None:
            reports.append((time.perf_counter(), sum(status["finished"] for status in jobs.values())))

        failed = client.connection.wait_for_jobs((client.submit(_job(folder, tasks)).id,), report)
        if failed:
            raise BenchmarkFailed(f"HyperQueue failed tasks of jobs {failed}")
        steady = [one for one in reports if tasks * WARM_UP_FRACTION <= one[1] < tasks]
        if len(steady) < MINIMUM_REPORTS:
            raise BenchmarkFailed(f"{tasks} tasks ran too fast to be timed by HyperQueue's reports; use more")
        (first_time, first_count), (last_time, last_count) = steady[0], steady[-1]
        return (last_count - first_count) / (last_time - first_time)
