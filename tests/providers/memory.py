"""A cloud in memory and a driver over it, with every capability of the SPI: what the conformance suite is tried on.

Two flavours: `NAMED` names VMs by slot and answers launches with operations, `TOKENS` knows a batch by its token. The
time is the running loop's, so that a virtual loop makes waiting free.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from cloud_dispatch.domain.ids import BatchId, InstanceId, ProfileName, VmId, instance_id, slot_of
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import InstanceType, Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    CredentialsRejected,
    InvalidRequest,
    NotProven,
    ProviderError,
    QuotaExceeded,
    Scope,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.lacking import bounded
from cloud_dispatch.provider.spi import (
    Challenge,
    Finding,
    HardEnd,
    Heard,
    Host,
    Identity,
    LaunchRequest,
    LaunchResult,
    Leftover,
    LeftoverKind,
    Level,
    Listing,
    Operation,
    Price,
    ProfileContext,
    Provider,
    Quota,
    QuotaUnit,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch.testing.provider_contract import Faults, Truth

EPOCH_MS = 1_700_000_000_000
BOOT_MS, STOP_MS, OPERATION_MS, PERIOD_MS = 500, 400, 300, 1_000
CONSOLE_BYTES = 65_536
TYPES = ("large", "small")
MILLI = 1_000_000  # a thousandth of a dollar, in nano-dollars
NAMED = Traits(
    consistency_ms=300, max_batch=4, hard_end=HardEnd.FIXED, hard_end_period_ms=PERIOD_MS, stop_lag_ms=STOP_MS,
    named_slots=True, vm_name="{zone}/vm-{instance}", operation_poll_ms=200, spot_notice_ms=100, leftovers=True,
    quotas=True, prices=True, identity=Identity.MADE_OUT, place=(("account", "own"), ("region", "r")), zones=("z",),
)  # fmt: skip
TOKENS = replace(
    NAMED, hard_end=HardEnd.EXTENDABLE, named_slots=False, operation_poll_ms=0, all_or_nothing=True, token_window_ms=0,
    leftovers=False, identity=Identity.NONE, max_tagged=3,
)  # fmt: skip


def now_ms() -> int:
    return EPOCH_MS + round(asyncio.get_running_loop().time() * 1000)


def seal(said: str) -> str:
    return hashlib.sha256(f"known to the cloud alone: {said}".encode()).hexdigest()


@dataclass
class Record:
    """A VM as it truly is. `gone_ms` is when it shall be no more, `ready_ms` when its operation is done."""

    id: VmId
    request: LaunchRequest
    slot: int
    tags: dict[str, str]
    created_ms: int
    ends_ms: int
    ready_ms: int
    stop_ms: int = 0
    hidden_until_ms: int = 0
    preempted: bool = False

    def state(self, now: int) -> VmState:
        stop = self.stop_ms or (self.ends_ms + PERIOD_MS if 0 < self.ends_ms < now else 0)
        if stop and now >= stop:
            return VmState.STOPPING if now < stop + STOP_MS else VmState.GONE
        return VmState.RUNNING if now >= self.ready_ms + BOOT_MS else VmState.PENDING


@dataclass
class Fault:
    call: str
    error: type[ProviderError] | None = None
    commit: bool = False
    times: int = 1
    after: int = 0
    delay_ms: int = 0
    retry_after_ms: int = 0
    cut: bool = False


@dataclass
class MemoryCloud(Faults):
    """The account, and the switches for its faults."""

    traits: Traits = NAMED
    records: dict[VmId, Record] = field(default_factory=dict)
    left: dict[str, Leftover] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    failing: list[type[ProviderError]] = field(default_factory=list)
    failed: dict[str, tuple[int, ProviderError]] = field(default_factory=dict)
    capacities: dict[str, int] = field(default_factory=dict)
    limit: int = 100
    leaving: list[LeftoverKind] = field(default_factory=list)
    forgets: bool = False
    operation_ms: int = OPERATION_MS
    said: dict[VmId, str] = field(default_factory=dict)
    attached: set[str] = field(default_factory=set)
    locked: bool = False
    asked: int = 0
    serial: itertools.count[int] = field(default_factory=itertools.count)

    def fail(self, call: str, error: type[ProviderError], *, commit: bool = False, times: int = 1, after: int = 0,
             type_name: str = "", retry_after_ms: int = 0) -> None:  # fmt: skip
        self.faults.append(Fault(call, error, commit, times, after, retry_after_ms=retry_after_ms))

    def delay(self, call: str, delay_ms: int, *, times: int = 1) -> None:
        self.faults.append(Fault(call, delay_ms=delay_ms, times=times))

    def calm(self) -> None:
        self.faults.clear()
        self.locked = False

    def cut_short(self, *, times: int = 1) -> None:
        self.faults.append(Fault("list", cut=True, times=times))

    def fail_later(self, error: type[ProviderError], *, times: int = 1) -> None:
        self.failing += [error] * times

    def forget_operations(self) -> None:
        self.forgets = True

    def capacity(self, type_name: str, vms: int) -> None:
        self.capacities[type_name] = vms

    def quota(self, vms: int) -> None:
        self.limit = vms

    def hide(self, vm: VmId, for_ms: int) -> None:
        self.records[vm].hidden_until_ms = now_ms() + for_ms

    def leave_behind(self, kind: LeftoverKind) -> None:
        self.leaving.append(kind)

    def attach(self, leftover: Leftover, vm: VmId) -> None:
        self.attached.add(leftover.id)

    def slow_operations(self, for_ms: int) -> None:
        self.operation_ms = for_ms

    def say(self, vm: VmId, text: str) -> None:
        self.said[vm] = self.said.get(vm, "") + text

    def lock_out(self) -> None:
        self.locked = True

    def preempt(self, vm: VmId) -> None:
        self.records[vm].preempted = True
        self.records[vm].stop_ms = now_ms() + self.traits.spot_notice_ms

    def proof(self, vm: VmId, nonce: str) -> str:
        """What the VM's metadata service gives."""
        said = f"{vm} {nonce} {now_ms()}"
        return f"{said} {seal(said)}"

    def take(self, call: str) -> Fault:
        for fault in self.faults:
            if fault.call == call and fault.after > 0:
                fault.after -= 1
            elif fault.call == call and fault.times > 0:
                fault.times -= 1
                return fault
        return Fault(call)

    def living(self, type_name: str = "") -> list[Record]:
        """Those that are not gone; what is gone is forgotten."""
        now = now_ms()
        self.records = {vm: item for vm, item in self.records.items() if item.state(now) is not VmState.GONE}
        return [item for item in self.records.values() if type_name in ("", item.request.offering.type.name)]


