"""How the VMs of each cloud learn who they are: what they are told by a service, and what is on their disk."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from dataclasses import dataclass
from socketserver import ThreadingTCPServer
from typing import Any

#: Signs a document that says who a VM is.
Sign = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class Source:
    """A cloud's. `name` is the one that `machine` knows, `files` are by their path below /var/lib."""

    name: str
    address: Callable[[Any], str]
    metadata: Callable[[socket.socket, Any, Sign, Any], ThreadingTCPServer]
    files: Callable[[Any], dict[str, bytes]] = lambda vm: {}


def _ec2(listener: socket.socket, vm: Any, sign: Sign, cloud: Any) -> ThreadingTCPServer:
    from tests.fakes.ec2.metadata import Metadata

    return Metadata(listener, vm, sign, cloud.unmodelled.append)


def _azure(listener: socket.socket, vm: Any, sign: Sign, cloud: Any) -> ThreadingTCPServer:
    from tests.fakes.arm.metadata import Metadata

    return Metadata(listener, vm, sign, cloud)


def _gce(listener: socket.socket, vm: Any, sign: Sign, cloud: Any) -> ThreadingTCPServer:
    from tests.fakes.gce.metadata import Metadata

    return Metadata(listener, vm, cloud.clock.now, cloud.unmodelled.append)


EC2 = Source("ec2", lambda vm: str(vm.held["PrivateIpAddress"]), _ec2)
AZURE = Source(
    "azure", lambda vm: str(vm.address), _azure,
    lambda vm: {"waagent/CustomData": base64.b64encode(vm.custom_data)},
)  # fmt: skip
GCE = Source("gce", lambda vm: str(vm.address), _gce)
