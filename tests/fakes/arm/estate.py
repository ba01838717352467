"""What the subscriptions hold, and how VMs begin and end. Knows nothing of requests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.arm import catalogue
from tests.fakes.arm.errors import ArmError
from tests.fakes.arm.records import BILLED, Condition, Event, Operation, Part, Phase, Power, Vm
from tests.fakes.arm.settings import NETWORK, SECURITY_GROUP, SUBNET, Settings
from tests.fakes.faults import Fault, FaultKind, Faults, Market
from tests.fakes.shown import HORIZON_MS
from tests.fakes.timers import Timers

CREATE = "VirtualMachines_CreateOrUpdate"
#: Words for `Fault.code` of LEFTOVER, by kind of part.
_LEFT = {
    "Microsoft.Compute/disks": "disk", "Microsoft.Network/networkInterfaces": "network-interface",
    "Microsoft.Network/publicIPAddresses": "public-address",
}  # fmt: skip
#: Codes of failures that Azure tells at once, not by the operation.
_AT_ONCE = frozenset({"SkuNotAvailable", "OperationNotAllowed", "QuotaExceeded"})


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called at changes of state, in the fake's thread and under its lock: they must be quick, and not call back."""

    on_start: Callable[[Vm], None] = lambda vm: None
    on_notice: Callable[[Vm], None] = lambda vm: None
    on_stop: Callable[[Vm], None] = lambda vm: None


