"""One region of one account: what is there, and how instances begin and end. Knows nothing of requests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.ec2 import catalogue
from tests.fakes.ec2.records import (
    ALIVE,
    Address,
    Condition,
    Instance,
    Interface,
    Notice,
    Reservation,
    Snapshot,
    SpotRequest,
    State,
    Tags,
    Volume,
)
from tests.fakes.ec2.settings import Settings
from tests.fakes.ec2.stock import Stock
from tests.fakes.faults import FaultKind, Faults, Market
from tests.fakes.shown import Shown
from tests.fakes.timers import Timers

_NEVER_MS = 1 << 50


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet. Each zone has its default one, where instances get public addresses, and a private one."""

    id: str
    zone: str
    network: str  # the first two bytes of its addresses
    number: int
    default: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A security group."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called at changes of state, in the fake's thread and under its lock: they must be quick, and not call back."""

    on_start: Callable[[Instance], None] = lambda instance: None
    on_notice: Callable[[Instance], None] = lambda instance: None
    on_stop: Callable[[Instance], None] = lambda instance: None


@dataclass(frozen=True, slots=True)
class Launched:
    """What a client token stands for."""

    asked: str
    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template, of one version."""

    id: str
    name: str
    made_ms: int
    data: dict[str, Any]
    token: str


@dataclass(eq=False)
class Region:
    """The state. Whoever calls holds the fake's lock."""

    account: str
    name: str
    settings: Settings
    timers: Timers
    faults: Faults
    hooks: Callable[[], Hooks]
    instances: dict[str, Instance] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    interfaces: dict[str, Interface] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    spot_requests: dict[str, SpotRequest] = field(default_factory=dict)
    tokens: dict[tuple[str, str], Launched] = field(default_factory=dict)
    templates: dict[str, Template] = field(default_factory=dict)
    #: By the client token of a fleet: what was asked, and what was answered.
    fleets: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    condition_xml: dict[Condition, str] = field(default_factory=dict)
    #: vCPUs of living instances by class of families and market.
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: All that ever ran, for the bill.
    ever: list[Instance] = field(default_factory=list)
    _made: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vpc = self.new_id("vpc")
        self.zones = tuple(f"{self.name}{letter}" for letter in self.settings.zones)
        default = [Subnet(self.new_id("subnet"), zone, "10.0", n, True) for n, zone in enumerate(self.zones)]
        private = [Subnet(self.new_id("subnet"), zone, "10.1", n, False) for n, zone in enumerate(self.zones)]
        self.subnets = {subnet.id: subnet for subnet in (*default, *private)}
        groups = [Group(self.new_id("sg"), "default"), Group(self.new_id("sg"), "workers")]
        self.groups = {group.id: group for group in groups}
        self.types = catalogue.types(self.settings.types)
        self.images = {image.id: image for image in self.settings.images}
        self.parameters = dict(self.settings.parameters)

    @property
    def now(self) -> int:
        """The fake's clock; while something happens by itself, when that was due."""
        return self.timers.now

    def zone_id(self, zone: str) -> str:
        """The zone's name that is the same for every account."""
        area, side, number = self.name.split("-")
        return f"{area}{side[0]}{number}-az{self.zones.index(zone) + 1}"

    def new_id(self, kind: str) -> str:
        """The next id of a kind, the same in every run."""
        number = self._made[kind] = self._made.get(kind, 0) + 1
        text = f"{self.account}/{self.name}/{kind}/{number}"
        return f"{kind}-{hashlib.blake2s(text.encode()).hexdigest()[:17]}"

    def made(self, kind: str) -> int:
        """How many ids of a kind there have been."""
        return self._made.get(kind, 0)

    @property
    def stock(self) -> Stock:
        """What can be had now."""
        return Stock(self.settings, self.faults.book, self.types, self.instances, self.used, self.now)

    # how instances begin and end

    def admit(self, vm: Instance) -> None:
        """A launched instance, pending."""
        self.instances[vm.id] = vm
        self.ever.append(vm)
        self._count(vm, 1)
        self.volumes.update((volume.id, volume) for volume in vm.volumes)
        self.interfaces.update((interface.id, interface) for interface in vm.interfaces)
        if vm.spot is not None:
            self.spot_requests[vm.spot.id] = vm.spot
        scope = (vm.type_name, vm.zone, Market(vm.market))
        failure = self.faults.book.take(FaultKind.ASYNC_FAILURE, self.now, "RunInstances", *scope)
        if failure is not None:
            code = failure.code or "Server.InternalError"
            self.timers.after(self.settings.pending_ms, lambda: self._stillborn(vm, code))
            return
        if self.faults.book.take(FaultKind.NEVER_STARTS, self.now, "RunInstances", *scope) is not None:
            return
        late = self.faults.book.take(FaultKind.LATE, self.now, "RunInstances", *scope)
        self.timers.after(self.settings.pending_ms + (late.amount if late else 0), lambda: self._run(vm))

    def _run(self, vm: Instance) -> None:
        if vm.state is State.PENDING:
            vm.running_ms = self.now
            self._become(vm, Condition(State.RUNNING))
            self.hooks().on_start(vm)

    def _stillborn(self, vm: Instance, code: str) -> None:
        if vm.state is State.PENDING:
            self._become(vm, Condition(State.TERMINATED, code, "the launch failed"))
            self._release(vm)

    def terminate(self, vm: Instance, reason: str, message: str, transition: str = "", status: str = "") -> None:
        """Shut it down for good; nothing where that has begun already. `status` becomes the spot request's."""
        if vm.state in (State.SHUTTING_DOWN, State.TERMINATED):
            return
        self._end_bill(vm)
        if vm.spot is not None:
            self._close(vm.spot, status or "instance-terminated-by-user")
        gone = Condition(State.TERMINATED, reason, message, transition)
        self._become(vm, Condition(State.SHUTTING_DOWN, reason, message, transition))
        self.timers.after(self.settings.shutting_down_ms, lambda: self._gone(vm, gone))
        self.hooks().on_stop(vm)

    def stop(self, vm: Instance) -> None:
        """What a shutdown from inside does where the shutdown behaviour is stop."""
        self._end_bill(vm)
        reason = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
        self._become(vm, Condition(State.STOPPED, *reason))
        self.hooks().on_stop(vm)

    def guest_shutdown(self, vm: Instance) -> None:
        """The guest shuts itself down."""
        if vm.state is not State.RUNNING:
            return
        if vm.shutdown_behaviour == "stop" and vm.spot is None:
            self.stop(vm)
        else:
            self.terminate(vm, "Client.InstanceInitiatedShutdown", "Instance initiated shutdown")

    def notify(self, vm: Instance, notice_ms: int) -> None:
        """Spot capacity is wanted back: the notice now, the end `notice_ms` later."""
        if vm.spot is None or vm.state not in (State.PENDING, State.RUNNING):
            raise ValueError(f"{vm.id} is no living spot instance")
        vm.notice = Notice("terminate", self.now + notice_ms)
        vm.spot.status = "marked-for-termination"
        vm.spot.message = "Your instance is marked for termination."
        self.hooks().on_notice(vm)
        self.timers.after(notice_ms, lambda: self._take_back(vm))

    def rebalance(self, vm: Instance) -> None:
        """The instance is at elevated risk of an interruption: its metadata says so."""
        vm.rebalance_ms = self.now
        self.hooks().on_notice(vm)

    def _take_back(self, vm: Instance) -> None:
        reason = ("Server.SpotInstanceTermination", "Spot instance termination")
        self.terminate(vm, *reason, status="instance-terminated-no-capacity")

    def _gone(self, vm: Instance, condition: Condition) -> None:
        self._become(vm, condition)
        self._release(vm)

    def _release(self, vm: Instance) -> None:
        """What came with it goes, or stays behind."""
        if vm.spot is not None and vm.spot.state == "active":
            self._close(vm.spot, "instance-terminated-launch-failed")
        scope = (vm.type_name, vm.zone, Market(vm.market))
        fault = self.faults.book.take(FaultKind.LEFTOVER, self.now, "", *scope)
        kept = () if fault is None else (fault.code or "volume", fault.code or "network-interface")
        for volume in vm.volumes:
            volume.instance = ""
            if volume.dies_with_instance and "volume" not in kept:
                del self.volumes[volume.id]
        for interface in vm.interfaces:
            interface.instance = ""
            if interface.dies_with_instance and "network-interface" not in kept:
                del self.interfaces[interface.id]
        for address in self.addresses.values():
            if address.instance == vm.id:
                address.instance = ""
        self.timers.after(self.settings.linger_ms, lambda: self._forget(vm))

    def _forget(self, vm: Instance) -> None:
        del self.instances[vm.id]
        if vm.spot is not None:
            self.spot_requests.pop(vm.spot.id, None)

    def _close(self, request: SpotRequest, status: str) -> None:
        request.state, request.status = "closed", status
        request.message = "The instance was terminated."

    def _end_bill(self, vm: Instance) -> None:
        if vm.running_ms and not vm.ended_ms:
            vm.ended_ms = self.now

    def _become(self, vm: Instance, condition: Condition) -> None:
        if vm.state in ALIVE and condition.state not in ALIVE:
            self._count(vm, -1)
        vm.condition.change(condition, self.now + self.settings.changes_ms)

    def _count(self, vm: Instance, sign: int) -> None:
        self.used[catalogue.quota_class(vm.type_name), vm.market] += sign * vm.vcpus

    # tags and tokens

    def retag(self, thing: Any, tags: Tags) -> None:
        """Give an instance or what belongs to it other tags."""
        if isinstance(thing, Instance):
            thing.tags.change(tags, self.now + self.settings.tags_ms)
        else:
            thing.tags = tags

    def first_tags(self, tags: Tags) -> Shown[Tags]:
        """The tags of a new instance, shown late where that is the setting."""
        if not self.settings.tags_ms:
            return Shown(tags, 0)
        shown = Shown(Tags({}), 0)
        shown.change(tags, self.now + self.settings.appears_ms + self.settings.tags_ms)
        return shown

    def remembered(self, token: str, zone: str) -> Launched | None:
        """What was launched under this client token (in the zone, where one was asked for) within its window."""
        launched = self.tokens.get((token, zone))
        if launched is None:
            return None
        ends = [self._over_ms(vm) for vm in launched.reservation.instances]
        if self.now >= max(ends, default=_NEVER_MS) + self.settings.token_ms:
            del self.tokens[token, zone]
            return None
        return launched

    def _over_ms(self, vm: Instance) -> int:
        if vm.state is not State.TERMINATED:
            return _NEVER_MS
        return vm.ended_ms or vm.launched_ms
