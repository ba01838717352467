"""The fake as a whole: its accounts and regions, and what tests may ask and do. Knows nothing of HTTP."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from tests.fakes.aws.errors import AwsError
from tests.fakes.clock import Clock, RealClock, SetClock
from tests.fakes.ec2.records import Address, Instance, Snapshot
from tests.fakes.ec2.region import Hooks, Region
from tests.fakes.ec2.settings import ACCOUNT, REGION, Bucket, Settings
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
    """What one instance is billed for; `ended_ms` 0 while it runs."""

    id: str
    type: str
    zone: str
    market: str
    token: str
    running_ms: int
    ended_ms: int


class Cloud:
    """AWS, as far as it is modelled. Thread-safe: one lock is held over every request and every question."""

    def __init__(self, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or Settings()
        self.clock: Clock = clock or RealClock()
        self.lock = threading.RLock()
        self.timers = Timers(self.clock)
        self.faults = Faults(KINDS, self.clock.now())
        self.hooks = Hooks()
        self.keys = {key.id: key for key in self.settings.keys}
        #: Actions that nobody may do, as "ec2:RunInstances".
        self.denied: set[str] = set()
        #: Actions that may be done only to what carries this tag (key, value; "*" for any). What is gone does not.
        self.scoped: dict[str, tuple[str, str]] = {}
        #: Requests that arrived, by operation.
        self.calls: Counter[str] = Counter()
        #: What must stay empty in a good test: requests for what the fake has not, and bugs of the fake.
        self.unmodelled: list[str] = []
        self.bugs: list[str] = []
        self._regions: dict[tuple[str, str], Region] = {}
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}

    # what tests ask and do

    def region(self, name: str = REGION, account: str = ACCOUNT) -> Region:
        """The state of a region of an account; hold `lock` while you use it from a test."""
        with self.lock:
            if name not in self.settings.regions:
                raise AwsError("AuthFailure", f"the fake has no region {name}")
            if (account, name) not in self._regions:
                self._regions[account, name] = Region(
                    account, name, self.settings, self.timers, self.faults, lambda: self.hooks
                )
            return self._regions[account, name]

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
        """Every instance that is still known, of all accounts and regions, in the order of launches."""
        with self.lock:
            self.tick()
            return [vm for region in self._regions.values() for vm in region.instances.values()]

    def regions_in_use(self) -> list[Region]:
        """Regions that were spoken to."""
        with self.lock:
            return list(self._regions.values())

    def instance(self, identity: str) -> Instance:
        """The instance of this id, in whichever region."""
        return next(vm for vm in self.all_instances() if vm.id == identity)

    def interrupt(self, identity: str, notice_ms: int | None = None) -> None:
        """Take a spot instance back, after the notice of the settings or this one."""
        with self.lock:
            vm = self.instance(identity)
            self._region_of(vm).notify(vm, self.settings.notice_ms if notice_ms is None else notice_ms)

    def rebalance(self, identity: str) -> None:
        """Recommend that a spot instance be replaced."""
        with self.lock:
            vm = self.instance(identity)
            self._region_of(vm).rebalance(vm)

    def guest_shutdown(self, identity: str) -> None:
        """The guest shuts itself down."""
        with self.lock:
            vm = self.instance(identity)
            self._region_of(vm).guest_shutdown(vm)

    def kill(self, identity: str) -> None:
        """The host fails: EC2 ends the instance by itself."""
        with self.lock:
            vm = self.instance(identity)
            self._region_of(vm).terminate(vm, "Server.InternalError", "Internal error on launch")

    def hide(self, identity: str, ms: int) -> None:
        """Reads do not know the instance for so long: not being seen is no proof of being gone."""
        with self.lock:
            self.instance(identity).hidden_ms = self.clock.now() + ms

    def write_console(self, identity: str, text: str) -> None:
        """Add to what GetConsoleOutput shows."""
        with self.lock:
            self.instance(identity).console += text

    def hold_address(self) -> str:
        """Have the account hold an elastic address; its allocation id comes back."""
        with self.lock:
            region = self.region()
            address = Address(region.new_id("eipalloc"), f"52.0.0.{len(region.addresses) + 1}")
            region.addresses[address.allocation] = address
            return address.allocation

    def keep_snapshot(self, volume: str = "vol-0123456789abcdef0") -> str:
        """Have the account own a snapshot; its id comes back."""
        with self.lock:
            region = self.region()
            snapshot = Snapshot(region.new_id("snap"), volume, 20, self.clock.now())
            region.snapshots[snapshot.id] = snapshot
            return snapshot.id

    def bill(self) -> list[BillLine]:
        """Who ran when, the instances included that are forgotten."""
        with self.lock:
            self.tick()
            ever = [vm for region in self._regions.values() for vm in region.ever]
            return [
                BillLine(vm.id, vm.type_name, vm.zone, vm.market, vm.reservation.token, vm.running_ms, vm.ended_ms)
                for vm in ever
                if vm.running_ms
            ]

    def leftovers(self) -> list[str]:
        """Disks, interfaces and addresses that cost money without an instance."""
        with self.lock:
            self.tick()
            found = []
            for region in self._regions.values():
                found += [volume.id for volume in region.volumes.values() if not volume.instance]
                found += [interface.id for interface in region.interfaces.values() if not interface.instance]
                found += [address.allocation for address in region.addresses.values() if not address.instance]
            return found

    def _region_of(self, vm: Instance) -> Region:
        return next(region for region in self._regions.values() if vm.id in region.instances)

    def throttle(self, region: Region, what: str, bucket: Bucket, count: int = 1) -> None:
        """Take from a bucket of the account in the region, or refuse."""
        key = (region.account, region.name, what)
        if key not in self._buckets:
            self._buckets[key] = TokenBucket(bucket.burst, bucket.per_second, region.now)
        if not self._buckets[key].take(count, region.now):
            raise AwsError("RequestLimitExceeded", "Request limit exceeded.")
