"""The fake as a whole: its projects, and what tests may ask and do. Knows nothing of HTTP."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from tests.fakes.clock import Clock, RealClock, SetClock
from tests.fakes.faults import Fault, FaultKind, Faults
from tests.fakes.gce.project import Hooks, Project
from tests.fakes.gce.records import Instance
from tests.fakes.gce.settings import PROJECT, REGION, Bucket, Settings
from tests.fakes.google.errors import ApiError
from tests.fakes.google.oauth import Tokens
from tests.fakes.throttle import TokenBucket
from tests.fakes.timers import Timers

#: Kinds of faults beyond those of calls.
KINDS = (
    FaultKind.ASYNC_FAILURE, FaultKind.CAPACITY, FaultKind.QUOTA, FaultKind.LEFTOVER, FaultKind.NEVER_STARTS,
    FaultKind.LATE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BillLine:
    """What one instance is billed for; `ended_ms` 0 while it runs."""

    id: str
    name: str
    type: str
    zone: str
    market: str
    running_ms: int
    ended_ms: int


class Cloud:
    """Google Cloud, as far as it is modelled. Thread-safe: one lock is held over every request and every question."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.clock: Clock = clock or RealClock()
        self.lock = threading.RLock()
        self.timers = Timers(self.clock)
        self.faults = Faults(KINDS, self.clock.now())
        self.hooks = Hooks()
        self.tokens = Tokens((self.settings.caller,), self.settings.token_ms)
        #: Permissions that nobody has, as "compute.instances.create".
        self.denied: set[str] = set()
        #: Zones and regions that aggregated lists cannot reach.
        self.unreachable: set[str] = set()
        #: Warnings of aggregated lists by the zone or region that they are of, whose things are left out; "" for a
        #: whole page, which lacks nothing that could be seen.
        self.warned: dict[str, str] = {}
        #: Objects of Cloud Storage by bucket and name: their metadata.
        self.objects: dict[tuple[str, str], dict[str, str]] = {}
        #: Numbers of instances that lists leave out.
        self.hidden: set[int] = set()
        #: Requests that arrived, by operation, as "instances.insert".
        self.calls: Counter[str] = Counter()
        #: What must stay empty in a good test: requests for what the fake has not, and bugs of the fake.
        self.unmodelled: list[str] = []
        self.bugs: list[str] = []
        self._projects: dict[str, Project] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._left_out: Counter[tuple[str, int]] = Counter()

    # what tests ask and do

    def project(self, name: str = PROJECT) -> Project:
        """The state of a project, by its name or number; hold `lock` while you use it from a test."""
        with self.lock:
            numbers = {str(number): known for known, number in self.settings.projects.items()}
            name = numbers.get(name, name)
            if name not in self.settings.projects:
                raise ApiError("notFound", f"The resource 'projects/{name}' was not found")
            if name not in self._projects:
                number = self.settings.projects[name]
                self._projects[name] = Project(
                    name, number, self.settings, self.timers, self.faults, lambda: self.hooks
                )  # fmt: skip
            return self._projects[name]

    def tick(self) -> None:
        """Let happen what is due. A hook that fails is a bug that tests see."""
        with self.lock:
            try:
                self.timers.settle()
            except Exception as error:
                self.bugs.append(f"{type(error).__name__}: {error}")

    def add_faults(self, *faults: Fault) -> None:
        """From now on these too."""
        with self.lock:
            self.faults.add(*faults)

    def clear_faults(self) -> None:
        """No more faults."""
        with self.lock:
            self.faults.clear()

    def advance(self, ms: int) -> int:
        """Move a clock that stands, and let happen what is due by then; the new time comes back."""
        if not isinstance(self.clock, SetClock):
            raise ValueError("the clock is the machine's")
        with self.lock:
            self.clock.advance(ms)
            self.tick()
            return self.clock.now()

    def all_instances(self) -> list[Instance]:
        """Every instance that there is, of all projects, in the order of launches. TERMINATED ones are still there."""
        with self.lock:
            self.tick()
            return [vm for project in self._projects.values() for vm in project.instances.values()]

    def ever(self) -> list[Instance]:
        """The same with those that are gone."""
        with self.lock:
            self.tick()
            return [vm for project in self._projects.values() for vm in project.ever]

    def instance(self, identity: str) -> Instance:
        """The latest instance of this number or name, gone or not."""
        return next(vm for vm in reversed(self.ever()) if identity in (vm.id, vm.name))

    def preempt(self, identity: str, notice_ms: int | None = None) -> None:
        """Take a spot instance back, after the notice of the settings or this one."""
        with self.lock:
            vm = self.instance(identity)
            if not vm.spot:
                raise ValueError(f"{vm.name} is no spot VM")
            self.project(vm.project).preempt(vm, self.settings.notice_ms if notice_ms is None else notice_ms)
            self.tick()

    def guest_shutdown(self, identity: str) -> None:
        """The guest powers itself off."""
        with self.lock:
            vm = self.instance(identity)
            self.project(vm.project).guest_shutdown(vm)

    def kill(self, identity: str) -> None:
        """Its host fails."""
        with self.lock:
            vm = self.instance(identity)
            self.project(vm.project).host_error(vm)
            self.tick()

    def hide(self, identity: str, ms: int) -> None:
        """Leave it out of lists for a while."""
        with self.lock:
            number = self.instance(identity).number
            self.hidden.add(number)
            self.timers.after(ms, lambda: self.hidden.discard(number))

    def forget_operations(self) -> None:
        """Those that have ended, before their time."""
        with self.lock:
            for project in self._projects.values():
                for key in [key for key, one in project.operations.items() if one.done]:
                    del project.operations[key]

    def write_console(self, identity: str, text: str) -> None:
        """The guest says something on its console."""
        with self.lock:
            self.instance(identity).console += text

    def hold_address(
        self, name: str = "held", region: str = REGION, project: str = PROJECT, labels: dict[str, str] | None = None
    ) -> None:  # fmt: skip
        """A static address that nobody uses."""
        with self.lock:
            self.project(project).hold_address(region, name, labels)

    def bill(self) -> list[BillLine]:
        """What has run or runs."""
        return [
            BillLine(vm.id, vm.name, vm.type_name, vm.zone, vm.market, vm.running_ms, vm.ended_ms)
            for vm in self.ever()
            if vm.running_ms
        ]

    def leftovers(self) -> list[str]:
        """Disks and addresses that cost money without an instance, as "disk us-central1-a name"."""
        with self.lock:
            self.tick()
            found = []
            for project in self._projects.values():
                found += [f"disk {disk.zone} {disk.name}" for disk in project.disks.values() if not disk.user]
                found += [f"address {one.region} {one.name}" for one in project.addresses.values() if not one.user]
            return found

    @property
    def problems(self) -> list[str]:
        """What fails a test: requests for what the fake has not, and bugs of the fake."""
        return [*(f"not modelled: {what}" for what in self.unmodelled), *(f"bug: {bug}" for bug in self.bugs)]

    def check(self) -> None:
        """Fail where there is a problem."""
        if self.problems:
            raise AssertionError("; ".join(self.problems))

    def throttle(self, operation: str) -> None:
        """Take from the buckets of an operation and of all, or refuse."""
        for bucket in self.settings.buckets:
            if bucket.operation in ("", operation) and not self._bucket(bucket).take(1, self.timers.now):
                raise ApiError("rateLimitExceeded", "Rate Limit Exceeded")

    def charge(self, place: str, left_out: int) -> None:
        """Count what the filter of a list left out, in a region or "" for all, or refuse: a minute has no more."""
        key = place, self.timers.now // 60_000
        self._left_out[key] += left_out // self.settings.left_out
        if self._left_out[key] > self.settings.left_outs:
            raise ApiError("rateLimitExceeded", "Quota exceeded for quota metric 'Filtered list cost overhead'")

    def _bucket(self, bucket: Bucket) -> TokenBucket:
        if bucket.operation not in self._buckets:
            self._buckets[bucket.operation] = TokenBucket(bucket.burst, bucket.per_second, self.timers.now)
        return self._buckets[bucket.operation]