class MemoryTruth(Truth):
    """What stands in the account."""

    def __init__(self, cloud: MemoryCloud) -> None:
        self.cloud = cloud

    async def user_data(self, vm: VmId) -> bytes:
        return self.cloud.records[vm].request.user_data.encode()

    async def hard_end_ms(self, vm: VmId) -> int:
        return self.cloud.records[vm].ends_ms

    async def market(self, vm: VmId) -> Market:
        return self.cloud.records[vm].request.offering.market

    async def requests(self) -> int:
        return self.cloud.asked


class MemoryProvider:
    """The driver; all of it is in the cloud, so that another one over the same cloud takes over."""

    def __init__(self, cloud: MemoryCloud) -> None:
        self.cloud = cloud
        self.traits = cloud.traits

    async def offerings(self) -> Sequence[Offering]:
        async with self.guard("offerings"):
            return self.sold()

    def sold(self) -> Sequence[Offering]:
        return [
            Offering(
                ProfileName("memory"), InstanceType(name, Resources(cpus_milli=1000 * size), family="f"), "z", market,
                Rate((100 if market is Market.ON_DEMAND else 30) * size * MILLI), Rate(100 * size * MILLI), region="r",
                priced_ms=now_ms(),
            )
            for size, name in enumerate(reversed(TYPES), 1)
            for market in Market
        ]  # fmt: skip

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        self.check(request)
        async with self.guard("launch", request.offering):
            slots = request.instances or tuple(instance_id(request.batch, slot) for slot in range(request.slots))
            present = self.present(request, slots)
            missing = [slot for slot in slots if slot not in present]
            room, shortfall = self.room(request.offering)
            if min(room, len(missing)) + len(present) < request.min_slots:
                raise shortfall
            for slot in missing[:room]:
                self.make(request, slot)
        answers = [self.answer(request.batch, slot) for slot in slots if slot not in missing[room:]]
        return LaunchResult(
            tuple(vm for answer in answers for vm in answer.vms),
            shortfall if len(missing) > room else None,
            tuple(operation for answer in answers for operation in answer.pending),
        )

    async def resume(self, operation: Operation) -> LaunchResult:
        if not self.traits.operation_poll_ms:
            raise InvalidRequest("no operations here")
        async with self.guard("resume"):
            answer = self.answer(operation.batch, operation.instances[0])
            return self.forgotten(operation, answer.vms) if self.cloud.forgets else answer

    def forgotten(self, operation: Operation, there: tuple[Vm, ...]) -> LaunchResult:
        """Of an operation that the cloud does not know any more."""
        return LaunchResult(there, None if there else Transient(f"there is nothing of {operation.token}"))

    async def list(self, deployment: str) -> Listing:
        async with self.guard("list") as fault:
            now = now_ms()
            found = [
                self.show(record)
                for record in self.cloud.living()
                if deployment and record.tags.get(DEPLOYMENT) == deployment and record.hidden_until_ms <= now
            ]
            return Listing(tuple(found[: len(found) // 2] if fault.cut else found), not fault.cut)

    async def get(self, vm: VmId) -> Vm:
        async with self.guard("get"):
            return self.show(self.find(vm))

    async def terminate(self, vm: VmId) -> None:
        async with self.guard("terminate"):
            self.cloud.living()
            record = self.cloud.records.get(vm)
            if record is None or record.stop_ms:
                return
            record.stop_ms = now_ms()
            for kind in self.cloud.leaving:
                name = f"{kind}-{vm}"
                self.cloud.left[name] = Leftover(name, kind, "z", dict(record.tags), record.created_ms)
            self.cloud.leaving = []

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        if self.traits.hard_end is not HardEnd.EXTENDABLE:
            raise InvalidRequest("the hard end is fixed")
        async with self.guard("extend"):
            found = self.among(vms)
            for record in found:
                self.move(record, ends_ms)
            return frozenset(vms) - {record.id for record in found}

    def move(self, record: Record, ends_ms: int) -> None:
        record.ends_ms = ends_ms
        record.tags[ENDS_AT] = str(ends_ms)

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        async with self.guard("tag"):
            found = self.among(vms)
            for record in found:
                record.tags.update(tags)
            return frozenset(vms) - {record.id for record in found}

    def among(self, vms: Sequence[VmId]) -> list[Record]:
        """Those that there are."""
        return [record for record in self.cloud.living() if record.id in bounded(vms, self.traits)]

    async def console(self, vm: VmId) -> str:
        async with self.guard("console"):
            self.cloud.living()
            text = f"console of {vm}" + self.cloud.said.get(vm, "") if vm in self.cloud.records else ""
            return text.encode()[-CONSOLE_BYTES:].decode(errors="ignore")

    async def leftovers(self, deployment: str) -> Sequence[Leftover]:
        async with self.guard("leftovers"):
            loose = [item for item in self.cloud.left.values() if item.id not in self.cloud.attached]
            return [item for item in loose if deployment and item.tags.get(DEPLOYMENT) == deployment]

    async def delete_leftover(self, leftover: Leftover) -> None:
        if not self.traits.leftovers:
            raise InvalidRequest("nothing is left behind here")
        if leftover.id in self.cloud.attached:
            raise InvalidRequest("a VM has it")
        self.cloud.left.pop(leftover.id, None)

    async def quotas(self) -> Sequence[Quota]:
        async with self.guard("quotas"):
            held = [item.request.offering for item in self.cloud.living()]
            return (
                Quota("vms", Scope(region="r"), QuotaUnit.INSTANCES, self.cloud.limit, len(held)),
                *(
                    Quota("vcpus", Scope(region="r", market=str(market)), QuotaUnit.VCPUS, 1000,
                          sum(one.type.vcpus for one in held if one.market is market))
                    for market in Market
                ),
            )  # fmt: skip

    async def prices(self) -> Sequence[Price]:
        async with self.guard("prices"):
            offers = self.sold()
            return [Price(one.type.name, one.zone, one.market, one.rate) for one in offers if one.rate is not None]

    async def heard(self, deployment: str) -> Heard:
        return Heard(0, "nobody ends anything here but the cloud itself")

    async def preflight(self, deployment: str) -> Sequence[Finding]:
        try:
            async with self.guard("preflight"):
                return [Finding(Level.OK, "credentials", f"of the account that {deployment} is in")]
        except CredentialsRejected as error:
            return [Finding(Level.ERROR, "credentials", error.message)]

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        said, _, sealed = proof.rpartition(" ")
        if self.traits.identity is Identity.NONE or sealed != seal(said):
            raise NotProven("no proof of this cloud")
        vm, nonce, issued_ms = said.split(" ")
        if nonce != challenge.nonce or int(issued_ms) < challenge.since_ms:
            raise NotProven("made out to another, or too old")
        return VmId(vm)

    async def close(self) -> None:
        return None

    @asynccontextmanager
    async def guard(self, call: str, offering: Offering | None = None) -> AsyncIterator[Fault]:
        self.cloud.asked += 1
        if self.cloud.locked:
            raise CredentialsRejected("locked out")
        fault = self.cloud.take(call)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        scope = Scope()
        if offering and fault.error is not CredentialsRejected:
            scope = Scope(type=offering.type.name, zone=offering.zone)
        if fault.error and not fault.commit:
            raise fault.error("injected", scope=scope, retry_after_ms=fault.retry_after_ms)
        yield fault
        if fault.error:
            raise fault.error("injected after the call")

    def check(self, request: LaunchRequest) -> None:
        offering = request.offering
        if not 1 <= request.slots <= self.traits.max_batch or not 1 <= request.min_slots <= request.slots:
            raise InvalidRequest(f"{request.min_slots} to {request.slots} slots")
        if request.min_slots > 1 and not self.traits.all_or_nothing:
            raise InvalidRequest("all or nothing is not to be had")
        if len(request.user_data.encode()) > self.traits.max_user_data:
            raise InvalidRequest("user data is too long")
        if offering.type.name not in TYPES or offering.zone != "z":
            raise InvalidRequest(f"no such offering {offering.key}")

    def present(self, request: LaunchRequest, slots: Sequence[InstanceId]) -> dict[InstanceId, Record]:
        """The slots' VMs that are there; InvalidRequest where the token was for something else, or a name is taken."""
        living = self.cloud.living()
        found = {instance_id(item.request.batch, item.slot): item for item in living}
        present = {slot: found[slot] for slot in slots if slot in found}
        if any(item.request.batch != request.batch for item in present.values()):
            raise InvalidRequest("the name is taken by another batch's VM")
        if not self.traits.named_slots and any(item.request.offering != request.offering for item in present.values()):
            raise InvalidRequest("the token was used for another request", code="IdempotentParameterMismatch")
        return present

    def room(self, offering: Offering) -> tuple[int, ProviderError]:
        quota = self.cloud.limit - len(self.cloud.living())
        capacity = self.cloud.capacities.get(offering.type.name, 1000) - len(self.cloud.living(offering.type.name))
        if quota <= capacity:
            return max(quota, 0), QuotaExceeded("vms", scope=Scope(region="r"))
        return max(capacity, 0), CapacityUnavailable("none left", scope=Scope(type=offering.type.name, zone="z"))

    def make(self, request: LaunchRequest, slot: InstanceId) -> None:
        now = now_ms()
        ready = now + (self.cloud.operation_ms if self.traits.operation_poll_ms else 0)
        if self.cloud.failing:
            scope = Scope(type=request.offering.type.name)
            self.cloud.failed[slot] = ready, self.cloud.failing.pop(0)("failed later", scope=scope)
            return
        name = self.traits.vm_id(slot, request.offering.zone) or VmId(f"i-{next(self.cloud.serial):06d}")
        self.cloud.records[name] = Record(
            name, request, slot_of(slot)[1], dict(request.tags), now, request.ends_ms, ready
        )

    def answer(self, batch: BatchId, slot: InstanceId) -> LaunchResult:
        """What is to be said of one slot now."""
        pending = LaunchResult((), pending=(Operation(f"op/{slot}", batch, (slot,)),))
        if slot in self.cloud.failed:
            at_ms, error = self.cloud.failed[slot]
            return pending if now_ms() < at_ms else LaunchResult((), error)
        for record in self.cloud.living():
            if instance_id(record.request.batch, record.slot) == slot:
                return pending if now_ms() < record.ready_ms else LaunchResult((self.show(record),))
        return LaunchResult(())

    def find(self, vm: VmId) -> Record:
        self.cloud.living()
        if vm not in self.cloud.records:
            raise VmNotFound(f"no VM {vm}")
        return self.cloud.records[vm]

    def show(self, record: Record) -> Vm:
        offering = record.request.offering
        return Vm(
            record.id, record.state(now_ms()), offering.type.name, offering.zone, dict(record.tags), record.created_ms,
            record.slot if self.traits.named_slots else -1, spot=offering.market is Market.SPOT,
            preempted=record.preempted,
        )  # fmt: skip


class MemorySettings(BaseModel):
    """Which flavour."""

    named: bool = True


class MemoryPlugin:
    name = "memory"
    settings = MemorySettings
    host = Host.INLINE

    def create(self, context: ProfileContext) -> Provider:
        return MemoryProvider(MemoryCloud(NAMED if context.settings.named else TOKENS))

    def template_variables(self) -> Mapping[str, str]:
        return {}


plugin = MemoryPlugin()
