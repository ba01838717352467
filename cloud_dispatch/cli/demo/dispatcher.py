"""The demo's own dispatcher: a real `cloud-dispatch up` in a folder of its own. Owns its start, its end, and the proof
that nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from cloud_dispatch.cli.session import pause, seconds
from cloud_dispatch.client import Client
from cloud_dispatch.config import TomlFile, load
from cloud_dispatch.domain.errors import DispatchError, Unavailable
from cloud_dispatch.provider.registry import plugin

PROFILE = "local"
START_S, END_S, GONE_S = 20.0, 30.0, 10.0
_LOOK_S = 0.05
_CONFIG = """# The configuration of a demo; its folder can be deleted.
[dispatcher]
listen = "127.0.0.1:{port}"
state_dir = "state"

[timing]
heartbeat = "1s"
lease = "10s"
poll = "5s"
pass_interval = "1s"
list_interval = "2s"
kill_grace = "2s"

[profiles.{profile}]
driver = "local"
boot_delay = "300ms"

[pools.default]
profiles = ["{profile}"]
caps = {{instances = 4}}
target_drain = "10s"
end = {{idle = "2s", lifetime = "10m"}}
"""


class Dispatcher:
    """A dispatcher as a child process, with its state below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "dispatcher.log"
        self.config_file = folder / "config.toml"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Client:
        """Start it and wait until it answers; Unavailable, naming its log, when it does not."""
        self.config_file.write_text(_CONFIG.format(port=_free_port(), profile=PROFILE), encoding="utf-8")
        config = load(TomlFile(self.config_file), plugin)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cloud_dispatch", "up", "--config", str(self.config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C in the demo must not end it before its instances
            )
        deadline = seconds() + START_S
        while seconds() < deadline and self._process.poll() is None:
            if config.token_file.exists():
                client = Client.from_config(config, {})
                try:
                    client.health()
                    return client
                except DispatchError:
                    client.close()
            pause(_LOOK_S)
        raise Unavailable("the dispatcher of the demo did not start", hint=f"its log: {self.log}")

    def finish(self, client: Client) -> list[str]:
        """Ask it to end every instance and itself; what went wrong, or is left, in words."""
        if self._process is None:
            return []
        try:
            client.shutdown(terminate=True, grace_ms=5_000)
            code = self._process.wait(END_S)
        except (DispatchError, subprocess.TimeoutExpired) as error:
            return [f"the dispatcher did not end: {error}", *self.leftovers()]
        problems = [f"the dispatcher ended with exit code {code}"] if code else []
        return problems + self.leftovers()

    def leftovers(self) -> list[str]:
        """Instances that are still there: their folders, and processes that carry the demo's folder in their command
        line or environment. Those on their way out get a few seconds: a local watchdog leaves after its next looks."""
        deadline = seconds() + GONE_S
        while (left := self._left()) and seconds() < deadline:
            pause(_LOOK_S)
        return left

    def _left(self) -> list[str]:
        vms = self.folder / "state" / "providers" / PROFILE / "vms"
        folders = sorted(entry.name for entry in vms.iterdir()) if vms.is_dir() else []
        return [f"instance {name} is left" for name in folders] + [
            f"process {number} of an instance is left" for number in self._processes()
        ]

    def _processes(self) -> list[int]:
        """Processes of the demo's instances; on a system without /proc none can be seen."""
        mark = os.fsencode(self.folder)
        own = {os.getpid(), self._process.pid if self._process and self._process.poll() is None else 0}
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if int(entry.name) not in own and mark in (entry / "cmdline").read_bytes() + _environ(entry):
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile, or is somebody else's
                continue
        return found

    def abandon(self) -> None:
        """After a failure: kill the dispatcher and all that it started, so that nothing runs on unseen."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for number in self._processes():
            try:
                os.kill(number, signal.SIGKILL)
            except OSError:
                continue


def _environ(entry: Path) -> bytes:
    """A process's environment, empty where it may not be read."""
    try:
        return (entry / "environ").read_bytes()
    except PermissionError:
        return b""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
