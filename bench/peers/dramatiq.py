"""Dramatiq on Redis, two worker processes of one thread: two tasks at a time, as every peer here.

Best fair settings: no Prometheus middleware, no result back-end, no logging. The variant ``dramatiq-2x8`` has
Dramatiq's default of eight threads a process, which is 16 tasks at a time: its speed is in proportion to its threads.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import dramatiq as dramatiq_package
import redis
from dramatiq.brokers.redis import RedisBroker

from bench.peers import ROOT
from bench.peers.servers import redis_server
from bench.peers.ticks import PATH_VARIABLE, drain_rate, tick
from bench.processes import running

WORKERS = 2
URL_VARIABLE = "BENCH_REDIS"
QUEUE = "default"

broker = RedisBroker(url=os.environ.get(URL_VARIABLE, "redis://127.0.0.1:1/0"))
dramatiq_package.set_broker(broker)


@dramatiq_package.actor(broker=broker, queue_name=QUEUE)
def noop() -> None:
    """Do nothing, once."""
    tick()


def measure(folder: Path, tasks: int, *, threads: int = 1) -> float:
    """Tasks a second."""
    ticks = folder / "ticks"
    with ExitStack() as stack:
        url = stack.enter_context(redis_server(folder))
        sender = RedisBroker(url=url)
        sender.declare_queue(QUEUE)
        for _ in range(tasks):
            sender.enqueue(noop.message())
        client = redis.Redis.from_url(url)
        argv = [sys.executable, "-m", "dramatiq", "bench.peers.dramatiq"]
        argv += ["--processes", str(WORKERS), "--threads", str(threads), "--skip-logging"]
        environment = {URL_VARIABLE: url, PATH_VARIABLE: str(ticks)}
        stack.enter_context(running(argv, folder / "worker.log", cwd=ROOT, env=environment))
        # A message leaves the hash of messages when it is acknowledged.
        return drain_rate(ticks, tasks, lambda: client.hlen(f"dramatiq:{QUEUE}.msgs") == 0)
