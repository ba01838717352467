"""procrastinate on PostgreSQL (durable: fsync and synchronous_commit on), two worker processes of one job at a
time (its default).

Best fair settings: asynchronous jobs, psycopg's pool, jobs deferred in bulk, no listening for notices. The variant
``procrastinate-2x10`` runs ten jobs at a time in each worker.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import procrastinate as procrastinate_package
import psycopg

from bench.peers import ROOT
from bench.peers.servers import postgresql_server
from bench.peers.ticks import PATH_VARIABLE, drain_rate, tick
from bench.processes import running

WORKERS = 2
BULK = 1_000
DSN_VARIABLE = "BENCH_POSTGRESQL"
UNFINISHED = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

app = procrastinate_package.App(
    connector=procrastinate_package.PsycopgConnector(conninfo=os.environ.get(DSN_VARIABLE, "postgresql://"))
)


@app.task(name="noop")
async def noop() -> None:
    """Do nothing, once."""
    tick()


def _queue(dsn: str, tasks: int) -> None:
    connector = procrastinate_package.SyncPsycopgConnector(conninfo=dsn)
    with app.replace_connector(connector) as loader, loader.open():
        loader.schema_manager.apply_schema()
        for start in range(0, tasks, BULK):
            noop.batch_defer(*({} for _ in range(min(BULK, tasks - start))))


def measure(folder: Path, tasks: int, *, concurrency: int = 1) -> float:
    """Tasks a second."""
    ticks = folder / "ticks"
    with ExitStack() as stack:
        dsn = stack.enter_context(postgresql_server(folder))
        _queue(dsn, tasks)
        observer = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        observer.execute("VACUUM ANALYZE")
        argv = [sys.executable, "-m", "procrastinate", "--app=bench.peers.procrastinate.app", "worker"]
        argv += ["--concurrency", str(concurrency), "--no-listen-notify"]
        environment = {DSN_VARIABLE: dsn, PATH_VARIABLE: str(ticks)}
        for number in range(WORKERS):
            log = folder / f"worker-{number}.log"
            stack.enter_context(running(argv, log, cwd=ROOT, env=environment))
        return drain_rate(ticks, tasks, lambda: observer.execute(UNFINISHED).fetchone() == (0,))
