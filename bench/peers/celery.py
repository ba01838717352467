"""Celery with Redis as its broker, two worker processes of its default pool (prefork, ``--concurrency 2``).

Best fair settings: results ignored, no gossip, mingle, heartbeat or events, one pooled producer, the default prefetch
(4; 100 measured the same). Acknowledged early, Celery's default: a worker that dies loses the tasks that it holds, and
Redis may lose the last minute; ours does not.

The variant ``celery-solo`` is two workers of the solo pool, which runs a task in the thread that talks to the broker:
twice as fast for tasks that do nothing, but deaf (no remote control, no time limits, no revoking) while a task runs.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import celery as celery_package
import redis

from bench.peers import ROOT
from bench.peers.servers import redis_server
from bench.peers.ticks import PATH_VARIABLE, drain_rate, tick
from bench.processes import running

WORKERS = 2
URL_VARIABLE = "BENCH_REDIS"
QUEUE = "celery"

app = celery_package.Celery("bench", broker=os.environ.get(URL_VARIABLE, "redis://127.0.0.1:1/0"))
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop() -> None:
    """Do nothing, once."""
    tick()


def measure(folder: Path, tasks: int, *, solo: bool = False) -> float:
    """Tasks a second."""
    ticks = folder / "ticks"
    with ExitStack() as stack:
        url = stack.enter_context(redis_server(folder))
        app.conf.broker_url = url
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(tasks):
                noop.apply_async(producer=producer)
        broker = redis.Redis.from_url(url)
        environment = {URL_VARIABLE: url, PATH_VARIABLE: str(ticks)}
        argv = [sys.executable, "-m", "celery", "-A", "bench.peers.celery", "worker", "-l", "ERROR"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        argv += ["--pool", "solo"] if solo else ["--pool", "prefork", "--concurrency", str(WORKERS)]
        for number in range(WORKERS if solo else 1):
            log, name = folder / f"worker-{number}.log", f"bench{number}@localhost"
            stack.enter_context(running([*argv, "--hostname", name], log, cwd=ROOT, env=environment))
        return drain_rate(ticks, tasks, lambda: broker.llen(QUEUE) == 0 and broker.hlen("unacked") == 0)
