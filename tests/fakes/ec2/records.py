"""What a region holds: instances, and what comes with them. Owns what is shown when, and the XML that is kept of it.

An instance is a fixed part, a condition and tags. Changes of the two latter are kept for a while with the moment from
which reads show them: that is eventual consistency, and what a stale read shows. The XML of each part is made once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from tests.fakes.aws.answers import Xml, content_of
from tests.fakes.aws.model import service
from tests.fakes.shown import Shown


class State(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"


CODES = {
    State.PENDING: 0, State.RUNNING: 16, State.SHUTTING_DOWN: 32, State.TERMINATED: 48, State.STOPPING: 64,
    State.STOPPED: 80,
}  # fmt: skip
#: States that hold capacity and quota.
ALIVE = frozenset({State.PENDING, State.RUNNING, State.SHUTTING_DOWN})


def moment(ms: int) -> datetime:
    """Epoch ms as the answers want it; whole seconds, as EC2 tells them."""
    return datetime.fromtimestamp(ms // 1000, UTC)


def instance_xml(values: dict[str, Any]) -> str:
    """Members of an instance as XML."""
    return content_of(service("ec2").shape("Instance"), values)


@dataclass(frozen=True, slots=True)
class Condition:
    """What changes about an instance, tags apart."""

    state: State
    reason: str = ""  # StateReason, code and message
    message: str = ""
    transition: str = ""

    @property
    def members(self) -> dict[str, Any]:
        """As members of Instance."""
        told: dict[str, Any] = {
            "State": {"Code": CODES[self.state], "Name": self.state.value},
            "StateTransitionReason": self.transition,
        }
        if self.reason:
            told["StateReason"] = {"Code": self.reason, "Message": f"{self.reason}: {self.message}"}
        return told


class Tags:
    """Tags that many may share. Never changed: others are made."""

    def __init__(self, items: dict[str, str]) -> None:
        self.items = items

    @property
    def members(self) -> list[dict[str, str]]:
        """As a TagList."""
        return [{"Key": key, "Value": value} for key, value in self.items.items()]

    @cached_property
    def xml(self) -> str:
        """As a member of Instance; EC2 leaves it out where there are none."""
        return instance_xml({"Tags": self.members}) if self.items else ""


NO_TAGS = Tags({})
#: A terminated instance tells of what it had as empty lists.
_NOTHING_HELD = "<blockDeviceMapping/><networkInterfaceSet/><groupSet/>"


@dataclass(eq=False, slots=True)
class Volume:
    """A disk. Without `instance` it is left over."""

    id: str
    zone: str
    size_gb: int
    type: str
    encrypted: bool
    made_ms: int
    device: str
    dies_with_instance: bool
    instance: str = ""
    tags: Tags = NO_TAGS
    iops: int | None = None
    throughput: int | None = None
    kms_key: str | None = None
    snapshot: str = ""


@dataclass(eq=False, slots=True)
class Interface:
    """A network interface."""

    id: str
    zone: str
    subnet: str
    address: str
    made_ms: int
    groups: tuple[str, ...]
    dies_with_instance: bool
    instance: str = ""
    public_address: str = ""
    tags: Tags = NO_TAGS
    description: str = ""

    @property
    def mac(self) -> str:
        """Its hardware address, made from its id."""
        return ":".join(["0e", *(self.id[-10:][at : at + 2] for at in range(0, 10, 2))])


@dataclass(eq=False, slots=True)
class Address:
    """An elastic IP address that the account holds."""

    allocation: str
    public: str
    instance: str = ""
    tags: Tags = NO_TAGS


@dataclass(eq=False, slots=True)
class Snapshot:
    """A snapshot of a disk that the account owns."""

    id: str
    volume: str
    size_gb: int
    made_ms: int
    tags: Tags = NO_TAGS


@dataclass(eq=False, slots=True)
class SpotRequest:
    """The spot request behind a spot instance."""

    id: str
    price: str
    made_ms: int
    type_name: str
    zone: str
    image: str
    instance: str
    state: str = "active"
    status: str = "fulfilled"
    message: str = "Your spot request is fulfilled."
    tags: Tags = NO_TAGS


@dataclass(frozen=True, slots=True)
class Notice:
    """What the instance's metadata says of an interruption."""

    action: str
    at_ms: int


@dataclass(eq=False, slots=True)
class Instance:
    """One VM. `fixed` are the members that never change, `held` those that it loses when it is terminated."""

    id: str
    number: int  # in the order of launches
    reservation: Reservation
    type_name: str
    vcpus: int
    zone: str
    market: str  # "on-demand" or "spot"
    launched_ms: int
    user_data: bytes
    fixed: dict[str, Any]
    held: dict[str, Any]
    condition: Shown[Condition]
    tags: Shown[Tags]
    volumes: list[Volume]
    interfaces: list[Interface]
    shutdown_behaviour: str = "stop"
    protected: bool = False
    credits: str = ""  # how its CPUs are paid: "standard", "unlimited", "" where they take no credits
    spot: SpotRequest | None = None
    notice: Notice | None = None
    rebalance_ms: int = 0
    running_ms: int = 0  # billed from then
    ended_ms: int = 0  # billed until then
    hidden_ms: int = 0  # reads do not know it until then
    console: str = ""
    _fixed_xml: str = field(default="", repr=False)
    _held_xml: str = field(default="", repr=False)

    @property
    def state(self) -> State:
        """What it really is in."""
        return self.condition.true.state

    def shown(self, at: int) -> tuple[Condition, Tags] | None:
        """What a read shows of it that looks at this moment; None where it is not there yet, or hidden."""
        condition = self.condition.at(at) if self.hidden_ms <= at else None
        return None if condition is None else (condition, self.tags.at(at) or NO_TAGS)

    def xml(self, condition: Condition, tags: Tags, condition_xml: dict[Condition, str]) -> Xml:
        """As the content of an Instance element, from parts that are kept."""
        if not self._fixed_xml:
            self._fixed_xml, self._held_xml = instance_xml(self.fixed), instance_xml(self.held)
        made = condition_xml.get(condition)
        if made is None:
            made = condition_xml[condition] = instance_xml(condition.members)
        held = self._held_xml if condition.state is not State.TERMINATED else _NOTHING_HELD
        return Xml(f"{self._fixed_xml}{held}{made}{tags.xml}")


@dataclass(eq=False, slots=True)
class Reservation:
    """The instances of one launch."""

    id: str
    owner: str
    instances: list[Instance] = field(default_factory=list)
    token: str = ""
