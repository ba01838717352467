"""pgqueuer on PostgreSQL (durable: fsync and synchronous_commit on, all tables logged), two worker processes.

Best fair settings: asyncpg on uvloop, batches of 100, jobs queued in bulk, no cap on concurrency. The workers are
started by ``python -m bench.peers.pgqueuer`` because pgqueuer 1.6.0's ``run`` command fails under the typer of today.
"""

import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import pgqueuer as pgqueuer_package
import psycopg
import uvloop
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers import ROOT
from bench.peers.servers import postgresql_server
from bench.peers.ticks import PATH_VARIABLE, drain_rate, tick
from bench.processes import running

WORKERS = 2
BATCH = 100
BULK = 10_000
DSN_VARIABLE = "BENCH_POSTGRESQL"


async def work() -> None:
    """Be one worker until terminated."""
    connection = await asyncpg.connect(os.environ[DSN_VARIABLE])
    queuer = pgqueuer_package.PgQueuer.from_asyncpg_connection(connection)

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        tick()

    await queuer.run(batch_size=BATCH)


async def _queue(dsn: str, tasks: int) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        for start in range(0, tasks, BULK):
            count = min(BULK, tasks - start)
            await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    finally:
        await connection.close()


def measure(folder: Path, tasks: int) -> float:
    """Tasks a second."""
    ticks = folder / "ticks"
    with ExitStack() as stack:
        dsn = stack.enter_context(postgresql_server(folder))
        asyncio.run(_queue(dsn, tasks))
        observer = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        observer.execute("VACUUM ANALYZE")
        argv = [sys.executable, "-m", "bench.peers.pgqueuer"]
        environment = {DSN_VARIABLE: dsn, PATH_VARIABLE: str(ticks)}
        for number in range(WORKERS):
            log = folder / f"worker-{number}.log"
            stack.enter_context(running(argv, log, cwd=ROOT, env=environment))
        # A finished job leaves the table of jobs.
        return drain_rate(ticks, tasks, lambda: observer.execute("SELECT count(*) FROM pgqueuer").fetchone() == (0,))


if __name__ == "__main__":
    uvloop.run(work())
