"""An instance's metadata service, version 1: nothing is told without the header that no browser or proxy sends.

What it says is made from the fake's own record at each request. A path that Google may have and this has not is entered
as not modelled.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.gce.identity import identity_token
from tests.fakes.gce.records import Instance

ROOT = "/computeMetadata/v1/"
_FLAVOR = "Google"
_MOST_WAIT_S = 3600.0
_POLL_S = 0.02
#: What a path says now, with the parameters of the query; None where Google says 404.
Say = Callable[[Mapping[str, str]], str | None]


class Missing(Exception):
    """A parameter that the path needs is not given."""


def told(vm: Instance, now: Callable[[], int]) -> dict[str, Say]:
    """What there is below the root, attributes apart."""
    scheduling, interface = vm.fixed["scheduling"], vm.fixed["networkInterfaces"][0]
    outside = interface.get("accessConfigs", [{}])[0].get("natIP")
    account = next(iter(vm.fixed.get("serviceAccounts", ())), None)
    email = account["email"] if account else None
    scopes = "\n".join(account["scopes"]) if account else None
    image = vm.disks[0].image if vm.disks else None
    return {
        "project/project-id": lambda _: vm.project,
        "project/numeric-project-id": lambda _: str(vm.project_number),
        "instance/id": lambda _: vm.id,
        "instance/name": lambda _: vm.name,
        "instance/hostname": lambda _: f"{vm.name}.{vm.zone}.c.{vm.project}.internal",
        "instance/zone": lambda _: f"projects/{vm.project_number}/zones/{vm.zone}",
        "instance/machine-type": lambda _: f"projects/{vm.project_number}/machineTypes/{vm.type_name}",
        "instance/image": lambda _: image,
        "instance/preempted": lambda _: "TRUE" if vm.preempted else "FALSE",
        "instance/maintenance-event": lambda _: vm.maintenance,
        "instance/scheduling/preemptible": lambda _: _shown(scheduling["preemptible"]),
        "instance/scheduling/automatic-restart": lambda _: _shown(scheduling["automaticRestart"]),
        "instance/scheduling/on-host-maintenance": lambda _: str(scheduling["onHostMaintenance"]),
        "instance/network-interfaces/0/ip": lambda _: vm.address,
        "instance/network-interfaces/0/access-configs/0/external-ip": lambda _: outside,
        "instance/attributes/": lambda _: "".join(f"{name}\n" for name in sorted(vm.metadata)),
        "instance/service-accounts/": lambda _: f"{email}/\ndefault/\n" if email else "",
        "instance/service-accounts/default/email": lambda _: email,
        "instance/service-accounts/default/scopes": lambda _: scopes,
        "instance/service-accounts/default/token": lambda _: _token(vm) if email else None,
        "instance/service-accounts/default/identity": lambda query: _identity(vm, query, now()) if email else None,
    }


def _shown(said: bool) -> str:
    return "TRUE" if said else "FALSE"


def _token(vm: Instance) -> str:
    """Of the VM's account; the fake's services do not know it."""
    return json.dumps({"access_token": f"ya29.of-{vm.id}", "expires_in": 3599, "token_type": "Bearer"})


def _identity(vm: Instance, query: Mapping[str, str], now_ms: int) -> str:
    if not query.get("audience"):
        raise Missing
    return identity_token(vm, query["audience"], now_ms, full=query.get("format") == "full")


class Metadata(ThreadingHTTPServer):
    """One instance's, on a socket that listens already. `missing` gets the paths that are not modelled."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, listener: socket.socket, vm: Instance, now: Callable[[], int], missing: Callable[[str], None]
    ) -> None:  # fmt: skip
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.missing, self._vm, self._told = missing, vm, told(vm, now)

    def find(self, path: str) -> Say | None:
        """What answers for this path; None where nothing does."""
        name = path.removeprefix("instance/attributes/")
        if name and name != path:
            return lambda _: self._vm.metadata.get(name)
        return self._told.get(path)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Metadata

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        if self.headers.get("Metadata-Flavor") != _FLAVOR or self.headers.get("X-Forwarded-For"):
            self._say(403)
            return
        say = self.server.find(target.path.removeprefix(ROOT)) if target.path.startswith(ROOT) else None
        if say is None or query.keys() & {"recursive", "alt"}:
            self.server.missing(f"metadata: {self.path}")
            self._say(404)
            return
        try:
            found = self._changed(say, query) if query.get("wait_for_change") == "true" else say(query)
        except Missing:
            self._say(400)
        else:
            self._say(404 if found is None else 200, found or "")

    def _changed(self, say: Say, query: Mapping[str, str]) -> str | None:
        """What it says once that is something else than at first, or than the tag stands for; or after a while."""
        first = query.get("last_etag") or _tag(say(query))
        until = time.monotonic() + min(float(query.get("timeout_sec", _MOST_WAIT_S)), _MOST_WAIT_S)
        while _tag(say(query)) == first and time.monotonic() < until:
            time.sleep(_POLL_S)
        return say(query)

    def _say(self, status: int, text: str = "") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/text")
        self.send_header("Metadata-Flavor", _FLAVOR)
        self.send_header("ETag", _tag(text))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def _tag(text: str | None) -> str:
    return hashlib.blake2s((text or "").encode(), digest_size=8).hexdigest()
