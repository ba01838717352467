"""The local driver: the provider SPI over the registry and real processes. Owns what each call does, nothing else.

What a VM is doing is read from its processes every time; the registry only remembers what was asked for. Calls do
small blocking work (files, a fork, a pass over /proc), so a dispatcher runs the driver in a thread host.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cloud_dispatch.domain.ids import InstanceId, VmId, instance_id, slot_of
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.tags import DEPLOYMENT, ENDS_AT
from cloud_dispatch.provider.errors import (
    CapacityUnavailable,
    InDoubt,
    InvalidRequest,
    NotProven,
    ProviderError,
    QuotaExceeded,
    Scope,
    Transient,
    VmNotFound,
)
from cloud_dispatch.provider.lacking import Lacking, bounded
from cloud_dispatch.provider.spi import (
    Challenge,
    HardEnd,
    Identity,
    LaunchRequest,
    LaunchResult,
    Listing,
    ProfileContext,
    Quota,
    QuotaUnit,
    Traits,
    Vm,
    VmState,
)
from cloud_dispatch_local import catalogue, identity, processes
from cloud_dispatch_local.ending import off, sweep
from cloud_dispatch_local.faults import Fault, FaultFile
from cloud_dispatch_local.folder import Damaged, Phase, VmFolder, VmRecord
from cloud_dispatch_local.isolation import check_root, open_way, ours
from cloud_dispatch_local.registry import Registry
from cloud_dispatch_local.settings import LocalSettings, LocalType
from cloud_dispatch_local.vm import power_on
from cloud_dispatch_local.watch import Watch
from cloud_dispatch_local.watchdog import PERIOD_MS

#: The place of a profile that has its own folder as root: that moves with the dispatcher's state.
OWN_ROOT = "STATE_DIR/providers/PROFILE"
_VM_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
#: How long a machine may take to say its first word before it counts as not having started.
_START_MS = 30_000
#: How long past its own grace a machine may take to power off before it is killed.
_PATIENCE_MS = 5_000
_KILL_ROUNDS = 25
_KILL_WAIT_S = 0.02
_CONSOLE_BYTES = 65_536
_YIELD_EVERY = 50
#: Records that one call rewrites: for so long it keeps others from the registry, and its loop busy.
_MAX_TAGGED = 50
_PHASES = {
    Phase.BOOTING: VmState.PENDING,
    Phase.RUNNING: VmState.RUNNING,
    Phase.STOPPING: VmState.STOPPING,
    Phase.STOPPED: VmState.STOPPING,  # said, but its process has yet to end
}


class LocalProvider(Lacking):
    """A driver for one profile. Any number of them, in any number of processes, may share a root."""

    def __init__(self, context: ProfileContext) -> None:
        self._settings: LocalSettings = context.settings
        self._profile = context.profile
        self._now = context.now
        self._registry = Registry(self._settings.root or context.state_dir)
        self._faults = FaultFile(self._settings.faults or self._registry.root / "faults.json")
        self._watch = Watch(self._registry)
        #: By VM, when its end was asked for that could not be noted in its record.
        self._unnoted: dict[str, int] = {}
        if self._settings.isolate_tasks:
            check_root(self._profile)
            open_way(self._registry.vms, ours(self._registry.root, context.state_dir.resolve()), self._profile)
        self._registry.empty_trash()
        self.traits = Traits(
            consistency_ms=0,
            max_batch=16,
            max_user_data=16_384,
            hard_end=HardEnd.EXTENDABLE,
            hard_end_period_ms=PERIOD_MS,
            stop_lag_ms=self._settings.shutdown_grace + _PATIENCE_MS,
            place=(("root", _place(self._registry.root, context.state_dir)),),
            named_slots=True,
            all_or_nothing=True,
            quotas=True,
            identity=Identity.MADE_OUT,
            max_tagged=_MAX_TAGGED,
            calls_per_s=1_000,
            call_burst=1_000,
        )

    async def offerings(self) -> Sequence[Offering]:
        return catalogue.offerings(self._profile, self._settings, self._now())

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        kind, wanted = self._check(request)
        async with self._call("launch", request.offering.type.name, request.offering.zone):
            async with self._registry.locked():
                present = self._all()
                room, shortfall = self._room(present, request, kind)
                if room + sum(name in present for name in wanted) < request.min_slots:
                    raise shortfall
                if request.ends_ms:
                    self._watch.start()  # before there is anything to watch, should we die here
                result = []
                for name in wanted:
                    folder = self._registry.folder(name)
                    record = present.get(name)
                    if record is None and room > 0:
                        room -= 1
                        record, proof = self._record(request, kind, name)
                        folder = self._registry.add(record, request.user_data, proof)
                    if record is not None:
                        result.append(self._powered(folder, record))
            if request.ends_ms:
                await self._watch.stands()  # the answer promises a hard end
        if len(result) == len(wanted):
            return LaunchResult(tuple(result))
        if not result:
            raise shortfall
        return LaunchResult(tuple(result), shortfall)

    async def list(self, deployment: str) -> Listing:
        async with self._call("list") as fault:
            if not deployment:
                return Listing((), complete=False)
            found: list[tuple[VmFolder, VmRecord]] = []
            complete = not fault.cut
            folders = list(self._registry.folders())
            for i, folder in enumerate(folders[: len(folders) // 2] if fault.cut else folders):
                if i % _YIELD_EVERY == _YIELD_EVERY - 1:
                    await asyncio.sleep(0)
                try:
                    record = self._read(folder)
                except Damaged:
                    complete = False
                    continue
                if record is not None and record.tags.get(DEPLOYMENT) == deployment:
                    found.append((folder, record))
            if any(record.ends_ms for _, record in found):
                with contextlib.suppress(OSError, subprocess.SubprocessError):  # the list is true without it
                    self._watch.start()
            gone = await self._sweep([pair for pair in found if pair[1].terminate_ms])
            vms = tuple(self._vm(folder, record) for folder, record in found if record.id not in gone)
        return Listing(vms, complete)

    async def get(self, vm: VmId) -> Vm:
        folder, record = self._find(vm)
        async with self._call("get", record.type, record.zone):
            if record.terminate_ms and await self._sweep([(folder, record)]):
                raise _not_found(vm)
            return self._vm(folder, record)

    async def terminate(self, vm: VmId) -> None:
        try:
            folder, record = self._find(vm)
        except VmNotFound:
            return
        async with self._call("terminate", record.type, record.zone):
            async with self._registry.locked():
                current = self._read(folder)
                if current is None:
                    return
                record = self._asked_to_end(folder, current)
            machine = folder.machine()
            if machine is not None:
                late = self._now() - record.terminate_ms > record.grace_ms + _PATIENCE_MS
                processes.send(machine.process, signal.SIGKILL if late else signal.SIGTERM)
            for _ in range(_KILL_ROUNDS):
                if not off(machine) or await self._sweep([(folder, record)]):
                    return
                await asyncio.sleep(_KILL_WAIT_S)

    def _asked_to_end(self, folder: VmFolder, record: VmRecord) -> VmRecord:
        """Its record, with when its end was first asked for. A disk that is full keeps nobody's VM running: until that
        can be noted there it is kept here."""
        if record.terminate_ms and record.id not in self._unnoted:
            return record
        record = replace(record, terminate_ms=record.terminate_ms or self._now())
        try:
            folder.save_vm(record)
        except OSError:
            self._unnoted[record.id] = record.terminate_ms
        else:
            self._unnoted.pop(record.id, None)
        return record

    def _read(self, folder: VmFolder) -> VmRecord | None:
        record = folder.vm()
        asked_ms = 0 if record is None else self._unnoted.get(record.id, 0)
        return replace(record, terminate_ms=asked_ms) if record is not None and asked_ms else record

    async def _sweep(self, ending: Sequence[tuple[VmFolder, VmRecord]]) -> frozenset[str]:
        gone = await sweep(self._registry, ending)
        for vm in gone & self._unnoted.keys():
            del self._unnoted[vm]
        return gone

    async def extend(self, vms: Sequence[VmId], ends_ms: int) -> frozenset[VmId]:
        return await self._retag("extend", vms, {ENDS_AT: str(ends_ms)})

    async def tag(self, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        return await self._retag("tag", vms, tags)

    async def _retag(self, operation: str, vms: Sequence[VmId], tags: Mapping[str, str]) -> frozenset[VmId]:
        """Set tags, and with the tag of the hard end the end: watchdog and machine read it at their next look."""
        ends = tags.get(ENDS_AT, "")
        if ENDS_AT in tags and not ends.isdecimal():
            raise InvalidRequest(f"tag {ENDS_AT} is {ends!r}, expected milliseconds since the epoch")
        missing: set[VmId] = set()
        unread: Transient | None = None
        async with self._call(operation), self._registry.locked():
            if ends and int(ends):
                self._watch.start()
                await self._watch.stands()
            for vm in bounded(vms, self.traits):
                try:
                    folder, record = self._find(vm)
                except VmNotFound:
                    missing.add(vm)
                    continue
                except Transient as damaged:  # its own trouble, and told when the others have their tags
                    unread = damaged
                    continue
                if ENDS_AT in tags and record.terminate_ms:
                    missing.add(vm)  # it has begun to go: there is no end to be moved any more
                    continue
                ends_ms = int(ends) if ends else record.ends_ms
                folder.save_vm(replace(record, tags={**record.tags, **tags}, ends_ms=ends_ms))
            if unread is not None:
                raise unread
        return frozenset(missing)

    async def console(self, vm: VmId) -> str:
        try:
            folder, _ = self._find(vm)
            with folder.console.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _CONSOLE_BYTES, 0))
                text = file.read(_CONSOLE_BYTES).decode(errors="replace")
            return text.encode()[-_CONSOLE_BYTES:].decode(errors="ignore")  # what was no text is longer by now
        except (FileNotFoundError, VmNotFound):
            return ""

    async def quotas(self) -> Sequence[Quota]:
        used = sum(1 for _ in self._registry.folders())
        return (Quota("max_vms", Scope(), QuotaUnit.INSTANCES, self._settings.max_vms, used),)

    async def identify(self, proof: str, challenge: Challenge) -> VmId:
        """By the key in the VM's record: with the VM its proofs are over."""
        async with self._call("identify"):
            try:
                said, signed, signature = identity.read(proof)
                _, record = self._find(VmId(said.vm))
                identity.check(signed, signature, record.identity_key)
            except (identity.Forged, VmNotFound) as error:
                raise NotProven(str(error)) from None
            if said.vm != record.id or said.batch != challenge.batch:
                raise NotProven(f"it is made out to batch {said.batch}")
            if said.issued_ms < challenge.since_ms:
                raise NotProven("it is older than the launch")
            return VmId(record.id)

    async def close(self) -> None:
        """Nothing is held open; the VMs live on."""

    @contextlib.asynccontextmanager
    async def _call(self, operation: str, type_name: str = "", zone: str = "") -> AsyncIterator[Fault]:
        """Around every call: the faults that were asked for, and the host's own errors as the SPI's."""
        fault = self._faults.take(operation, type_name, zone)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        if not fault.commit:
            fault.refuse(type_name, zone)
        try:
            yield fault
        except (OSError, subprocess.SubprocessError, Damaged) as error:
            # A launch may have made some of its VMs by then; everything else is harmless to repeat.
            kind = InDoubt if operation == "launch" else Transient
            raise kind(f"local {operation}: {error}", code=type(error).__name__) from error
        if fault.commit:
            fault.refuse(type_name, zone)

    def _check(self, request: LaunchRequest) -> tuple[LocalType, tuple[InstanceId, ...]]:
        """The type and the names of the slots that are asked for; InvalidRequest where the request makes no sense."""
        name, zone = request.offering.type.name, request.offering.zone
        kind = self._settings.catalogue.get(name)
        if kind is None or zone != self._settings.zone:
            raise InvalidRequest(f"profile {self._profile} has no type {name!r} in zone {zone!r}")
        if request.offering.market is Market.SPOT and self._settings.spot_discount is None:
            raise InvalidRequest(f"profile {self._profile} has no spot market: set spot_discount")
        if len(request.user_data.encode()) > self.traits.max_user_data:
            raise InvalidRequest(f"user data is over {self.traits.max_user_data} bytes")
        wanted = request.instances or tuple(instance_id(request.batch, slot) for slot in range(request.slots))
        if not 1 <= len(wanted) <= self.traits.max_batch or len(wanted) != request.slots:
            raise InvalidRequest(
                f"{request.slots} slots, {len(wanted)} names (expected 1-{self.traits.max_batch} of each)"
            )
        if not 1 <= request.min_slots <= request.slots:
            raise InvalidRequest(f"min_slots = {request.min_slots} of {request.slots} slots")
        for instance in wanted:
            if not _VM_NAME.fullmatch(instance) or slot_of(instance)[0] != request.batch:
                raise InvalidRequest(f"{instance!r} does not name a slot of batch {request.batch!r}")
        return kind, wanted

    def _all(self) -> dict[str, VmRecord]:
        records = map(self._read, self._registry.folders())
        return {record.id: record for record in records if record is not None}

    def _room(
        self, present: Mapping[str, VmRecord], request: LaunchRequest, kind: LocalType
    ) -> tuple[int, ProviderError]:
        """How many VMs may be added now, and the error for one too many. A VM counts until its folder is gone."""
        offering = request.offering
        quota = max(self._settings.max_vms - len(present), 0)
        same = sum(record.type == offering.type.name for record in present.values())
        capacity = quota if kind.capacity is None else max(kind.capacity - same, 0)
        if quota <= capacity:
            return quota, QuotaExceeded(f"max_vms = {self._settings.max_vms} reached", code="max_vms", scope=Scope())
        scope = Scope(type=offering.type.name, zone=offering.zone)
        return capacity, CapacityUnavailable(
            f"{offering.type.name}: capacity = {kind.capacity} reached", code="capacity", scope=scope
        )

    def _record(self, request: LaunchRequest, kind: LocalType, name: InstanceId) -> tuple[VmRecord, str]:
        """A VM to be made, and its proof of identity."""
        offering = request.offering
        now = self._now()
        proof, key = identity.issue(identity.Said(name, request.batch, now))
        boot = self._faults.take("boot", offering.type.name, offering.zone)
        record = VmRecord(
            id=name,
            batch=request.batch,
            slot=slot_of(name)[1],
            type=offering.type.name,
            zone=offering.zone,
            created_ms=now,
            ends_ms=request.ends_ms,
            spot=offering.market is Market.SPOT,
            tags=dict(request.tags),
            boot_delay_ms=catalogue.boot_delay_ms(self._settings, kind) + boot.delay_ms,
            grace_ms=self._settings.shutdown_grace,
            boot_fault=boot.boot,
            isolated=self._settings.isolate_tasks,
            identity_key=key,
        )
        return record, proof

    def _powered(self, folder: VmFolder, record: VmRecord) -> Vm:
        """The VM, switched on unless it has been: a driver may have died between making it and starting it."""
        if folder.machine() is None and not record.terminate_ms:
            power_on(folder, record.id)
        return self._vm(folder, record)

    def _find(self, vm: VmId) -> tuple[VmFolder, VmRecord]:
        if _VM_NAME.fullmatch(vm):
            folder = self._registry.folder(vm)
            try:
                record = self._read(folder)
            except Damaged as error:
                raise Transient(str(error)) from error
            if record is not None:
                return folder, record
        raise _not_found(vm)

    def _vm(self, folder: VmFolder, record: VmRecord) -> Vm:
        return Vm(
            id=VmId(record.id),
            state=self._state(folder, record),
            type=record.type,
            zone=record.zone,
            tags=dict(record.tags),
            created_ms=record.created_ms,
            slot=record.slot,
            address="127.0.0.1",
            spot=record.spot,
        )

    def _state(self, folder: VmFolder, record: VmRecord) -> VmState:
        """From the machine's process: what it last said counts only while exactly that process lives."""
        if record.terminate_ms:
            return VmState.STOPPING
        machine = folder.machine()
        if machine is None:
            return VmState.PENDING if self._now() - record.created_ms < _START_MS else VmState.STOPPED
        return _PHASES[machine.phase] if processes.alive(machine.process) else VmState.STOPPED


def _not_found(vm: VmId) -> VmNotFound:
    return VmNotFound(f"no local VM {vm}")


def _place(root: Path, own: Path) -> str:
    return OWN_ROOT if root == own.resolve() else str(root)
