"""RQ on Redis, two worker processes.

Best fair settings: ``SimpleWorker``, which runs a job in the worker itself; RQ's default worker forks for every job
and is four times slower. Results are not kept (``result_ttl=0``), jobs are queued in bulk.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

import redis
import rq as rq_package

from bench.peers import ROOT
from bench.peers.servers import redis_server
from bench.peers.ticks import PATH_VARIABLE, drain_rate, tick
from bench.processes import running

WORKERS = 2
QUEUE = "bench"
BULK = 1_000
WORKER_CLASS = "rq.SimpleWorker"


def noop() -> None:
    """Do nothing, once."""
    tick()


def measure(folder: Path, tasks: int) -> float:
    """Tasks a second."""
    ticks = folder / "ticks"
    with ExitStack() as stack:
        url = stack.enter_context(redis_server(folder))
        queue = rq_package.Queue(QUEUE, connection=redis.Redis.from_url(url))
        for start in range(0, tasks, BULK):
            one = rq_package.Queue.prepare_data(noop, result_ttl=0)
            queue.enqueue_many([one] * min(BULK, tasks - start))
        argv = [sys.executable, "-m", "rq.cli", "worker", "--url", url, "--quiet", "-w", WORKER_CLASS, QUEUE]
        for number in range(WORKERS):
            log = folder / f"worker-{number}.log"
            stack.enter_context(running(argv, log, cwd=ROOT, env={PATH_VARIABLE: str(ticks)}))
        return drain_rate(ticks, tasks, lambda: queue.count == 0 and queue.started_job_registry.count == 0)
