"""The tutorial works as it is written: its console blocks are typed, in order, at a real dispatcher."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bench.processes import free_port
from tests.docs.pages import DOCS, Step, blocks, steps

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
#: The name of an instance that the page shows; a reader takes the one of their own table.
SHOWN_INSTANCE = re.compile(r"\b[a-z][a-z0-9]{11}-\d\b")


class Reader:
    """Somebody who follows the tutorial with a home folder of their own. Only the port is not the default one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        config = home / "config" / "cloud-dispatch" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[dispatcher]\nlisten = "127.0.0.1:{self.port}"\n')
        self.state = home / "data" / "cloud-dispatch"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CLOUD_DISPATCH_")},
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "300",
        }
        self.first_terminal: subprocess.Popen[bytes] | None = None
        self.log = home / "first-terminal.log"
        self.named = ""

    def types(self, step: Step) -> str:
        """What a command prints, both streams; `up` is typed in the first terminal and waited for."""
        if step.command == "cloud-dispatch up":
            self._up()
            return ""
        if SHOWN_INSTANCE.search(step.command):
            self.named = self._instance()
        command = SHOWN_INSTANCE.sub(self.named, step.command)
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.home, env=self.environment, timeout=60, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return done.stdout

    def sees(self, step: Step) -> Step:
        """The step with the name of the instance that was typed in what it shows."""
        return Step(step.command, SHOWN_INSTANCE.sub(self.named, step.shown))

    def _up(self) -> None:
        with self.log.open("wb") as log:
            self.first_terminal = subprocess.Popen(
                ["cloud-dispatch", "up"], cwd=self.home, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while "dispatcher.up" not in self.log.read_text():
            assert self.first_terminal.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def _ask(self, method: str, path: str, **more: object) -> httpx.Response:
        token = (self.state / "operator.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        trust = ssl.create_default_context(cafile=self.state / "tls" / "ca.pem")
        url = f"https://127.0.0.1:{self.port}{path}"
        return httpx.request(method, url, headers=headers, timeout=10, verify=trust, **more)  # type: ignore[arg-type]

    def _instance(self) -> str:
        """One from the table that has nothing to do: the page is at such a point wherever it names one."""
        deadline = time.monotonic() + 30
        while True:
            rows = self._ask("GET", "/v1/instances").json()["instances"]
            idle = [str(row["id"]) for row in rows if row["state"] == "idle"]
            if idle:
                return idle[0]
            assert time.monotonic() < deadline, rows
            time.sleep(0.2)

    def said(self) -> str:
        """The end of what the first terminal shows, for the message of a failure."""
        return "\n".join(self.log.read_text().splitlines()[-40:]) if self.log.exists() else ""

    def leave(self) -> None:
        """End every instance, then the dispatcher; kill what does not go."""
        if self.first_terminal is None:
            return
        try:
            self._ask("POST", "/v1/shutdown", json={"terminate": True, "grace_ms": 1000})
            self.first_terminal.wait(30)
        except (httpx.HTTPError, OSError, subprocess.TimeoutExpired):
            self.first_terminal.send_signal(signal.SIGKILL)
            self.first_terminal.wait(10)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    someone = Reader(tmp_path)
    yield someone
    someone.leave()


def test_the_state_folder_has_what_its_page_says(reader: Reader) -> None:
    """What a dispatcher makes there is explained, and what is explained is there."""
    reader.types(Step("cloud-dispatch up", ""))
    page = (DOCS / "reference" / "configuration.md").read_text().partition("## Files below the state folder")[2]
    said = {cell.partition("/")[0] for cell in re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)}
    assert {re.sub(r"^store\.sqlite\S+", "store.sqlite", path.name) for path in reader.state.iterdir()} == said


def test_every_command_of_the_tutorial_does_what_the_page_shows(reader: Reader) -> None:
    """Each command is typed as printed, and its output matches what stands below it."""
    typed = 0
    for block in blocks(DOCS / "tutorial" / "first-run.md", "console"):
        for step in steps(block):
            output = reader.types(step)
            assert reader.sees(step).matches(output), (
                f"$ {step.command}\n{output}\nbut the page shows\n{step.shown}\n{reader.said()}"
            )
            assert "internal error" not in output
            typed += 1
    assert typed > 15
