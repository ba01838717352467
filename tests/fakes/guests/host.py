"""The host of a fake's VMs: switches them on and off as the fake says, and tells it when a guest powers itself off.

A VM is a process tree in namespaces of its own (processes, mounts, network). From its network the metadata service is
reached, at its real address, and the addresses that are said to be reachable; both are sockets that this process
listens on, so that nothing of this host's network is changed. It needs root.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, ClassVar

from tests.fakes.guests import PATH
from tests.fakes.guests.network import Place, lay_out
from tests.fakes.guests.sources import EC2, Sign, Source

ROOT = Path(__file__).parents[3]
#: Where tests find programs: those that `make setup` brings, and the administrator's.
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")
_USER = "cloud-dispatch:x:60599:60599::/:/usr/sbin/nologin"
_GROUP = "cloud-dispatch:x:60599:"


@cache
def cannot() -> str:
    """Why there can be no VMs here, or ""; tried once."""
    if os.geteuid() != 0:
        return "VMs need namespaces, and those need root: the tests do not run as root"
    for program in ("nft", "ip", "unshare"):
        if shutil.which(program, path=PROGRAMS) is None:
            return f"no {program} here: `make setup` brings nft where there is apt"
    if shutil.which("python3", path=PATH) is None:
        return f"no python3 in {PATH}: VMs have this host's programs"
    for trial in ("nft add table inet trial", "ip link add wire type veth peer name eth0"):
        words = ["unshare", *_NAMESPACES, *trial.split()]
        done = subprocess.run(words, env={"PATH": PROGRAMS}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"no namespaces here in which `{trial}` does it: {done.stderr.strip()[:200]}"
    return ""


class Guests:
    """`with Guests(fake, folder, sign, {("10.255.0.1", 443): ("127.0.0.1", 7717)}):` from then on what the fake starts
    really runs. `ways`: what a VM reaches at the first address is listening at the second on this host."""

    def __init__(
        self, cloud: Any, folder: Path, sign: Sign, ways: Mapping[Place, Place], source: Source = EC2
    ) -> None:  # fmt: skip
        self.cloud, self.folder, self.sign, self.ways, self.source = cloud, folder, sign, ways, source
        self._hooks = type(cloud.hooks)
        self._guests: dict[str, Guest] = {}

    def __enter__(self) -> Guests:
        self.cloud.hooks = self._hooks(on_start=self._start, on_stop=self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs afterwards."""
        self.cloud.hooks = self._hooks()
        for guest in self._guests.values():
            guest.pull_the_plug()
        for guest in self._guests.values():
            guest.thread.join(30)

    def running(self) -> list[str]:
        """The instances of which processes live."""
        return [name for name, guest in self._guests.items() if guest.thread.is_alive()]

    def consoles(self) -> str:
        """All that was said on consoles: for messages of failed tests."""
        return "\n".join(f"--- {name}\n{guest.console.read_text()}" for name, guest in self._guests.items())

    def guest(self, vm: Any) -> Guest:
        """What runs for an instance."""
        return Guest(self, vm)

    def _start(self, vm: Any) -> None:
        guest = self.guest(vm)
        self._guests[guest.name] = guest
        guest.thread.start()

    def _stop(self, vm: Any) -> None:
        if name_of(vm) in self._guests:
            self._guests[name_of(vm)].press_the_button()


def name_of(vm: Any) -> str:
    """What a VM is called here: its id, of which the last part where it is a path."""
    return str(vm.id).rpartition("/")[2]


