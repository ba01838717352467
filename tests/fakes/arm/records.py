"""What a subscription holds: VMs, and what comes with them. Owns what is shown when."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tests.fakes.arm.catalogue import Size
from tests.fakes.shown import Shown


class Phase(StrEnum):
    """provisioningState; GONE is never told."""

    CREATING = "Creating"
    UPDATING = "Updating"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETING = "Deleting"
    GONE = "Gone"


class Power(StrEnum):
    """PowerState/... of the instance view; NONE is left out."""

    NONE = ""
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    DEALLOCATING = "deallocating"
    DEALLOCATED = "deallocated"


#: Powers that cost money: a VM whose guest has shut down is billed on.
BILLED = frozenset({Power.RUNNING, Power.STOPPED})


@dataclass(frozen=True, slots=True)
class Condition:
    """What changes about a VM, tags apart."""

    phase: Phase
    power: Power
    code: str = ""
    message: str = ""

    @property
    def statuses(self) -> list[dict[str, str]]:
        """Those of the instance view."""
        code = f"ProvisioningState/{self.phase.value.lower()}" + (f"/{self.code}" if self.code else "")
        level = "Error" if self.phase is Phase.FAILED else "Info"
        told = [{"code": code, "level": level, "displayStatus": _display(self)}]
        if self.message:
            told[0]["message"] = self.message
        if self.power:
            told.append({"code": f"PowerState/{self.power}", "level": "Info", "displayStatus": f"VM {self.power}"})
        return told


def _display(condition: Condition) -> str:
    return {
        Phase.SUCCEEDED: "Provisioning succeeded", Phase.FAILED: "Provisioning failed",
    }.get(condition.phase, condition.phase.value)  # fmt: skip


def moment(ms: int) -> str:
    """Epoch ms as Azure writes it."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0+00:00"


@dataclass(eq=False, slots=True)
class Part:
    """A disk, an interface or an address. Without `holder` nobody uses it, and it costs money."""

    kind: str  # as Microsoft.Compute/disks
    id: str
    location: str
    body: dict[str, Any]  # all that is told but id, name, type, location and tags
    tags: dict[str, str]
    made_ms: int
    holder: str = ""  # id of the VM, or of the interface
    dies: bool = False  # with its holder

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def document(self) -> dict[str, Any]:
        told = {"id": self.id, "name": self.name, "type": self.kind, "location": self.location, **self.body}
        return {**told, "tags": self.tags} if self.tags else told


@dataclass(eq=False, slots=True)
class Event:
    """A scheduled event; only Preempt is made."""

    id: str
    at_ms: int
    status: str = "Scheduled"


@dataclass(eq=False, slots=True)
class Vm:
    """A virtual machine. `properties` is what a GET tells of the request, with what Azure adds."""

    id: str
    subscription: str
    group: str
    name: str
    location: str
    zone: str
    size: Size
    spot: bool
    evict_deletes: bool
    max_price: float
    vm_id: str
    number: int
    properties: dict[str, Any]
    asked: dict[str, Any]  # the body of the PUT
    around: dict[str, Any]  # zones, identity, plan
    custom_data: bytes
    user_data: str
    condition: Shown[Condition]
    tags: Shown[dict[str, str]]
    made_ms: int
    address: str  # private
    image: str = ""
    running_ms: int = 0
    ended_ms: int = 0
    console: str = ""
    hidden_ms: int = 0
    event: Event | None = None
    etag: int = 1
    creation: str = ""  # id of the operation that makes it
    counted: bool = True
    cache: dict[Any, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.id.lower()

    @property
    def phase(self) -> Phase:
        return self.condition.true.phase

    @property
    def power(self) -> Power:
        return self.condition.true.power

    @property
    def place(self) -> str:
        """The zone as faults and capacities name it."""
        return f"{self.location}-{self.zone}" if self.zone else self.location

    @property
    def priority(self) -> str:
        return "Spot" if self.spot else "Regular"

    @property
    def market(self) -> str:
        """As `domain.offering.Market` has it."""
        return "spot" if self.spot else "on-demand"


@dataclass(eq=False, slots=True)
class Operation:
    """An asynchronous operation."""

    id: str
    subscription: str
    location: str
    began_ms: int
    status: str = "InProgress"
    error: dict[str, Any] | None = None
    ended_ms: int = 0

    @property
    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = {"startTime": moment(self.began_ms), "status": self.status, "name": self.id}
        if self.ended_ms:
            told["endTime"] = moment(self.ended_ms)
        if self.error:
            told["error"] = self.error
        return told
