"""What a project holds: instances, disks, addresses, operations, and how answers tell of them."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

from tests.fakes.gce.catalogue import MachineType
from tests.fakes.google.model import document
from tests.fakes.google.schemas import Rendered
from tests.fakes.shown import Shown

LINK = "https://www.googleapis.com/compute/v1/"
_PACIFIC = timezone(timedelta(hours=-7))


class Status(StrEnum):
    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"


#: States in which it holds machine quota and capacity.
HOLDING = frozenset({Status.PROVISIONING, Status.STAGING, Status.RUNNING, Status.STOPPING})


def stamp(ms: int) -> str:
    """As Compute Engine writes moments: not in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone(_PACIFIC).isoformat(timespec="milliseconds")


def fingerprint(value: Any) -> str:
    """Of labels, metadata, tags: base64, and another for any other value."""
    digest = hashlib.blake2s(json.dumps(value, sort_keys=True).encode(), digest_size=8).digest()
    return b64encode(digest, altchars=b"-_").decode()


@dataclass(eq=False, slots=True)
class View:
    """What changes about an instance. Never changed itself: others are made. None stands for one that is gone."""

    status: Status
    labels: dict[str, str]
    started_ms: int = 0
    stopped_ms: int = 0
    ends_ms: int = 0
    message: str = ""
    rendered: Rendered | None = None


@dataclass(eq=False, slots=True)
class Disk:
    """A persistent disk. `user`: the name of the instance that it is attached to."""

    id: int
    name: str
    zone: str
    gb: int
    kind: str
    image: str
    created_ms: int
    labels: dict[str, str]
    auto_delete: bool = True
    user: str = ""

    @property
    def number(self) -> str:
        """That Google gives it."""
        return str(6_000_000_000_000_000_000 + self.id)


@dataclass(eq=False, slots=True)
class Address:
    """A static external address of a region. `user`: who has it, as zones/ZONE/instances/NAME."""

    id: int
    name: str
    region: str
    address: str
    created_ms: int
    labels: dict[str, str]
    user: str = ""

    @property
    def number(self) -> str:
        """That Google gives it."""
        return str(5_000_000_000_000_000_000 + self.id)


@dataclass(eq=False, slots=True)
class Instance:
    """A VM. `fixed` are the members of its resource that never change; `shown` is what lists show, None once gone."""

    number: int
    project: str
    project_number: int
    zone: str
    name: str
    kind: MachineType
    spot: bool
    fixed: dict[str, Any]
    metadata: dict[str, str]
    created_ms: int
    shown: Shown[View | None]
    used: dict[str, int]
    disks: list[Disk]
    request_id: str = ""
    delete_at_end: bool = False  # instanceTerminationAction
    limit_ms: int = 0  # maxRunDuration
    protected: bool = False
    running_ms: int = 0
    ended_ms: int = 0
    preempted: bool = False
    notice_ms: int = 0
    deleting: bool = False
    maintenance: str = "NONE"
    console: str = ""
    runs: int = 0  # timers of an earlier run don't end this one

    @property
    def id(self) -> str:
        """The number that Google gives it."""
        return str(4_000_000_000_000_000_000 + self.number * 7919)

    @property
    def view(self) -> View | None:
        """What it really is; None once it is gone."""
        return self.shown.true

    @property
    def status(self) -> str:
        """Its status, "" once it is gone."""
        return self.view.status.value if self.view else ""

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.view.labels if self.view else {}

    @property
    def type_name(self) -> str:
        """Its machine type."""
        return self.kind.name

    @property
    def market(self) -> str:
        """As faults and settings say it."""
        return "spot" if self.spot else "on-demand"

    @property
    def region(self) -> str:
        """Where its quotas are."""
        return self.zone.rpartition("-")[0]

    @property
    def path(self) -> str:
        """Its name below a project's root."""
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    @property
    def address(self) -> str:
        """Its internal address."""
        found: str = self.fixed["networkInterfaces"][0]["networkIP"]
        return found

    def resource(self, view: View) -> dict[str, Any]:
        """As the schema Instance has it."""
        told = {**self.fixed, "status": view.status.value, "labelFingerprint": fingerprint(view.labels)}
        if view.labels:
            told["labels"] = view.labels
        if view.message:
            told["statusMessage"] = view.message
        if view.started_ms:
            told["lastStartTimestamp"] = stamp(view.started_ms)
        if view.stopped_ms:
            told["lastStopTimestamp"] = stamp(view.stopped_ms)
        if view.ends_ms:
            told["resourceStatus"] = {"scheduling": {"terminationTimestamp": stamp(view.ends_ms)}}
        return told

    def rendered(self, view: View) -> Rendered:
        """The same as JSON, checked and made once."""
        if view.rendered is None:
            resource = self.resource(view)
            document("compute.v1").answers.check("Instance")(resource)
            view.rendered = Rendered("Instance", json.dumps(resource))
        return view.rendered


@dataclass(eq=False, slots=True)
class Operation:
    """Something that goes on. `scope` is "zones/..." or "regions/..."."""

    number: int
    project: str
    scope: str
    kind: str
    target: str
    target_id: str
    user: str
    inserted_ms: int
    request_id: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    http_status: int = 0
    message: str = ""

    @property
    def name(self) -> str:
        """Unique in its scope."""
        prefix = "systemevent" if self.kind.startswith("compute.") else "operation"
        return f"{prefix}-{self.inserted_ms}-{self.number:012x}"

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return bool(self.ended_ms)

    @property
    def resource(self) -> dict[str, Any]:
        """As the schema Operation has it."""
        place, _, _ = self.scope.partition("/")
        status = "DONE" if self.done else "RUNNING" if self.started_ms else "PENDING"
        told: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(7_000_000_000_000_000_000 + self.number),
            "name": self.name,
            "operationType": self.kind,
            "targetLink": f"{LINK}{self.target}",
            "targetId": self.target_id,
            "status": status,
            "user": self.user,
            "progress": 100 if self.done else 0,
            "insertTime": stamp(self.inserted_ms),
            "selfLink": f"{LINK}projects/{self.project}/{self.scope}/operations/{self.name}",
            place[:-1]: f"{LINK}projects/{self.project}/{self.scope}",
        }
        if self.request_id:
            told["clientOperationId"] = self.request_id
        if self.started_ms:
            told["startTime"] = stamp(self.started_ms)
        if self.done:
            told["endTime"] = stamp(self.ended_ms)
        if self.message:
            told["statusMessage"] = self.message
        if self.errors:
            words = {403: "FORBIDDEN", 503: "SERVICE UNAVAILABLE", 400: "BAD REQUEST", 409: "CONFLICT"}
            told["error"] = {"errors": self.errors}
            told["httpErrorStatusCode"] = self.http_status
            told["httpErrorMessage"] = words.get(self.http_status, "INTERNAL SERVER ERROR")
        return told
