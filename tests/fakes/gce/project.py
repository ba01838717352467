"""The state of one project, and how its instances begin and end. Knows nothing of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.faults import Fault, FaultKind, Faults, Market
from tests.fakes.gce import catalogue
from tests.fakes.gce.records import HOLDING, Address, Disk, Instance, Operation, Status, View
from tests.fakes.gce.settings import Settings
from tests.fakes.shown import HORIZON_MS
from tests.fakes.timers import Timers

SYSTEM = "system@google.com"


def place_of(metric: str, region: str) -> str:
    """Where a quota is counted: "" for what all regions share."""
    return "" if metric in catalogue.EVERYWHERE else region


def _nothing(vm: Instance) -> None:
    """What a hook does that nobody set."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is told of instances: that one runs, has notice of a preemption, runs no more. Under the fake's lock."""

    on_start: Callable[[Instance], None] = _nothing
    on_notice: Callable[[Instance], None] = _nothing
    on_stop: Callable[[Instance], None] = _nothing


@dataclass(eq=False)
class Project:
    """One project's."""

    name: str
    number: int
    settings: Settings
    timers: Timers
    faults: Faults
    hooks: Callable[[], Hooks]
    #: By zone and name; those that are gone stay until no list shows them, in `ever` for good.
    instances: dict[tuple[str, str], Instance] = field(default_factory=dict)
    fading: dict[int, Instance] = field(default_factory=dict)
    ever: list[Instance] = field(default_factory=list)
    disks: dict[tuple[str, str], Disk] = field(default_factory=dict)
    addresses: dict[tuple[str, str], Address] = field(default_factory=dict)
    operations: dict[tuple[str, str], Operation] = field(default_factory=dict)
    #: By method, scope and requestId: what was asked, and the operation that was answered.
    requests: dict[tuple[str, str, str], tuple[Any, Operation]] = field(default_factory=dict)
    #: By region and metric.
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    made: int = 0

    @property
    def now(self) -> int:
        """The fake's clock; while something happens by itself, when that was due."""
        return self.timers.now

    def next_number(self) -> int:
        """Another every time."""
        self.made += 1
        return self.made

    # operations

    def begin(self, kind: str, scope: str, target: str, target_id: str, user: str, request_id: str = "") -> Operation:
        """A new operation, PENDING."""
        made = Operation(
            self.next_number(), self.name, scope, kind, target, target_id, user, self.now, request_id
        )  # fmt: skip
        self.operations[scope, made.name] = made
        return made

    def finish(self, operation: Operation, *errors: dict[str, Any], status: int = 0) -> None:
        """It is DONE, with these errors."""
        operation.started_ms = operation.started_ms or self.now
        operation.ended_ms = self.now
        operation.errors, operation.http_status = list(errors), status
        key = (operation.scope, operation.name)

        def forget() -> None:
            self.operations.pop(key, None)

        self.timers.after(self.settings.operations_ms, forget)

    # how instances begin

    def admit(self, vm: Instance, operation: Operation) -> None:
        """It is being made: PROVISIONING, STAGING, RUNNING, and then the operation is done; or the operation fails and
        there never was one."""
        self.instances[vm.zone, vm.name] = vm
        self.ever.append(vm)
        self._count(vm, 1)
        for disk in vm.disks:
            disk.user = vm.name
            self.disks[disk.zone, disk.name] = disk
            self.used[vm.region, "DISKS_TOTAL_GB"] += disk.gb
        scope = (vm.type_name, vm.zone, Market(vm.market))
        take = self.faults.book.take
        failure = take(FaultKind.ASYNC_FAILURE, self.now, "instances.insert", *scope)
        if failure is None and self.room(vm) < 0:
            failure = Fault(FaultKind.ASYNC_FAILURE, code="ZONE_RESOURCE_POOL_EXHAUSTED")
        if failure is not None:
            code = failure.code or "INTERNAL_ERROR"
            self.timers.after(self.settings.provisioning_ms, lambda: self._stillborn(vm, operation, code))
            return
        if take(FaultKind.NEVER_STARTS, self.now, "instances.insert", *scope) is not None:
            operation.started_ms = self.now
            return
        late = take(FaultKind.LATE, self.now, "instances.insert", *scope)
        first = self.settings.provisioning_ms + (late.amount if late else 0)
        run = vm.runs

        def stage() -> None:
            if vm.runs == run and vm.status == Status.PROVISIONING:
                operation.started_ms = self.now
                self._become(vm, Status.STAGING)

        def start() -> None:
            if not operation.done:
                self.finish(operation)
            if vm.runs == run and vm.status == Status.STAGING:
                self._run(vm)

        self.timers.after(first, stage)
        self.timers.after(first + self.settings.staging_ms, start)

    def fail_insert(self, vm: Instance, operation: Operation, error: dict[str, Any], status: int) -> None:
        """An instance that could not even be counted: the operation says why, and nothing was made."""
        self.timers.after(self.settings.provisioning_ms, lambda: self.finish(operation, error, status=status))

    def _stillborn(self, vm: Instance, operation: Operation, code: str) -> None:
        where = f"projects/{self.name}/zones/{vm.zone}"
        message = (
            f"The zone '{where}' does not have enough resources available to fulfill the request.  Try a different "
            "zone, or try again later."
            if code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
            else f"a fault of the fake: {code}"
        )
        status = 403 if "QUOTA" in code else 503 if "EXHAUSTED" in code else 500
        self.finish(operation, {"code": code, "message": message}, status=status)
        if vm.view is not None:
            self._gone(vm, keep_disks=False)

    def _run(self, vm: Instance) -> None:
        vm.running_ms = self.now
        ends = self.now + vm.limit_ms if vm.limit_ms else 0
        view = self._changed(vm, Status.RUNNING)
        view.started_ms, view.ends_ms = self.now, ends
        run = vm.runs
        if ends:
            self.timers.after(vm.limit_ms, lambda: self._overdue(vm, run))
        self.hooks().on_start(vm)

    # how instances end

    def delete(self, vm: Instance, operation: Operation) -> None:
        """STOPPING, gone, and then the operation is done."""
        vm.deleting = True
        operation.started_ms = self.now
        self._end(vm, lambda: self._deleted(vm, operation))

    def preempt(self, vm: Instance, notice_ms: int) -> None:
        """Google takes a spot VM back: it is told, and ends after a while."""
        operation = self._by_itself("compute.instances.preempted", vm, "Instance was preempted.")
        vm.preempted, vm.notice_ms = True, self.now
        self.hooks().on_notice(vm)
        self._end(vm, lambda: self._ended(vm, operation), notice_ms)

    def host_error(self, vm: Instance) -> None:
        """The host fails; the VM is ended and not restarted."""
        operation = self._by_itself("compute.instances.hostError", vm, "Instance terminated by Compute Engine.")
        self._end(vm, lambda: self._ended(vm, operation, stop_only=True), 0)

    def guest_shutdown(self, vm: Instance) -> None:
        """The guest powers itself off: the VM is TERMINATED, its disks stay and cost."""
        if vm.status == Status.RUNNING:
            operation = self._by_itself("compute.instances.guestTerminate", vm, "Instance terminated by guest OS.")
            self._end(vm, lambda: self._ended(vm, operation, stop_only=True))

    def _overdue(self, vm: Instance, run: int) -> None:
        if vm.runs == run and vm.status == Status.RUNNING:
            kind = "delete" if vm.delete_at_end else "stop"
            operation = self._by_itself(kind, vm, "maxRunDuration is over.")
            vm.deleting = vm.delete_at_end
            self._end(vm, lambda: self._ended(vm, operation))

    def _by_itself(self, kind: str, vm: Instance, message: str) -> Operation:
        operation = self.begin(kind, f"zones/{vm.zone}", vm.path, vm.id, SYSTEM)
        operation.started_ms, operation.message = self.now, message
        return operation

    def _end(self, vm: Instance, after: Callable[[], None], in_ms: int | None = None) -> None:
        was_running = vm.status == Status.RUNNING
        vm.runs += 1
        if vm.status != Status.TERMINATED:
            self._become(vm, Status.STOPPING)
        if was_running:
            self.hooks().on_stop(vm)
        self.timers.after(self.settings.stopping_ms if in_ms is None else in_ms, after)

    def _deleted(self, vm: Instance, operation: Operation) -> None:
        if vm.view is not None:
            self._gone(vm, keep_disks=False)
        self.finish(operation)

    def _ended(self, vm: Instance, operation: Operation, *, stop_only: bool = False) -> None:
        self.finish(operation)
        if vm.view is None or vm.status == Status.TERMINATED:
            return
        if vm.delete_at_end and not stop_only:
            self._gone(vm, keep_disks=False)
        elif not vm.deleting:
            self._close(vm)
            self._count(vm, -1)
            view = self._changed(vm, Status.TERMINATED)
            view.stopped_ms, view.ends_ms = self.now, 0

    def _gone(self, vm: Instance, *, keep_disks: bool) -> None:
        if vm.status != Status.TERMINATED:
            self._close(vm)
            self._count(vm, -1)
        left = self.faults.book.take(
            FaultKind.LEFTOVER, self.now, "", vm.type_name, vm.zone, Market(vm.market)
        )  # fmt: skip
        for disk in vm.disks:
            disk.user = ""
            stays = keep_disks or not disk.auto_delete or (left is not None and left.code in ("", "disk"))
            if not stays:
                self.remove_disk(disk)
        if left is not None and left.code in ("", "address"):
            self.hold_address(vm.region, f"{vm.name}-ip", dict(vm.labels))
        del self.instances[vm.zone, vm.name]
        vm.shown.change(None, self.now + self.settings.changes_ms)
        self.fading[vm.number] = vm

        def fade() -> None:
            self.fading.pop(vm.number, None)

        self.timers.after(self.settings.changes_ms + HORIZON_MS, fade)

    # disks and addresses

    def remove_disk(self, disk: Disk) -> None:
        """It is no more."""
        if self.disks.pop((disk.zone, disk.name), None) is not None:
            self.used[disk.zone.rpartition("-")[0], "DISKS_TOTAL_GB"] -= disk.gb

    def hold_address(self, region: str, name: str, labels: dict[str, str] | None = None) -> Address:
        """A static address that nobody uses, and that costs."""
        number = self.next_number()
        text = f"35.192.{number // 250 % 250}.{number % 250 + 1}"
        made = Address(number, name, region, text, self.now, labels or {})
        self.addresses[region, name] = made
        return made

    # what there is

    def quota(self, region: str, metric: str) -> int:
        """The limit of a metric; faults of quotas speak of vCPUs."""
        limit = self.settings.region_quotas.get((region, metric))
        limit = self.settings.quotas.get(metric, catalogue.AMPLE) if limit is None else limit
        if metric.endswith("_CPUS") or metric == "CPUS":
            spot = metric == "PREEMPTIBLE_CPUS"
            for fault in self.faults.book.all_standing(FaultKind.QUOTA, self.now):
                kind = catalogue.machine_type(fault.type) if fault.type else None
                same = kind is None or metric in catalogue.counted(kind, spot, {})
                if same and fault.market in (None, Market.SPOT if spot else Market.ON_DEMAND):
                    limit = min(limit, fault.amount)
        return limit

    def room(self, vm: Instance) -> int:
        """How many more of its kind there is capacity for in its zone; below zero where there are too many already."""
        room = catalogue.AMPLE
        limit = self.settings.capacity.get((vm.type_name, vm.zone, vm.market))
        if limit is not None:
            room = limit - self._holding(lambda one: (one.kind, one.zone, one.spot) == (vm.kind, vm.zone, vm.spot))
        for fault in self.faults.book.all_standing(FaultKind.CAPACITY, self.now):
            if fault.speaks_of(vm.type_name, vm.zone, Market(vm.market)):
                taken = self._holding(lambda one, fault=fault: fault.speaks_of(one.type_name, one.zone,  # type: ignore[misc]
                                                                               Market(one.market)))  # fmt: skip
                room = min(room, fault.amount - taken)
        return room

    def _holding(self, counts: Callable[[Instance], bool]) -> int:
        return sum(1 for vm in self.instances.values() if vm.status in HOLDING and counts(vm))

    def _count(self, vm: Instance, sign: int) -> None:
        for metric, amount in vm.used.items():
            self.used[place_of(metric, vm.region), metric] += sign * amount

    def _close(self, vm: Instance) -> None:
        if vm.running_ms and not vm.ended_ms:
            vm.ended_ms = self.now

    def _become(self, vm: Instance, status: Status) -> None:
        self._changed(vm, status)

    def _changed(self, vm: Instance, status: Status) -> View:
        before = vm.view
        assert before is not None
        view = View(status, before.labels, before.started_ms, before.stopped_ms, before.ends_ms)
        vm.shown.change(view, self.now + self.settings.changes_ms)
        return view

    def relabel(self, vm: Instance, labels: dict[str, str]) -> None:
        """Other labels."""
        before = vm.view
        assert before is not None
        view = View(before.status, labels, before.started_ms, before.stopped_ms, before.ends_ms, before.message)
        vm.shown.change(view, self.now + self.settings.labels_ms)
