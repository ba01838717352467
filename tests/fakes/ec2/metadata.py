"""An instance's metadata service, version 2: nothing is told without a token, and a token goes no further than the
instance's limit of hops.

What it says is made from the fake's own record at each request, in the versions of the tree that it has; folders list
what is in them. A path that EC2 may have and this has not is entered as not modelled.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.ec2.records import Instance, moment

_TOKEN = "/latest/api/token"
#: The names that the tree goes by: cloud-init looks for the newest of those that it knows.
VERSIONS = ("latest", "2021-03-23", "2018-09-24", "2016-09-02", "2009-04-04")
_TTL, _HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
_LONGEST_S = 21_600
#: Signs an identity document: base64 in lines of a message with the document in it.
Sign = Callable[[bytes], str]
#: What there is below a version, each with what it says now; None where EC2 says 404 at the moment.
Told = dict[str, Callable[[], str | bytes | None]]


def document(vm: Instance) -> bytes:
    """The instance identity document."""
    said = {
        "accountId": vm.reservation.owner,
        "architecture": vm.fixed["Architecture"],
        "availabilityZone": vm.zone,
        "billingProducts": None,
        "imageId": vm.fixed["ImageId"],
        "instanceId": vm.id,
        "instanceType": vm.type_name,
        "kernelId": None,
        "pendingTime": _written(vm.launched_ms),
        "privateIp": vm.held["PrivateIpAddress"],
        "ramdiskId": None,
        "region": vm.zone[:-1],
        "version": "2017-09-30",
    }
    return json.dumps(said, indent=2).encode()


def told(vm: Instance, sign: Sign) -> Told:
    """What its instance is told."""
    return {
        **_network(vm),
        "user-data": lambda: vm.user_data or None,
        "dynamic/instance-identity/document": lambda: document(vm),
        "dynamic/instance-identity/rsa2048": lambda: sign(document(vm)),
        "meta-data/instance-id": lambda: vm.id,
        "meta-data/ami-launch-index": lambda: str(vm.reservation.instances.index(vm)),
        "meta-data/hostname": lambda: str(vm.held["PrivateDnsName"]),
        "meta-data/local-hostname": lambda: str(vm.held["PrivateDnsName"]),
        "meta-data/ami-id": lambda: str(vm.fixed["ImageId"]),
        "meta-data/instance-type": lambda: vm.type_name,
        "meta-data/instance-life-cycle": lambda: vm.market,
        "meta-data/local-ipv4": lambda: vm.interfaces[0].address,
        "meta-data/mac": lambda: vm.interfaces[0].mac,
        "meta-data/placement/availability-zone": lambda: vm.zone,
        "meta-data/placement/region": lambda: vm.zone[:-1],
        "meta-data/spot/instance-action": lambda: (
            json.dumps({"action": vm.notice.action, "time": _written(vm.notice.at_ms)}) if vm.notice else None
        ),
        "meta-data/spot/termination-time": lambda: _written(vm.notice.at_ms) if vm.notice else None,
        "meta-data/events/recommendations/rebalance": lambda: (
            json.dumps({"noticeTime": _written(vm.rebalance_ms)}) if vm.rebalance_ms else None
        ),
    }


def _network(vm: Instance) -> Told:
    """Of its interface, as cloud-init makes a configuration of it."""
    interface = vm.interfaces[0]
    below = f"meta-data/network/interfaces/macs/{interface.mac}"
    return {
        f"{below}/device-number": lambda: "0",
        f"{below}/interface-id": lambda: interface.id,
        f"{below}/local-ipv4s": lambda: interface.address,
        f"{below}/mac": lambda: interface.mac,
        f"{below}/subnet-id": lambda: interface.subnet,
    }


def listed(told: Told, folder: str) -> str | None:
    """What is in a folder (its path with a `/` at the end), a line each; None where there is no such folder."""
    names: dict[str, None] = {}
    for path, say in told.items():
        if path.startswith(folder) and say() is not None:
            name, deeper, _ = path.removeprefix(folder).partition("/")
            names[name + deeper] = None
    return "\n".join(names) if names else None


def _written(ms: int) -> str:
    return moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


class Metadata(ThreadingHTTPServer):
    """One instance's, on a socket that listens already. `missing` gets the paths that are not modelled."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, vm: Instance, sign: Sign, missing: Callable[[str], None]) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.told, self.missing, self._vm = told(vm, sign), missing, vm
        self.tokens: dict[str, float] = {}
        self._numbers = itertools.count(1)

    @property
    def hops(self) -> int:
        """How far the answer with a token goes."""
        hops: int = self._vm.fixed["MetadataOptions"]["HttpPutResponseHopLimit"]
        return hops

    def new_token(self, seconds: int) -> str:
        """Good for so long."""
        token = f"AQAEA{next(self._numbers):08d}=="
        self.tokens[token] = time.monotonic() + seconds
        return token


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Metadata

    def do_PUT(self) -> None:
        # For as long as there is this connection: what is sent again, because it was lost, goes no further either.
        self.connection.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, self.server.hops)
        seconds = self.headers.get(_TTL, "")
        if self.headers.get("X-Forwarded-For"):
            self._say(403)
        elif self.path != _TOKEN or not seconds.isdecimal() or not 1 <= int(seconds) <= _LONGEST_S:
            self._say(400)
        else:
            self._say(200, self.server.new_token(int(seconds)), **{_TTL: seconds})

    def do_GET(self) -> None:
        version, _, path = self.path.removeprefix("/").partition("/")
        told = self.server.told if version in VERSIONS else {}
        if self.server.tokens.get(self.headers.get(_HEADER, ""), 0) < time.monotonic():
            self._say(401)
        elif path in told:
            text = told[path]()
            self._say(404 if text is None else 200, text or "")
        elif (names := listed(told, f"{path.rstrip('/')}/")) is not None:
            self._say(200, names)
        else:
            self.server.missing(f"metadata: {self.path}")
            self._say(404)

    def _say(self, status: int, text: str | bytes = "", **headers: str) -> None:
        body = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...
