"""Ours, as a user runs it: the dispatcher as a real process, spoken to over its REST API.

Owns starting it, the few REST calls that benchmarks need, and reading the number of succeeded tasks back from the store
file after it has ended. Knows nothing of what is measured.
"""

import contextlib
import http.client
import json
import os
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import BenchmarkFailed, free_port, running, tail, wait_until

ROOT = Path(__file__).parent.parent
CALL_TIMEOUT_SECONDS = 120.0
END_SECONDS = 60.0
SUBMIT_BULK = 20_000
#: Less than the server keeps an idle connection.
KEPT_ALIVE_SECONDS = 30.0


@dataclass
class Dispatcher:
    """A dispatcher that runs; ``call`` keeps one connection to its REST API."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    trust: ssl.SSLContext | None = None  # of one that speaks TLS

    def __post_init__(self) -> None:
        self._connection = _connection(self.port, self.trust, CALL_TIMEOUT_SECONDS)
        self._connection.connect()
        self._used = time.monotonic()
        self._token = (self.folder / "state" / "operator.token").read_text().strip()

    @property
    def log(self) -> Path:
        """What the dispatcher said."""
        return self.folder / "dispatcher.log"

    @property
    def store(self) -> Path:
        """The statestore's SQLite file."""
        return self.folder / "state" / "store.sqlite"

    def raw(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, Mapping[str, str]]:
        """One call; the body and the headers (lower case). BenchmarkFailed unless it is answered with 2xx."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if time.monotonic() - self._used > KEPT_ALIVE_SECONDS:
            self._connection.close()  # the server has closed it, or is about to; the next request opens a new one
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchmarkFailed(f"{method} {path} was not answered: {error!r}\n{tail(self.log)}") from error
        self._used = time.monotonic()
        if not 200 <= response.status < 300:
            raise BenchmarkFailed(f"{method} {path} was answered {response.status}: {answer[:2000]!r}; see {self.log}")
        return answer, {name.lower(): value for name, value in response.getheaders()}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call with JSON both ways."""
        answer, _ = self.raw(method, path, None if body is None else json.dumps(body).encode())
        return json.loads(answer)

    def submit(self, tasks: Sequence[Mapping[str, Any]]) -> list[int]:
        """Queue tasks in bulk, SUBMIT_BULK a call; their ids."""
        ids: list[int] = []
        for start in range(0, len(tasks), SUBMIT_BULK):
            ids += self.call("POST", "/v1/tasks", {"tasks": tasks[start : start + SUBMIT_BULK]})["ids"]
        return ids

    def counts(self) -> dict[str, int]:
        """Tasks by state."""
        counts: dict[str, int] = self.call("GET", "/v1/counts")["counts"]
        return counts

    def succeeded(self) -> int:
        """Tasks that succeeded; BenchmarkFailed when one failed."""
        counts = self.counts()
        if counts.get("failed", 0):
            raise BenchmarkFailed(f"{counts['failed']} tasks of ours failed; see {self.folder}")
        return counts.get("succeeded", 0)

    def ready_instances(self) -> int:
        """Instances that have registered and serve."""
        instances = self.call("GET", "/v1/instances")["instances"]
        return sum(instance["state"] in ("idle", "busy") for instance in instances)

    def hang_up(self) -> None:
        """Close the connection; the dispatcher runs on."""
        self._connection.close()

    def shut_down(self) -> None:
        """End every instance, then the dispatcher; BenchmarkFailed unless it ends well."""
        self.call("POST", "/v1/shutdown", {"terminate": True, "grace_ms": 5_000})
        self.hang_up()
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchmarkFailed(f"the dispatcher did not end within {END_SECONDS:g} s; see {self.log}") from None
        if code != 0:
            raise BenchmarkFailed(f"the dispatcher ended with exit code {code}; see {self.log}")


@contextlib.contextmanager
def dispatcher(
    folder: Path, configuration: str, *, python_path: Sequence[Path] = (), tls: bool = False
) -> Iterator[Dispatcher]:
    """A dispatcher with its state in ``folder``, ended with all of its instances at exit.

    ``configuration`` is TOML after its [dispatcher] table, which is made here: a free port of the loopback interface,
    plain HTTP there as the peers speak it, or TLS with the dispatcher's own certificate.
    """
    folder.mkdir(parents=True)
    port = free_port()
    path, log = folder / "config.toml", folder / "dispatcher.log"
    own = {"state_dir": str(folder / "state"), "listen": f"127.0.0.1:{port}", "tls": tls}
    head = "\n".join(f"{key} = {json.dumps(value)}" for key, value in own.items())
    path.write_text(f"[dispatcher]\n{head}\n{configuration}")
    argv = [sys.executable, "-m", "cloud_dispatch", "up", "--config", str(path)]
    paths = [*map(str, python_path), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    ca = folder / "state" / "tls" / "ca.pem" if tls else None
    with running(argv, log, cwd=folder, env=environment) as process:
        wait_until(lambda: _healthy(port, ca), "dispatcher", timeout_seconds=60, watch={log: process})
        started = Dispatcher(folder, port, process, _trust(ca))
        try:
            yield started
        finally:
            if process.poll() is None:
                started.shut_down()


def _trust(ca: Path | None) -> ssl.SSLContext | None:
    return None if ca is None else ssl.create_default_context(cafile=str(ca))


def _connection(port: int, trust: ssl.SSLContext | None, timeout_seconds: float) -> http.client.HTTPConnection:
    if trust is None:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_seconds, context=trust)


def _healthy(port: int, ca: Path | None) -> bool:
    try:
        connection = _connection(port, _trust(ca), 5)
        connection.request("GET", "/v1/health")
        healthy = connection.getresponse().status == 200
        connection.close()
    except OSError:
        return False
    return healthy


def wait_for_instances(started: Dispatcher, count: int, timeout_seconds: float = 60.0) -> None:
    """Wait until exactly ``count`` instances serve."""
    wait_until(
        lambda: started.ready_instances() == count,
        f"{count} instances",
        timeout_seconds=timeout_seconds,
        interval_seconds=0.1,
        watch={started.log: started.process},
    )


def wait_for_succeeded(
    started: Dispatcher, count: int, timeout_seconds: float, interval_seconds: float = 0.02
) -> float:
    """Wait until ``count`` tasks have succeeded in all; the moment (perf_counter) at which that was seen."""
    wait_until(
        lambda: started.succeeded() >= count,
        f"{count} succeeded tasks",
        timeout_seconds=timeout_seconds,
        interval_seconds=interval_seconds,
        watch={started.log: started.process},
    )
    return time.perf_counter()


def succeeded_in_store(store: Path) -> int:
    """Tasks that succeeded, by the store's own file; read after the dispatcher has ended."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM tasks WHERE state = 'succeeded'").fetchone()
    return int(count)


def check_store(store: Path, tasks: int) -> None:
    """BenchmarkFailed unless exactly ``tasks`` tasks succeeded: a figure for anything else would be untrue."""
    found = succeeded_in_store(store)
    if found != tasks:
        raise BenchmarkFailed(f"{tasks} tasks were submitted and the store {store} says that {found} succeeded")


def toml_value(value: Any) -> str:
    """JSON's text of a string, number, boolean or list is TOML's."""
    return json.dumps(value)
