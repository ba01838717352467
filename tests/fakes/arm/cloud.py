"""The fake as a whole, and what tests may ask and do. Knows nothing of HTTP."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from tests.fakes.arm.authority import Authority
from tests.fakes.arm.estate import Estate, Hooks
from tests.fakes.arm.records import BILLED, Condition, Phase, Power, Vm
from tests.fakes.arm.settings import Bucket, Settings
from tests.fakes.clock import Clock, RealClock, SetClock
from tests.fakes.faults import Fault, FaultKind, Faults
from tests.fakes.throttle import TokenBucket
from tests.fakes.timers import Timers

#: Kinds of faults beyond those of calls.
KINDS = (
    FaultKind.ASYNC_FAILURE, FaultKind.CAPACITY, FaultKind.QUOTA, FaultKind.PRICE, FaultKind.LEFTOVER,
    FaultKind.NEVER_STARTS, FaultKind.LATE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BillLine:
    """What one VM is billed for; `ended_ms` 0 while it is."""

    id: str
    type: str
    zone: str
    market: str
    running_ms: int
    ended_ms: int


class Cloud:
    """Azure, as far as it is modelled. Thread-safe: one lock is held over every request and every question."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.clock: Clock = clock or RealClock()
        self.lock = threading.RLock()
        self.timers = Timers(self.clock)
        self.faults = Faults(KINDS, self.clock.now())
        self.hooks = Hooks()
        self.authority = Authority(self.settings)
        self.estate = Estate(self.settings, self.timers, self.faults, lambda: self.hooks)
        #: Actions that nobody may do, as "Microsoft.Compute/virtualMachines/write".
        self.denied: set[str] = set()
        #: Requests that arrived, by operation.
        self.calls: Counter[str] = Counter()
        #: What must stay empty in a good test: requests for what the fake has not, and bugs of the fake.
        self.unmodelled: list[str] = []
        self.bugs: list[str] = []
        self._buckets: dict[str, TokenBucket] = {}

    @property
    def problems(self) -> list[str]:
        """What fails a test."""
        return [*(f"not modelled: {what}" for what in self.unmodelled), *(f"bug: {bug}" for bug in self.bugs)]

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

    def all_vms(self) -> list[Vm]:
        """Every VM that there is, in the order of their making; failed ones too."""
        with self.lock:
            self.tick()
            return list(self.estate.vms.values())

    def vm(self, name: str) -> Vm:
        """By its name or its id; the latest of that name, gone or not."""
        wanted = name.lower()
        with self.lock:
            self.tick()
            return next(vm for vm in reversed(self.estate.ever) if wanted in (vm.name.lower(), vm.key))

    def evict(self, name: str, notice_ms: int | None = None) -> None:
        """Take a spot VM back, after the notice of the settings or this one."""
        with self.lock:
            self.estate.notify(self.vm(name), self.settings.notice_ms if notice_ms is None else notice_ms)
            self.tick()

    def forget_operations(self) -> None:
        """Those that have ended, before their time."""
        with self.lock:
            for key in [key for key, one in self.estate.operations.items() if one.ended_ms]:
                del self.estate.operations[key]

    def guest_shutdown(self, name: str) -> None:
        """The guest powers itself off: stopped, and billed on."""
        with self.lock:
            self.estate.guest_shutdown(self.vm(name))

    def kill(self, name: str) -> None:
        """The host fails for good: the VM is there and stopped."""
        with self.lock:
            vm = self.vm(name)
            self.estate.become(vm, Condition(vm.phase, Power.STOPPED))
            self.hooks.on_stop(vm)

    def remove(self, name: str) -> None:
        """Somebody else deletes it."""
        with self.lock:
            self.estate.remove(self.vm(name))

    def hide(self, name: str, ms: int) -> None:
        """Reads do not know it for so long: not being seen is no proof of being gone."""
        with self.lock:
            self.vm(name).hidden_ms = self.clock.now() + ms

    def write_console(self, name: str, text: str) -> None:
        """Add to what boot diagnostics show."""
        with self.lock:
            self.vm(name).console += text

    def lock_scope(self, scope: str) -> None:
        """Nothing in this scope (an id, or the start of ids) may be deleted: a lock of the owner's."""
        with self.lock:
            self.estate.locks.add(scope.lower())

    def unlock_scope(self, scope: str) -> None:
        with self.lock:
            self.estate.locks.discard(scope.lower())

    def bill(self) -> list[BillLine]:
        """Who ran when, those included that are gone."""
        with self.lock:
            self.tick()
            return [
                BillLine(vm.id, vm.size.name, vm.place, vm.market, vm.running_ms, vm.ended_ms)
                for vm in self.estate.ever
                if vm.running_ms
            ]

    def billed(self) -> list[Vm]:
        """VMs that cost money now."""
        return [vm for vm in self.all_vms() if vm.power in BILLED]

    def leftovers(self) -> list[str]:
        """Ids of disks, interfaces and addresses that nobody uses, and of VMs that failed or were deallocated."""
        with self.lock:
            self.tick()
            parts = [part.id for part in self.estate.parts.values() if not self.estate.user(part)]
            dead = [
                vm.id
                for vm in self.estate.vms.values()
                if vm.phase is Phase.FAILED or vm.power in (Power.DEALLOCATED, Power.STOPPED)
            ]
            return parts + dead

    def take(self, bucket: Bucket) -> bool:
        """Take from a bucket of an operation; whether there was enough."""
        now = self.clock.now()
        if bucket.operation not in self._buckets:
            self._buckets[bucket.operation] = TokenBucket(bucket.burst, bucket.per_second, now)
        return self._buckets[bucket.operation].take(1, now)
