"""A VM's metadata service: nothing is told without the header, what was forwarded, or without a version.

What it says is made from the fake's own record at each request. A path that Azure may have and this has not is entered
as not modelled.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.arm.cloud import Cloud
from tests.fakes.arm.records import Event, Vm

#: How long an attested document is good.
_GOOD_S = 6 * 3600
#: Signs a document: base64 of a message with the document in it.
Sign = Callable[[bytes], str]


class Refused(Exception):
    """The answer is this status, with these words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def compute(vm: Vm) -> dict[str, Any]:
    """What `/metadata/instance/compute` tells."""
    tags, image = vm.tags.true, vm.properties["storageProfile"].get("imageReference") or {}
    return {
        "azEnvironment": "AzurePublicCloud",
        "evictionPolicy": vm.properties.get("evictionPolicy", "Deallocate") if vm.spot else "",
        "location": vm.location,
        "name": vm.name,
        "offer": image.get("offer", ""),
        "osProfile": {
            "adminUsername": vm.properties["osProfile"]["adminUsername"],
            "computerName": vm.properties["osProfile"]["computerName"],
            "disablePasswordAuthentication": "true",
        },
        "osType": "Linux",
        "placementGroupId": "",
        "priority": "Spot" if vm.spot else "",
        "provider": "Microsoft.Compute",
        "publisher": image.get("publisher", ""),
        "resourceGroupName": vm.group,
        "resourceId": vm.id,
        "sku": image.get("sku", ""),
        "subscriptionId": vm.subscription,
        "tags": ";".join(f"{name}:{value}" for name, value in tags.items()),
        "tagsList": [{"name": name, "value": value} for name, value in tags.items()],
        "userData": vm.user_data,
        "version": image.get("exactVersion", ""),
        "vmId": vm.vm_id,
        "vmScaleSetName": "",
        "vmSize": vm.size.name,
        "zone": vm.zone,
    }


def network(vm: Vm) -> dict[str, Any]:
    """What `/metadata/instance/network` tells."""
    address = {"privateIpAddress": vm.address, "publicIpAddress": ""}
    ipv4 = {"ipAddress": [address], "subnet": [{"address": "10.0.0.0", "prefix": "8"}]}
    return {"interface": [{"ipv4": ipv4, "ipv6": {"ipAddress": []}, "macAddress": "000D3A000001"}]}


def document(vm: Vm, nonce: str, now_ms: int) -> bytes:
    """What is attested."""
    created = datetime.fromtimestamp(now_ms // 1000, UTC)
    ends = datetime.fromtimestamp(now_ms // 1000 + _GOOD_S, UTC)
    stamps = {"createdOn": _stamp(created), "expiresOn": _stamp(ends)}
    image = vm.properties["storageProfile"].get("imageReference") or {}
    return json.dumps({
        "licenseType": "", "nonce": nonce or created.strftime("%Y%m%d-%H%M%S"),
        "plan": {"name": "", "product": "", "publisher": ""}, "sku": image.get("sku", ""),
        "subscriptionId": vm.subscription, "timeStamp": stamps, "vmId": vm.vm_id,
    }).encode()  # fmt: skip


def _stamp(moment: datetime) -> str:
    return moment.strftime("%m/%d/%y %H:%M:%S -0000")


def event_told(vm: Vm, event: Event) -> dict[str, Any]:
    """A scheduled event; its moment is left out once it has started."""
    due = datetime.fromtimestamp(event.at_ms // 1000, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    return {
        "EventId": event.id, "EventStatus": event.status, "EventType": "Preempt", "ResourceType": "VirtualMachine",
        "Resources": [vm.name], "NotBefore": due if event.status == "Scheduled" else "", "Description": "",
        "EventSource": "Platform", "DurationInSeconds": -1,
    }  # fmt: skip


class Metadata(ThreadingHTTPServer):
    """One VM's, on a socket that listens already."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, vm: Vm, sign: Sign, cloud: Cloud) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.vm, self.sign, self.cloud = vm, sign, cloud

    def answer(self, path: str, query: Mapping[str, str], headers: Mapping[str, str], target: str) -> str:
        """The text of what is told there."""
        if path == "identity/oauth2/token":
            return self._token(target, headers)
        if path == "attested/document":
            said = document(self.vm, query.get("nonce", ""), self.cloud.clock.now())
            return json.dumps({"encoding": "pkcs7", "signature": self.sign(said)})
        if path == "scheduledevents":
            event = self.vm.event
            events = [event_told(self.vm, event)] if event else []
            return json.dumps({"DocumentIncarnation": self.vm.etag + len(events), "Events": events})
        if path.split("/")[0] == "instance":
            return self._instance(path.split("/")[1:], query)
        self.cloud.unmodelled.append(f"metadata: {target}")
        raise Refused(404, "Not found")

    def _instance(self, words: list[str], query: Mapping[str, str]) -> str:
        """A part of the document: branches are JSON, leaves are text."""
        found: Any = {"compute": compute(self.vm), "network": network(self.vm)}
        for word in words:
            try:
                found = found[int(word)] if isinstance(found, list) else found[word]
            except (KeyError, IndexError, ValueError, TypeError):
                self.cloud.unmodelled.append(f"metadata: instance/{'/'.join(words)}")
                raise Refused(404, "Not found") from None
        leaf = not isinstance(found, dict | list)
        if leaf is not (query.get("format", "json") == "text"):
            raise Refused(400, "Bad request: leaves are told as text alone, and branches as JSON")
        return str(found) if leaf else json.dumps(found)

    def _token(self, target: str, headers: Mapping[str, str]) -> str:
        """Of an identity of the VM's: the system's, or one of those that it was given."""
        if not self.vm.around.get("identity"):
            raise Refused(400, json.dumps({"error": "invalid_request", "error_description": "Identity not found"}))
        with self.cloud.lock:
            status, told = self.cloud.authority.identity(target, headers)
        if status != 200:
            raise Refused(status, json.dumps(told))
        return json.dumps(told)

    def start(self, body: bytes) -> None:
        """Approve events: what they announce happens at once."""
        asked = {one["EventId"] for one in json.loads(body)["StartRequests"]}
        with self.cloud.lock:
            if self.vm.event is not None and self.vm.event.id in asked:
                self.cloud.estate.evict(self.vm)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Metadata

    def do_GET(self) -> None:
        self._guarded(self._get)

    def do_POST(self) -> None:
        self._guarded(self._post)

    def _guarded(self, answer: Callable[[str, dict[str, str]], str]) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            if self.headers.get("Metadata", "").lower() != "true" or self.headers.get("X-Forwarded-For"):
                raise Refused(400, json.dumps({"error": "Bad request. Required metadata header not specified"}))
            if "api-version" not in query:
                raise Refused(400, json.dumps({"error": "Bad request. api-version was not specified"}))
            self._say(200, answer(parts.path.strip("/").removeprefix("metadata/"), query))
        except Refused as refused:
            self._say(refused.status, refused.text)

    def _get(self, path: str, query: dict[str, str]) -> str:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self.server.answer(path, query, headers, self.path)

    def _post(self, path: str, query: dict[str, str]) -> str:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path != "scheduledevents":
            raise Refused(405, "Method not allowed")
        self.server.start(body)
        return ""

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...
