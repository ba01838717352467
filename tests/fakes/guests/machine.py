"""`python -m tests.fakes.guests.machine FOLDER NFT SOURCE`: process 1 of a VM, and what is its image's alone.

`host` starts it in namespaces of its own. It does what cloud-init does of its cloud's data source (asks the metadata
service who it is and what to boot, writes files, runs commands), then waits for the power to go. There is no systemd:
what the user data calls is `systemctl` by name, and knows `poweroff` alone.
"""

from __future__ import annotations

import base64
import email.parser  # noqa: F401  (cloudconfig loads it late, when its folder may be hidden)
import gzip
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from cloud_dispatch_local.cloudconfig import BootFile, parse
from tests.fakes.guests import BIN, METADATA, PATH

#: What a shutdown waits for a service.
_SERVICE_S = 5.0
_SYSTEMCTL = '#!/bin/sh\n[ "$*" = poweroff ] && exec kill -TERM 1\necho "no systemd here for: $*" >&2\nexit 1\n'
_CLOUD_INIT = (
    '#!/bin/sh\n[ "$*" = "query ds.meta_data.imds.compute.name" ] && exec echo NAME\n'
    'echo "no such word here: $*" >&2\nexit 1\n'
)
#: Who it is, what it boots, and what it shall do.
Told = tuple[str, str, bytes]
#: Ignored by the interpreter; programs expect the defaults.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)


class PowerOff(Exception):
    """The guest powered itself off, or somebody pressed the button."""


def furnish(folder: Path) -> None:
    """Cover what of this host is not the image's: state, programs, temporary files, the list of users. The rest of its
    file system can be read."""
    for words in (
        ("--bind", f"{folder}/lib", "/var/lib"),
        ("--bind", f"{folder}/passwd", "/etc/passwd"),
        ("--bind", f"{folder}/group", "/etc/group"),
        ("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"),
    ):
        _mount(*words)
    # What `make setup` has made, of which this runs, may be in a folder for temporary files itself.
    kept, ours = Path("/run/environment"), Path(sys.prefix)
    kept.mkdir()
    _mount("--bind", str(ours), str(kept))
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    if not ours.exists():
        ours.mkdir(parents=True)
        _mount("--bind", str(kept), str(ours))
    _mount("-o", "remount,bind,ro", "/")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def install(nft: str) -> None:
    """The programs that an image has and this host lacks, or has for itself."""
    programs = Path(BIN)
    programs.mkdir()
    (programs / "systemctl").write_text(_SYSTEMCTL)
    (programs / "systemctl").chmod(0o755)
    (programs / "nft").symlink_to(nft)


class Machine:
    """Process 1: runs one boot, collects what nobody else does, ends when the power goes."""

    def __init__(self) -> None:
        self._ended: dict[int, int] = {}
        self._off = ""
        self._awake, alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._turn_off("by the guest"))

    def boot(self, told: Callable[[], Told]) -> None:
        """Returns when the power is off; what still runs then ends with this process."""
        service = None
        try:
            name, image, data = told()
            say(f"{name} boots {image}")
            write(BootFile("/var/lib/cloud/data/instance-id", f"{name}\n".encode()))
            plan = parse((gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode())
            for argv in plan.first:
                self._wait(os.posix_spawnp(argv[0], argv, environment(), setpgroup=0, setsigdef=_DEFAULT_SIGNALS))
            for file in plan.files:
                write(file)
            for argv in plan.commands:
                service = os.posix_spawnp(argv[0], argv, environment(), setpgroup=0, setsigdef=_DEFAULT_SIGNALS)
                self._wait(service)
            say("the boot commands have ended")
            self._wait(0)
        except PowerOff as why:
            say(f"power off {why}")
            self._stop(service)

    def _turn_off(self, why: str) -> None:
        self._off = self._off or why

    def _wait(self, child: int, until: float = 0.0) -> None:
        """Until the child has ended, or the moment has come; PowerOff when the power goes and no moment is given."""
        while True:
            self._reap()
            if self._off and not until:
                raise PowerOff(self._off)
            if child in self._ended or (until and time.monotonic() > until):
                return
            button = [] if self._off else [sys.stdin.fileno()]
            ready, _, _ = select.select([self._awake, *button], [], [], 0.1 if until else None)
            if self._awake in ready:
                os.read(self._awake, 4096)
            elif ready:
                self._turn_off("by its host")

    def _stop(self, service: int | None) -> None:
        """As a shutdown does: ask the service to end, and wait a while."""
        if service is not None and service not in self._ended:
            os.kill(service, signal.SIGTERM)
            self._wait(service, time.monotonic() + _SERVICE_S)

    def _reap(self) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended[ended[0]] = ended[1]
        except ChildProcessError:
            pass


def ec2() -> Told:
    """Who it is, what it boots, and its user data."""
    ask = session()
    return ask("meta-data/instance-id").decode(), ask("meta-data/ami-id").decode(), ask("user-data")


def azure() -> Told:
    """Its custom data are on the disk that a VM of Azure is provisioned from, and stay where the agent of Azure puts
    them. `cloud-init query` knows what the metadata service said of the VM."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://{METADATA}/metadata/instance?api-version=2021-02-01"
    with opener.open(urllib.request.Request(url, headers={"Metadata": "true"}), timeout=10) as answer:
        compute = json.load(answer)["compute"]
    query = Path(BIN, "cloud-init")
    query.write_text(_CLOUD_INIT.replace("NAME", shlex.quote(compute["name"])))
    query.chmod(0o755)
    data = base64.b64decode(Path("/var/lib/waagent/CustomData").read_bytes())
    return compute["vmId"], ":".join(compute[part] for part in ("publisher", "offer", "sku", "version")), data


def gce() -> Told:
    """The same of Google's service, as cloud-init asks it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str) -> bytes:
        url = f"http://{METADATA}/computeMetadata/v1/instance/{path}"
        with opener.open(urllib.request.Request(url, headers={"Metadata-Flavor": "Google"}), timeout=10) as answer:
            found: bytes = answer.read()
        return found

    data = ask("attributes/user-data")
    if b"user-data-encoding" in ask("attributes/"):
        data = base64.b64decode(data)
    return ask("id").decode(), ask("image").decode(), data


#: By the name of the source.
SOURCES: dict[str, Callable[[], Told]] = {"ec2": ec2, "azure": azure, "gce": gce}


def session() -> Callable[[str], bytes]:
    """Asks the metadata service of EC2, version 2."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    header = "X-aws-ec2-metadata-token"

    def ask(path: str, method: str = "GET", **headers: str) -> bytes:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://{METADATA}/latest/{path}", headers=said, method=method)
        with opener.open(request, timeout=10) as answer:
            found: bytes = answer.read()
        return found

    token = ask("api/token", "PUT", **{f"{header}-ttl-seconds": "600"}).decode()
    return lambda path: ask(path, **{header: token})


def write(file: BootFile) -> None:
    """As cloud-init writes: folders as they are needed, all root's."""
    target = Path(file.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    target.write_bytes(file.content)
    target.chmod(file.mode)


def environment() -> dict[str, str]:
    """What cloud-init runs commands with."""
    return {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}


def say(text: str) -> None:
    """A line on the console."""
    sys.stdout.write(f"machine: {text}\n")
    sys.stdout.flush()


def main() -> int:
    os.chdir("/")
    os.umask(0o022)
    furnish(Path(sys.argv[1]))
    install(sys.argv[2])
    Machine().boot(SOURCES[sys.argv[3]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
