"""A real agent under its supervisor, from the zipapp, against the stub dispatcher."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cloud_dispatch.agent import transfers
from cloud_dispatch.agent.adapters import Steps
from cloud_dispatch.agent.depot import Depot, Stop
from cloud_dispatch.agent.incarnation import NAME
from cloud_dispatch.agent.privileges import Unseparated, python_for_all
from cloud_dispatch.agent.transfers import Transfers
from cloud_dispatch.agentzip import build
from cloud_dispatch.wire.messages import FileTransfer, OutputFile, Policy
from tests import procfs
from tests.agent.shelf import Shelf, opened
from tests.agent.stub import StubDispatcher
from tests.virtual_time import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
T = TypeVar("T")
#: The fencing token of what `made` transfers for.
TOKEN = 42


@pytest.fixture(scope="session")
def agent_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built zipapp."""
    path = tmp_path_factory.mktemp("zip") / "agent.pyz"
    path.write_bytes(build()[0])
    return path


class RunningAgent:
    """A supervisor process and what it started. `mark` is in the environment of all of it. Each of its processes may
    have `files` open, as many as the tests' own where that is 0."""

    def __init__(
        self, folder: Path, zip_path: Path, url: str, python: str = sys.executable, *, files: int = 0, **config: Any
    ) -> None:
        self.folder = folder
        self.work = folder / "agent"
        self.private = self.work / "agent" if config.get("agent_user") else self.work
        self.ended = folder / "ended"
        if config.get("agent_user"):  # its program must be where its user can read it
            self.work.mkdir(exist_ok=True)
            zip_path = Path(shutil.copy(zip_path, self.work / "agent.pyz"))
        settings = {
            "url": url,
            "join_token": "join-token",
            "vm": "vm-1",
            "work_dir": str(self.work),
            "end_command": ["touch", str(self.ended)],
            **config,
        }
        self.config = folder / "agent.json"
        self.config.touch(mode=0o600)
        self.config.write_text(json.dumps(settings))
        self.mark = f"AGENT_OF_TEST={folder}"
        name, value = self.mark.split("=", 1)
        self.console = folder / "console"
        bounded = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"] if files else []
        with self.console.open("wb") as console:
            self.process = subprocess.Popen(
                [*bounded, python, "-S", "-I", str(zip_path), str(self.config)],
                env={"PATH": os.environ["PATH"], name: value, "AGENT_SECRET": "not-for-tasks"},
                stdout=console,
                stderr=console,
                extra_groups=[4] if config.get("agent_user") else None,  # one that nobody may inherit
            )

    @property
    def agent_pid(self) -> int:
        """The agent: the child of the supervisor that is no task; waits until it has begun.

        A child that was just forked still carries the name of its parent.
        """
        return int(until(self._agent_child))

    def _agent_child(self) -> str | None:
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if is_agent(int(child)):
                return child
        return None

    def wait(self, timeout_s: float = 30) -> int:
        return self.process.wait(timeout_s)

    def stop(self) -> None:
        """End everything that the test started, however it stands."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in living(self.mark):
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, signal.SIGKILL)


def is_agent(pid: int) -> bool:
    """Whether the process is an agent, by its name; False for one that has ended."""
    return procfs.shown(pid, "comm") == f"{NAME}\n".encode()


def living(mark: str) -> list[int]:
    """Pids of the processes that have `mark` in their environment, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            if mark.encode() in procfs.shown(pid, "environ").split(b"\0") and procfs.alive(pid):
                found.append(pid)
    return found


def until(predicate: Callable[[], Any], timeout_s: float = 60) -> Any:
    """What `predicate` returns as soon as that is true; AssertionError after the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        assert time.monotonic() < deadline, f"timed out waiting for {predicate}"
        time.sleep(0.02)


@pytest.fixture
def stub() -> Iterator[StubDispatcher]:
    """A dispatcher with quick timing; its own findings about the agent fail the test."""
    with StubDispatcher(quick_policy()) as dispatcher:
        yield dispatcher
    assert dispatcher.mistakes == []


def quick_policy(**fields: Any) -> Policy:
    """Timing for tests: seconds instead of minutes."""
    quick: dict[str, Any] = {
        "cpus_milli": 2000,
        "heartbeat_ms": 1_000,
        "lease_ms": 20_000,
        "poll_ms": 5_000,
        "kill_grace_ms": 500,
    }
    return Policy(**{**quick, **fields})


def cannot_separate() -> str:
    """Why agent and tasks can't run as users of their own here, or ""."""
    if os.geteuid() != 0:
        return "users of their own need root, and the tests do not run as root"
    try:
        python_for_all()
    except Unseparated as error:
        return str(error)
    return ""


def separate_users() -> dict[str, str]:
    """Users that no other process of this host has, for one test process."""
    first = 1_000_000_000 + os.getpid() * 100
    return {"agent_user": str(first), "task_uids": f"{first + 1}-{first + 99}"}


@pytest.fixture(params=["together", "separated"])
def users(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of the two modes: all as one user, or the agent and each attempt as users of their own."""
    if request.param == "together":
        return {}
    if why := cannot_separate():
        pytest.skip(why)
    return separate_users()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Where tests and their tasks meet: one that all users may enter and write to, if there are several."""
    if "users" not in request.fixturenames or not request.getfixturevalue("users"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="agent-test-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture
def start_agent(
    tmp_path: Path, agent_zip: Path, stub: StubDispatcher, users: dict[str, str]
) -> Iterator[Callable[..., RunningAgent]]:
    """Starts an agent for `stub`; everything of it is ended after the test."""
    started: list[RunningAgent] = []

    def start(program: Path = agent_zip, **config: Any) -> RunningAgent:
        agent = RunningAgent(tmp_path, program, stub.url, **users, **config)
        started.append(agent)
        return agent

    yield start
    for agent in started:
        agent.stop()


@pytest.fixture
def agent(start_agent: Callable[..., RunningAgent]) -> RunningAgent:
    """A running agent."""
    return start_agent()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried so often, and no longer."""
    for name in ("INPUT_PATIENCE_MS", "OUTPUT_PATIENCE_MS"):
        monkeypatch.setattr(transfers, name, 0)


def carried(steps: Steps[T]) -> T:
    """What `steps` come to, their pauses made."""
    try:
        while True:
            time.sleep(next(steps))
    except StopIteration as end:
        value: T = end.value
        return value


class Carried:
    """Transfers that are carried out at once."""

    def __init__(self, transfers: Transfers) -> None:
        self.transfers = transfers

    def bring(self, inputs: list[FileTransfer]) -> None:
        carried(self.transfers.bring(inputs))

    def take(self, outputs: list[FileTransfer]) -> list[OutputFile]:
        return carried(self.transfers.take(outputs))


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Carried]:
    """Makes the transfers of an attempt whose working folder is `attempt`."""
    folder = tmp_path / "attempt"
    folder.mkdir()

    def make(stop: Stop | None = None, dispatcher: str = "http://127.0.0.1:9") -> Carried:
        depot = Depot(dispatcher, lambda: "t", None, "")
        return Carried(Transfers(str(folder), 7, TOKEN, depot, stop or Stop()))

    return make


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setattr(transfers, "RETRY_FIRST_S", 0.01)
    with opened() as server:
        yield server