@dataclass(eq=False)
class Estate:
    """The state. Whoever calls holds the fake's lock. Ids are compared without regard to case, as Azure does."""

    settings: Settings
    timers: Timers
    faults: Faults
    hooks: Callable[[], Hooks]
    vms: dict[str, Vm] = field(default_factory=dict)
    #: Gone, and kept for stale listings.
    gone: list[Vm] = field(default_factory=list)
    ever: list[Vm] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)
    #: vCPUs (and VMs) that count, by subscription, location and usage.
    used: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: Scopes that nothing may be deleted in.
    locks: set[str] = field(default_factory=set)
    _made: Counter[str] = field(default_factory=Counter)
    _removals: dict[str, Operation] = field(default_factory=dict)

    @property
    def now(self) -> int:
        """The fake's clock; while something happens by itself, when that was due."""
        return self.timers.now

    def new_number(self, kind: str) -> int:
        self._made[kind] += 1
        return self._made[kind]

    def new_id(self, kind: str) -> str:
        """A UUID, the same in every run."""
        text = hashlib.blake2s(f"{kind}/{self.new_number(kind)}".encode(), digest_size=16).hexdigest()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def subnet_ids(self, subscription: str) -> dict[str, str]:
        """Subnets there are, by their ids in lower case."""
        found = (f"{self.network_id(subscription, group)}/subnets/{SUBNET}" for group in self.settings.groups)
        return {identity.lower(): identity for identity in found}

    @staticmethod
    def network_id(subscription: str, group: str) -> str:
        """The one virtual network of a group."""
        return _provided(subscription, group, "Microsoft.Network/virtualNetworks", NETWORK)

    def security_group_ids(self, subscription: str) -> dict[str, str]:
        """Network security groups there are, by their ids in lower case."""
        kind = "Microsoft.Network/networkSecurityGroups"
        found = (_provided(subscription, group, kind, SECURITY_GROUP) for group in self.settings.groups)
        return {identity.lower(): identity for identity in found}

    # what can be had

    def spot_nano(self, size: catalogue.Size, location: str) -> int:
        """The spot price now."""
        fault = self.faults.book.standing(FaultKind.PRICE, self.now, size.name, location, Market.SPOT)
        return fault.amount if fault else catalogue.spot_nano(size)

    def limits(self, location: str) -> dict[str, int]:
        """By usage, where there is a limit that matters."""
        limits = dict(self.settings.quotas)
        for fault in self.faults.book.all_standing(FaultKind.QUOTA, self.now):
            if fault.zone not in ("", location):
                continue
            name = catalogue.SPOT if fault.market is Market.SPOT else catalogue.REGIONAL
            if fault.type and fault.market is not Market.SPOT:
                name = catalogue.SIZES[fault.type.lower()].family
            limits[name] = min(limits.get(name, catalogue.AMPLE), fault.amount)
        return limits

    def usages_of(self, vm: Vm) -> dict[str, int]:
        """What a VM counts for: spot has a quota of its own."""
        counted = {catalogue.MACHINES: 1}
        names = (catalogue.SPOT,) if vm.spot else (catalogue.REGIONAL, vm.size.family)
        return counted | dict.fromkeys(names, vm.size.vcpus)

    def check_quota(self, vm: Vm) -> None:
        """Refuse what would be too much, in the words that Azure has for it."""
        limits = self.limits(vm.location)
        for name, more in self.usages_of(vm).items():
            limit, used = limits.get(name, catalogue.AMPLE), self.used[vm.subscription, vm.location, name]
            if used + more > limit:
                raise ArmError(
                    "OperationNotAllowed",
                    f"Operation could not be completed as it results in exceeding approved {name} Cores quota. "
                    "Additional details - Deployment Model: Resource Manager, "
                    f"Location: {vm.location}, Current Limit: {limit}, "
                    f"Current Usage: {used}, Additional Required: {more}, (Minimum) New Limit Required: {used + more}.",
                )

    def no_room(self, vm: Vm) -> str:
        """The code with which there is no capacity for it, or ""."""
        limit = self.settings.capacity.get((vm.size.name, vm.place, vm.market))
        taken = [other for other in self.vms.values() if other.counted] if limit is not None else []
        alike = sum((other.size, other.place, other.market) == (vm.size, vm.place, vm.market) for other in taken)
        if limit is not None and alike >= limit:
            return _short(vm)
        for fault in self.faults.book.all_standing(FaultKind.CAPACITY, self.now):
            if _speaks_of(fault, vm):
                if sum(other.counted and _speaks_of(fault, other) for other in self.vms.values()) >= fault.amount:
                    return fault.code or _short(vm)
        return ""

    # how VMs begin and end

    def operation(self, subscription: str, location: str) -> Operation:
        """A new one, in progress."""
        made = Operation(self.new_id("operation"), subscription, location, self.now)
        self.operations[made.id] = made
        return made

    def finish(self, operation: Operation, error: dict[str, Any] | None = None) -> None:
        """It is over; nothing where it was before."""
        if not operation.ended_ms:
            operation.status, operation.error = ("Failed", error) if error else ("Succeeded", None)
            operation.ended_ms = self.now

    def admit(self, vm: Vm, parts: list[Part], failure: str) -> Operation:
        """A VM that is being made; `failure` is the code with which that ends."""
        operation = self.operation(vm.subscription, vm.location)
        vm.creation = operation.id
        self.vms[vm.key] = vm
        self.ever.append(vm)
        self.parts.update((part.id.lower(), part) for part in parts)
        self._count(vm, 1)
        scope = (vm.size.name, vm.place, Market(vm.market))
        fault = self.faults.book.take(FaultKind.ASYNC_FAILURE, self.now, CREATE, *scope)
        if fault is not None:
            failure = fault.code or _short(vm)
        if failure:
            self.timers.after(self.settings.starting_ms, lambda: self._fail(vm, operation, failure))
            return operation
        if self.faults.book.take(FaultKind.NEVER_STARTS, self.now, CREATE, *scope) is not None:
            return operation
        late = self.faults.book.take(FaultKind.LATE, self.now, CREATE, *scope)
        self.timers.after(
            self.settings.starting_ms + (late.amount if late else 0), lambda: self._power_on(vm, operation)
        )
        return operation

    def _power_on(self, vm: Vm, operation: Operation) -> None:
        if vm.phase is not Phase.CREATING:
            return
        vm.running_ms = self.now
        self.become(vm, Condition(Phase.CREATING, Power.RUNNING))
        self.hooks().on_start(vm)
        if self.settings.provisioning_ms:
            self.timers.after(self.settings.provisioning_ms, lambda: self._provisioned(vm, operation))
        else:
            self._provisioned(vm, operation)

    def _provisioned(self, vm: Vm, operation: Operation) -> None:
        if vm.phase is Phase.CREATING:
            self.become(vm, Condition(Phase.SUCCEEDED, vm.power))
        self.finish(operation)

    def _fail(self, vm: Vm, operation: Operation, code: str) -> None:
        if vm.phase is not Phase.CREATING:
            return
        message = f"{code}: a failure that the fake was told to make"
        self._count(vm, -1)
        self.become(vm, Condition(Phase.FAILED, Power.NONE, code, message))
        self.finish(operation, {"code": code, "message": message})

    def become(self, vm: Vm, condition: Condition) -> None:
        """Change its state."""
        if vm.power in BILLED and condition.power not in BILLED and vm.running_ms and not vm.ended_ms:
            vm.ended_ms = self.now
        vm.condition.change(condition, self.now + self.settings.changes_ms)
        vm.etag += 1
        vm.cache.clear()

    def retag(self, vm: Vm, tags: dict[str, str]) -> None:
        """Give it other tags."""
        vm.tags.change(tags, self.now + self.settings.tags_ms)
        vm.etag += 1
        vm.cache.clear()

    def remove(self, vm: Vm) -> Operation:
        """Delete it, and with it what is to go with it. What was being made is preempted."""
        operation = self.operation(vm.subscription, vm.location)
        creation = self.operations.get(vm.creation)
        if creation is not None:
            self.finish(creation, {"code": "OperationPreempted", "message": "preempted by a more recent operation"})
        self._removals[vm.key] = operation
        was_on = vm.power in BILLED
        self.become(vm, Condition(Phase.DELETING, Power.NONE))
        if was_on:
            self.hooks().on_stop(vm)
        self.timers.after(self.settings.deleting_ms, lambda: self._gone(vm, operation))
        return operation

    def operation_of_removal(self, vm: Vm) -> Operation:
        """The one that deletes it."""
        return self._removals[vm.key]

    def _gone(self, vm: Vm, operation: Operation) -> None:
        if self.vms.get(vm.key) is vm:
            del self.vms[vm.key]
            self._removals.pop(vm.key, None)
            self._count(vm, -1)
            self.become(vm, Condition(Phase.GONE, Power.NONE))
            self.gone = [old for old in self.gone if not self._forgotten(old)]
            self.gone.append(vm)
            fault = self.faults.book.take(FaultKind.LEFTOVER, self.now, "", vm.size.name, vm.place, Market(vm.market))
            self._release(vm.key, fault)
        self.finish(operation)

    def _forgotten(self, vm: Vm) -> bool:
        seen = vm.condition.at(self.now - HORIZON_MS)
        return seen is not None and seen.phase is Phase.GONE

    def _release(self, holder: str, fault: Fault | None) -> None:
        """What came with something that is gone goes too, or stays without a holder."""
        for part in [part for part in self.parts.values() if part.holder == holder]:
            part.holder = ""
            stays = fault is not None and fault.code in ("", _LEFT[part.kind])
            if part.dies and not stays:
                del self.parts[part.id.lower()]
                self._release(part.id.lower(), fault)
            elif part.kind == "Microsoft.Compute/disks":
                part.body["properties"]["diskState"] = "Unattached"
                part.body.pop("managedBy", None)

    def going_with(self, holder: str) -> Iterator[Part]:
        """All that ends with what is gone, also by way of an interface."""
        for part in self.parts.values():
            if part.holder == holder and part.dies:
                yield part
                yield from self.going_with(part.id.lower())

    def user(self, part: Part) -> Vm | None:
        """The VM that it serves, itself or by an interface."""
        held = self.parts.get(part.holder)
        return self.vms.get(held.holder if held else part.holder)

    def deallocate(self, vm: Vm) -> Operation:
        """Give its place back; its disks stay."""
        operation = self.operation(vm.subscription, vm.location)
        was_on = vm.power in BILLED
        self.become(vm, Condition(Phase.UPDATING, Power.DEALLOCATING))
        if was_on:
            self.hooks().on_stop(vm)

        def done() -> None:
            if vm.phase is Phase.UPDATING:
                self.become(vm, Condition(Phase.SUCCEEDED, Power.DEALLOCATED))
                self._count(vm, -1)
            self.finish(operation)

        self.timers.after(self.settings.deallocating_ms, done)
        return operation

    def guest_shutdown(self, vm: Vm) -> None:
        """The guest powers itself off: stopped, not deallocated, and it is billed on."""
        if vm.power is Power.RUNNING:
            self.become(vm, Condition(vm.phase, Power.STOPPED))

    def notify(self, vm: Vm, notice_ms: int) -> None:
        """A spot VM is wanted back: an event, and the end when it is due or acknowledged."""
        if vm.event is not None or vm.power not in BILLED:
            return
        vm.event = Event(self.new_id("event").upper(), self.now + notice_ms)
        self.hooks().on_notice(vm)
        self.timers.after(notice_ms, lambda: self.evict(vm))

    def evict(self, vm: Vm) -> None:
        """As its policy says."""
        if vm.phase in (Phase.DELETING, Phase.GONE) or vm.power not in BILLED:
            return
        vm.event = None
        if vm.evict_deletes:
            self.remove(vm)
        else:
            self.deallocate(vm)

    def _count(self, vm: Vm, sign: int) -> None:
        """Once each way."""
        if sign < 0 and not vm.counted:
            return
        vm.counted = sign > 0
        for name, amount in self.usages_of(vm).items():
            self.used[vm.subscription, vm.location, name] += sign * amount


def _provided(subscription: str, group: str, kind: str, name: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{kind}/{name}"


def _speaks_of(fault: Fault, vm: Vm) -> bool:
    return fault.speaks_of(vm.size.name, vm.place, Market(vm.market))


def _short(vm: Vm) -> str:
    """How Azure says that there is no capacity."""
    if vm.spot:
        return "OverconstrainedZonalAllocationRequest" if vm.zone else "OverconstrainedAllocationRequest"
    return "ZonalAllocationFailed" if vm.zone else "AllocationFailed"


def at_once(code: str) -> bool:
    """Whether Azure tells this failure in the answer to the PUT."""
    return code in _AT_ONCE
