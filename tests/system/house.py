"""A real dispatcher in a folder of its own: started, killed, asked over HTTP, and searched for what it left behind."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from bench.processes import free_port
from tests import procfs

CONFIG = """
[dispatcher]
deployment = "{deployment}"
state_dir = "{state}"
listen = "127.0.0.1:{port}"
tls = false
log_level = "info"

[timing]
heartbeat = "0.5s"
poll = "1s"
lease = "{lease}"
pass_interval = "0.5s"
list_interval = "1s"
kill_grace = "1s"
silence = "60s"

[caps]
instances = {cap}

[profiles.local]
driver = "local"

[profiles.local.catalogue."vm.2"]
cpus = 2
memory = "4GiB"
disk = "20GiB"
price = "0.04"
boot_delay = "0.1s"

[pools.default]
profiles = ["local"]
target_drain = "10s"
boot_deadline = "20s"
{pool}

[pools.default.end]
idle = "{idle}"
lifetime = "10m"
"""

#: Trusted by a client of a dispatcher without TLS: to read the system's CAs for each request took a third of a core.
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
#: The dispatcher ends connections that are idle for longer; who asks at that moment would be hung up on.
BRIEFLY = httpx.Limits(keepalive_expiry=2)


class House:
    """One deployment below `folder`. `clean_up` leaves no process behind, whatever the test did."""

    def __init__(
        self, folder: Path, *, cap: int = 3, idle: str = "3s", lease: str = "6s", pool: str = "", config: str = CONFIG
    ) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.port = free_port()
        self.deployment = f"t{os.getpid()}x{self.port}"
        self.config = folder / "config.toml"
        self.config.write_text(
            config.format(
                deployment=self.deployment, state=self.state, port=self.port, cap=cap, idle=idle,
                lease=lease, pool=pool,
            )
        )  # fmt: skip
        self.url = f"http://127.0.0.1:{self.port}"
        self.trust: Path | None = None  # the CA of a dispatcher with TLS
        self.log = folder / "dispatcher.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._client: httpx.Client | None = None
        self._trusting: tuple[Path, int] | None = None
        self.python_path: list[str] = []
        self.beside: list[Path] = []  # folders besides the state whose processes are this deployment's

    # -- the dispatcher's process
    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "cloud_dispatch", *words, "--config", str(self.config)]

    def spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command("up"), stdout=log, stderr=log, start_new_session=True, env=self.environment()
            )

    def environment(self) -> dict[str, str]:
        inherited = os.environ.get("PYTHONPATH", "")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*self.python_path, inherited]))}

    def up(self, within: float = 30) -> None:
        """Start it and wait until it answers."""
        self.process = self.spawn()
        self.until(self.answers, within, "the dispatcher answers")

    def answers(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the dispatcher ended with {self.process.returncode}:\n{self.log_tail()}")
        try:
            return self.client().get(f"{self.url}/v1/health", timeout=2).status_code == 200
        except (httpx.HTTPError, FileNotFoundError):
            return False

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(30)

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    # -- its API
    @property
    def verify(self) -> ssl.SSLContext:
        return NOBODY if self.trust is None else ssl.create_default_context(cafile=self.trust)

    @property
    def token(self) -> str:
        return (self.state / "operator.token").read_text().strip()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client().request(method, f"{self.url}{path}", headers=self.headers, timeout=60, **more)

    def client(self) -> httpx.Client:
        """One for all requests that trust the same CA: whoever waits asks twenty times a second, and a connection with
        a TLS handshake for each took more than the answers."""
        known = None if self.trust is None else (self.trust, self.trust.stat().st_mtime_ns)
        if self._client is None or known != self._trusting:
            self.hang_up()
            self._client, self._trusting = httpx.Client(verify=self.verify, limits=BRIEFLY), known
        return self._client

    def hang_up(self) -> None:
        """Close what connections there are."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def get(self, path: str, **params: Any) -> Any:
        reply = self.ask("GET", path, params=params)
        assert reply.is_success, reply.text
        return reply.json()

    def post(self, path: str, body: Any) -> Any:
        reply = self.ask("POST", path, json=body)
        assert reply.is_success, reply.text
        return reply.json()

    def submit(self, *tasks: dict[str, Any]) -> list[int]:
        return list(self.post("/v1/tasks", {"tasks": list(tasks)})["ids"])

    def counts(self) -> dict[str, int]:
        return {state: n for state, n in self.get("/v1/counts")["counts"].items() if n}

    def task(self, number: int) -> Any:
        return self.get(f"/v1/tasks/{number}")

    def tasks(self) -> list[Any]:
        found: list[Any] = []
        after: int | None = 0
        while after is not None:
            page = self.get("/v1/tasks", after=after, limit=1000)
            found += page["tasks"]
            after = page["next"]
        return found

    def instances(self, past: bool = False) -> list[Any]:
        return list(self.get("/v1/instances", past=int(past))["instances"])

    def logs(self, number: int) -> bytes:
        return self.ask("GET", f"/v1/tasks/{number}/logs").content

    # -- waiting
    def until(self, condition: Callable[[], Any], within: float, what: str) -> Any:
        """Poll until `condition` holds; its value. Fails, with the dispatcher's log, after `within` seconds. Folders
        that are looked through meanwhile are renamed and deleted under one's eyes: that is a no."""
        deadline = time.monotonic() + within
        while True:
            try:
                value = condition()
            except (httpx.TransportError, FileNotFoundError):
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within} s: {what}\n{self.log_tail()}")
            time.sleep(0.05)

    def until_ended(self, number: int, within: float = 60) -> Any:
        """The task once it has ended."""
        done = ("succeeded", "failed", "cancelled")
        return self.until(
            lambda: (task := self.task(number))["state"] in done and task, within, f"task {number} has ended"
        )

    def until_all_ended(self, total: int, within: float = 90) -> dict[str, int]:
        def ended() -> dict[str, int] | None:
            counts = self.counts()
            done = sum(counts.get(state, 0) for state in ("succeeded", "failed", "cancelled"))
            return counts if done == total else None

        return dict(self.until(ended, within, f"all {total} tasks have ended"))

    def until_no_instance(self, within: float = 60) -> None:
        """By the dispatcher's word and by the processes of this host."""
        self.until(lambda: not self.instances(), within, "the dispatcher knows of no instance")
        self.until(lambda: not self.processes(), within, "no process of an instance is left")

    # -- what is really there
    def processes(self) -> dict[int, str]:
        """Every process of this deployment besides the dispatcher: pid to command line."""
        found = {}
        marks = [str(one).encode() for one in (self.state, *self.beside)]
        own = self.process.pid if self.process is not None else -1
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) in (own, os.getpid()):
                continue
            pid = int(entry.name)
            command, environment = procfs.shown(pid, "cmdline"), procfs.shown(pid, "environ")
            if any(mark in command or mark in environment for mark in marks) and procfs.alive(pid):
                found[pid] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def clean_up(self) -> None:
        """Kill everything of this deployment."""
        self.hang_up()
        for _ in range(50):
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait(30)
            left = self.processes()
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)
        raise AssertionError(f"processes that do not die: {self.processes()}")
