"""What the service manager is told, as it arrives at its socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cloud_dispatch.adapters.service_manager import ALIVE, READY, ServiceManager, reloading, status


def test_its_words_arrive_together(tmp_path: Path) -> None:
    """At a path, and at a name that is in no folder; the words of a status are one line."""
    for address in (str(tmp_path / "notify"), f"@cloud-dispatch-test-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
            there.bind("\0" + address[1:] if address.startswith("@") else address)
            there.settimeout(5)
            manager = ServiceManager(address)
            manager.tell(READY, status("serving\nat 10.0.0.5"))
            assert there.recv(4096) == b"READY=1\nSTATUS=serving at 10.0.0.5"
            manager.tell(*reloading(17))
            assert there.recv(4096) == b"RELOADING=1\nMONOTONIC_USEC=17"


def test_nobody_is_told_where_nobody_listens(tmp_path: Path) -> None:
    for address in ("", "vsock:2:1234", str(tmp_path / "nobody")):
        ServiceManager(address).tell(ALIVE)


def test_what_it_says_is_for_this_process_alone() -> None:
    """What the dispatcher starts does not find the manager; a watchdog for another process is not ours."""
    environment = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "7", "HOME": "/"}
    assert ServiceManager.take(dict(environment), 8) == ServiceManager("/run/notify", None)
    taken = ServiceManager.take(environment, 7)
    assert (taken.address, taken.watchdog_s, taken.pulse_s) == ("/run/notify", 90.0, 30.0)
    assert environment == {"HOME": "/"}
    assert ServiceManager.take({}, 7) == ServiceManager() == ServiceManager.take({"WATCHDOG_USEC": "0"}, 7)
    assert ServiceManager().pulse_s is None
