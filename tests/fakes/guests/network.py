"""The network of a VM: `lo`, with the addresses that it reaches, and a wire to a network in which the metadata service
listens: its answers come from outside, so that for what the VM forwards they have a hop more to go."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterable

from tests.fakes.guests import METADATA

#: An address and port, as (host, port).
Place = tuple[str, int]
_LIBC = ctypes.CDLL(None, use_errno=True)
_NETWORK = 0x4000_0000


def lay_out(address: str, places: Iterable[Place], path: str) -> dict[Place, socket.socket]:
    """Call it in a thread that does nothing else: its network is the VM's from then on, and what it starts is in there.
    What listens at the places and at the metadata service's comes back. `path`: where `ip` is."""
    beyond = _new_network()
    try:
        inside = _new_network()
        try:
            _enter(beyond)
            _ip(path, "link set lo up", "link add wire type veth peer name eth0",
                f"link set eth0 netns /proc/{os.getpid()}/fd/{inside}", "link set wire up",
                f"addr add {METADATA}/32 dev wire", f"route add {address}/32 dev wire",
                f"route add default via {address} dev wire")  # fmt: skip
            listeners = {(METADATA, 80): socket.create_server((METADATA, 80))}
            _enter(inside)
        finally:
            os.close(inside)
    finally:
        os.close(beyond)
    _ip(path, "link set lo up", f"addr add {address}/32 dev eth0", "link set eth0 up",
        f"route add {METADATA}/32 dev eth0", *(f"addr add {name}/32 dev lo" for name, _ in places))  # fmt: skip
    return {**listeners, **{place: socket.create_server(place) for place in places}}


def _new_network() -> int:
    _done(_LIBC.unshare(_NETWORK))
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter(network: int) -> None:
    _done(_LIBC.setns(network, _NETWORK))


def _done(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "no network of its own")


def _ip(path: str, *commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, env={"PATH": path})