class Guest:
    """One VM that runs. `thread` lives as long as its processes; `by_itself`: it has switched itself off, and nobody
    had pressed its button."""

    #: From the button to the plug.
    grace_s: ClassVar[float] = 6.0

    def __init__(self, host: Guests, vm: Any) -> None:
        self._host, self._vm, self.name = host, vm, name_of(vm)
        self.folder = host.folder / self.name
        self.console = self.folder / "console"
        self.furnish(host.source.files(vm))
        self.console.touch()
        self.thread = threading.Thread(target=self._live, name=self.name, daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._off = False
        self.by_itself = False

    def press_the_button(self) -> None:
        """The guest shall power off; it is made to after a while."""
        with self._lock:
            self._off = True
            if self._process is not None:
                self.ask_to_end(self._process)
                plug = threading.Timer(self.grace_s, self._process.kill)
                plug.daemon = True
                plug.start()

    def pull_the_plug(self) -> None:
        """It is off, whatever it does."""
        with self._lock:
            self._off = True
            if self._process is not None:
                self._process.kill()

    # what kind of VM it is

    def furnish(self, files: Mapping[str, bytes]) -> None:
        """Make its folder, and the files on its disk."""
        _make_disk(self.folder)
        for path, content in files.items():
            _write(self.folder / "lib" / path, content)

    def program(self) -> list[str]:
        """What is started for it, in the network that is the VM's."""
        machine = [sys.executable, "-P", "-m", "tests.fakes.guests.machine", str(self.folder)]
        nft = str(shutil.which("nft", path=PROGRAMS))
        return ["unshare", *(f for f in _NAMESPACES if f != "--net"), *machine, nft, self._host.source.name]

    def ask_to_end(self, process: subprocess.Popen[bytes]) -> None:
        """Press its button."""
        if process.stdin is not None:
            process.stdin.close()

    def hear(self, line: bytes) -> None:
        """What comes from its console."""
        with self.console.open("ab", buffering=0) as console:
            console.write(line)
        self._host.cloud.write_console(self.name, line.decode(errors="replace"))

    # how it lives

    def _live(self) -> None:
        try:
            listeners: dict[Place, socket.socket] = {}
            starting = threading.Thread(target=self._power_on, args=(listeners,))
            starting.start()
            starting.join()
            self._serve(listeners)
        except Exception as error:
            self._host.cloud.bugs.append(f"guest {self.name}: {type(error).__name__}: {error}")

    def _power_on(self, listeners: dict[Place, socket.socket]) -> None:
        """In a thread of its own, whose network is the VM's: what it starts is in there, what it listens on too."""
        listeners.update(lay_out(self._host.source.address(self._vm), self._host.ways, PROGRAMS))
        with self._lock:
            if self._off:
                return
            self._process = subprocess.Popen(
                self.program(), cwd=ROOT,
                env={"PATH": PROGRAMS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _serve(self, listeners: Mapping[Place, socket.socket]) -> None:
        """Be its metadata service and its network until it is off."""
        cloud = self._host.cloud
        servers = [
            _Way(listener, self._host.ways[place]) if place in self._host.ways
            else self._host.source.metadata(listener, self._vm, self._host.sign, cloud)
            for place, listener in listeners.items()
        ]  # fmt: skip
        threads = [threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in servers]
        for thread in threads:
            thread.start()
        if self._process is not None:
            self._watch(self._process, cloud)
        for server in servers:
            server.shutdown()
            server.server_close()

    def _watch(self, process: subprocess.Popen[bytes], cloud: Any) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.hear(line)
        self.by_itself = process.wait() == 0 and not self._off
        with self._lock:
            if process.stdin is not None:
                process.stdin.close()
        if self.by_itself:
            cloud.guest_shutdown(self.name)


class _Way(ThreadingTCPServer):
    """From a socket in a VM's network to a place on this host."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, target: Place) -> None:
        super().__init__(listener.getsockname()[:2], _Connection, bind_and_activate=False)
        self.socket.close()
        self.socket, self.target = listener, target


class _Connection(BaseRequestHandler):
    server: _Way

    def handle(self) -> None:
        try:
            beyond = socket.create_connection(self.server.target, 10)
        except OSError:
            return  # nobody listens there now: it is closed before anything was said
        with beyond:
            beyond.settimeout(None)
            back = threading.Thread(target=_pump, args=(beyond, self.request), daemon=True)
            back.start()
            _pump(self.request, beyond)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """All that comes, until one end is closed."""
    try:
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            _hang_up(end)


def _hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _make_disk(folder: Path) -> None:
    """What an image has where `machine` looks for it. The agent's user is there: making it is not tried here."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib").chmod(0o755)
    for name, own in (("passwd", _USER), ("group", _GROUP)):
        # this host may be a control VM, whose dispatcher has a user of that name
        host = (line for line in Path("/etc", name).read_text().splitlines() if not line.startswith("cloud-dispatch:"))
        (folder / name).write_text("\n".join([*host, own, ""]))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)
