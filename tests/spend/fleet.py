"""A fleet on paper: tasks of known length, one a VM, under a limit. Everything that decides is the product's own; that
a VM ends at its hard end and not before, and what it then has cost, is the paper's."""

from dataclasses import dataclass, field, replace

from cloud_dispatch.domain.money import HOUR_MS, Amount, Rate, cost
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import EVERYTHING, Commitment
from cloud_dispatch.spend.ends import FirstEnds, Holder, Pace, finish_of, first_ends, renew
from cloud_dispatch.spend.left import Left
from cloud_dispatch.spend.standing import Account, Standing
from cloud_dispatch.spend.windows import Window

MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS


@dataclass
class Vm:
    name: str
    commitment: Commitment
    ends_ms: int
    serves_ms: int
    task: int | None = None
    began_ms: int = 0
    told: int | None = None


@dataclass
class Fleet:
    """`lengths_ms` of the tasks, in the order in which they are taken. Where they are not `known`, the mean of those
    that have finished is expected of the others."""

    limit: int
    lengths_ms: list[int]
    rate: Rate = Rate(1_000_000_000)
    boot_ms: int = 2 * MINUTE_MS
    slack_ms: int = 5 * MINUTE_MS
    most: int = 1_000
    known: bool = True
    lifetime_ms: int = DAY_MS
    pace: Pace = field(default_factory=Pace)
    reserves: bool = True  # whether launches leave room to finish what runs
    now_ms: int = 0
    vms: list[Vm] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    spent: int = 0

    def __post_init__(self) -> None:
        self.waiting = list(range(len(self.lengths_ms)))
        self.budget = Budget(EVERYTHING, Window.TOTAL, Amount(self.limit))
        self._made = 0

    def run(self, step_ms: int = MINUTE_MS, horizon_ms: int = 60 * DAY_MS) -> int:
        """Until nothing can happen any more; how many tasks were finished."""
        while self.now_ms < horizon_ms:
            self.step()
            if not self.vms and (not self.waiting or not self._launch()):
                break
            self.now_ms += step_ms
        return len(self.finished)

    def step(self) -> None:
        for vm in list(self.vms):
            if vm.task is not None and vm.began_ms + self.lengths_ms[vm.task] <= min(self.now_ms, vm.ends_ms):
                self.finished.append(vm.task)
                vm.task = None
            if self.now_ms >= vm.ends_ms:
                self._end(vm)
        self._renew()
        self._launch()

    # -- what is decided
    def _renew(self) -> None:
        standing = Standing([self.budget], self._booked(), [vm.commitment for vm in self.vms], self.now_ms)
        idle = [vm for vm in self.vms if vm.task is None and vm.serves_ms <= self.now_ms]
        offered = dict(zip([vm.name for vm in idle], self.waiting, strict=False))
        holders = [self._holder(vm, offered.get(vm.name)) for vm in self.vms]
        found = {extension.name: extension for extension in renew(standing, holders, self.now_ms, self.pace).extensions}
        for vm in list(self.vms):
            if vm.name in found:
                vm.commitment, vm.ends_ms = found[vm.name].commitment, found[vm.name].ends_ms
            if vm in idle:
                task = offered.get(vm.name)
                if task is not None and self.now_ms + (self._told(task) or 0) <= vm.ends_ms:
                    self._take(vm, task)
                else:
                    self._end(vm)

    def _launch(self) -> bool:
        """One VM a waiting task, as many as are admitted."""
        launched = False
        coming = sum(vm.task is None for vm in self.vms)
        for task in self.waiting[coming:]:
            if len(self.vms) >= self.most:
                break
            holders = [self._holder(vm, None) for vm in self.vms]
            standing = Standing([self.budget], self._booked(), [vm.commitment for vm in self.vms], self.now_ms)
            told = self._told(task)
            first = first_ends(self.now_ms, self.boot_ms, told, self.lifetime_ms, self.pace, movable=True)
            wanted = Commitment(
                f"vm-{self._made}",
                (EVERYTHING,),
                self.rate,
                self.now_ms,
                first.ends_ms + self.slack_ms,
                MINUTE_MS,
                1_000,
            )
            ends_ms = self._admitted(standing, holders, wanted, first)
            if ends_ms is None:
                break
            self._made += 1
            wanted = replace(wanted, until_ms=ends_ms + self.slack_ms)
            self.vms.append(Vm(wanted.name, wanted, ends_ms, self.now_ms + self.boot_ms, told=told))
            launched = True
        return launched

    def _admitted(self, standing: Standing, holders: list[Holder], wanted: Commitment, first: FirstEnds) -> int | None:
        """The hard end of a launch; None where it is not admitted."""
        if not self.reserves:
            return first.ends_ms if standing.refusal(wanted) is None else None
        taken = Left(standing, holders, self.now_ms, self.pace).take([wanted], first, self.slack_ms)
        return taken.ends_ms if taken.slots else None

    def _holder(self, vm: Vm, offered: int | None) -> Holder:
        finish, booting, busy = None, vm.serves_ms > self.now_ms, vm.task is not None
        if vm.task is not None:
            finish = finish_of(self.now_ms, vm.began_ms, self._told(vm.task) or 0)
        elif offered is not None or booting:
            told = vm.told if offered is None else self._told(offered)
            finish = None if told is None else max(self.now_ms, vm.serves_ms) + told
        return Holder(
            vm.commitment, vm.ends_ms, vm.commitment.from_ms + self.lifetime_ms, busy or booting,
            busy or booting or offered is not None, finish, self.slack_ms,
        )  # fmt: skip

    # -- what happens
    def _told(self, task: int) -> int | None:
        if self.known:
            return self.lengths_ms[task]
        if not self.finished:
            return None
        return sum(self.lengths_ms[done] for done in self.finished) // len(self.finished)

    def _take(self, vm: Vm, task: int) -> None:
        self.waiting.remove(task)
        vm.task, vm.began_ms = task, self.now_ms

    def _end(self, vm: Vm) -> None:
        """It bills all of its slack: the hand that ends it is as slow as it may be."""
        self.vms.remove(vm)
        if vm.task is not None:
            self.waiting.insert(0, vm.task)
        lived = replace(vm.commitment, until_ms=min(self.now_ms, vm.ends_ms) + self.slack_ms)
        self.spent += cost(self.rate, lived.billed_until_ms - lived.from_ms)

    def _booked(self) -> dict[Account, Amount]:
        return {Account(EVERYTHING, Window.TOTAL, 0): Amount(self.spent)}

    def clairvoyant(self) -> int:
        """How many tasks the limit pays for, if every VM ends with its last task and one boots for each."""
        left, count = self.limit, 0
        for length in sorted(self.lengths_ms):
            left -= cost(self.rate, length + self.boot_ms)
            if left < 0:
                break
            count += 1
        return count
