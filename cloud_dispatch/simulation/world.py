"""A run's world: clouds, VMs, network, dispatcher and statestore on one virtual loop. Owns who tells whom what happens.

It carries out the scenario's work and faults and keeps the truth that checkers look at. It never looks into the
dispatcher to decide anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.ids import InstanceId, ProfileName, TaskId, VmId
from cloud_dispatch.domain.task import RetryRules, TaskSpec, Transfer
from cloud_dispatch.ports.store import Store, TaskFilter
from cloud_dispatch.provider.spi import Provider, VmState
from cloud_dispatch.simulation import conduct
from cloud_dispatch.simulation.attempts import VirtualAttempt
from cloud_dispatch.simulation.checkers.base import Checker, Finding, Process
from cloud_dispatch.simulation.clock import VirtualClock
from cloud_dispatch.simulation.disk import Disk
from cloud_dispatch.simulation.dispatcher import House, Incarnation
from cloud_dispatch.simulation.entropy import SeededEntropy, SeededStreams
from cloud_dispatch.simulation.facts import Commit, commit_of
from cloud_dispatch.simulation.faults import Fault, FaultKind
from cloud_dispatch.simulation.guest import Guest
from cloud_dispatch.simulation.journal import Journal
from cloud_dispatch.simulation.loop import VirtualLoop
from cloud_dispatch.simulation.network import Network
from cloud_dispatch.simulation.ports import CloudAccount, EndCause, TrueVm
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.wire.messages import Policy

T = TypeVar("T")
LOOK_MS = 5_000
_LOOKS = 3_000
#: A broken promise breaks on and on: this many findings of one checker are enough.
FINDINGS_A_CHECKER = 3
#: With so many findings a run has said enough.
ENOUGH = 10
_WATCH_MS = 500
_RETRY_MS = 1_000
_TRIES = 3_600
_SUBMIT_AT_ONCE = 5_000
#: An incarnation that ends by itself is started again by its supervisor after so long.
_RESTART_MS = 1_000
_EARLIER_BACKUPS = 100


class World:
    """See the module. Implements what clouds, guests, the network and the dispatcher's ports ask of a world."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        disk: Disk,
        journal: Journal,
        accounts: Sequence[CloudAccount],
        streams: SeededStreams,
        clock: VirtualClock,
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.disk = disk
        self.journal = journal
        self.accounts = accounts
        self.clock = clock
        #: What the dispatcher takes for the time: a fault may set it wrong.
        self.told = VirtualClock(loop)
        self.streams = streams
        self.checkers: list[Checker] = []
        self.findings: list[Finding] = []
        self.guests: dict[VmId, Guest] = {}
        self.processes: dict[tuple[VmId, int], Process] = {}
        self.alive: dict[VmId, TrueVm] = {}
        self.incarnation: Incarnation | None = None
        #: Set when everything is over, time is up, or enough was found.
        self.ended = asyncio.Event()
        self.deaths = 0
        #: Called with each incarnation once it is assembled: tests plant bugs by it.
        self.plants: list[Callable[[Incarnation], None]] = []
        self.commits = 0
        self.network = Network(loop, clock, streams, self, scenario.latency_ms)
        self.policy = self._policy()
        self._incarnations = 0
        self._holding: list[Fault] = []
        self._traps: list[Any] = []  # [fault, how often its point may still be passed]
        self._well_since_ms: int | None = None
        self._unsubmitted = 0
        self._own = Context()  # what the world does is never the work of an incarnation that is dying
        self._tasks: set[asyncio.Task[Any]] = set()
        self._backups: dict[int, Any] = {}
        for account in accounts:
            account.attach(self)

    # -- the view of checkers
    @property
    def now_ms(self) -> int:
        return self.loop.now_ms

    @property
    def store(self) -> Store | None:
        living = self.incarnation
        return living.store if living is not None and not living.dead() else None

    @property
    def healthy_since_ms(self) -> int | None:
        return self._well_since_ms

    def report(self, checker: str, text: str) -> None:
        if sum(finding.checker == checker for finding in self.findings) < FINDINGS_A_CHECKER:
            self.findings.append(Finding(checker, self.now_ms, text))
            self.journal.note("FINDING", f"{checker}: {text}")

    # -- running
    def start(self) -> None:
        """Bring everything about that the scenario says, each at its time."""
        scenario = self.scenario
        self._start_dispatcher()
        for number, work in enumerate(scenario.work):
            self._unsubmitted += 1
            self.at(work.submit_ms, partial(self._begin_work, number, work))
        for fault in scenario.faults:
            self._schedule(fault)
        self.at(self._look_ms, self._look)
        self._watch()

    def _watch(self) -> None:
        if self.over or self.now_ms >= self.scenario.horizon_ms or len(self.findings) >= ENOUGH:
            self.ended.set()
        else:
            self.at(self.now_ms + _WATCH_MS, self._watch)

    @property
    def _look_ms(self) -> int:
        """A long run is looked at less often: what a look finds does not go away by itself."""
        return max(LOOK_MS, self.scenario.horizon_ms // _LOOKS)

    def at(self, moment_ms: int, callback: Callable[[], Any]) -> None:
        self.loop.at_ms(max(moment_ms, self.loop.now_ms), callback, context=self._own)

    def go(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` as the world's own."""
        task = self.loop.create_task(work, context=self._own)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() and not self.ended.is_set():
            self.report("world", f"the simulator's own {task.get_coro()} was cancelled")
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report("world", f"the simulator broke: {error!r}")
            raise error

    @property
    def over(self) -> bool:
        """Whether all work and all VMs have ended and nothing is to go wrong any more."""
        store = self.store
        if self._unsubmitted or store is None or self.now_ms < self.scenario.quiet_ms or self._holding:
            return False
        counts = store.task_counts()
        ended = sum(count for state, count in counts.items() if state in ("succeeded", "failed", "cancelled"))
        return ended == sum(counts.values()) and not self.alive and not store.instances()

    def end(self) -> None:
        """Let every checker have its last word."""
        if not self.over:
            self.report("progress", self._unfinished())
        for checker in self.checkers:
            checker.look()
            checker.end()

    def _unfinished(self) -> str:
        store = self.store
        counts = {str(k): v for k, v in store.task_counts().items() if v} if store is not None else "the store is down"
        rows = [f"{row.id} {row.state}" for row in store.instances().values()][:5] if store is not None else []
        alive = [f"{vm.id} {vm.state}" for vm in self.alive.values()][:5]
        return f"not over after {self.now_ms} ms: tasks {counts}, VMs {alive}, rows {rows}"

    def _look(self) -> None:
        self._judge_health()
        for checker in self.checkers:
            checker.look()
        self.at(self.now_ms + self._look_ms, self._look)

    # -- the dispatcher
    def _policy(self) -> Policy:
        timing, agents = self.scenario.timing, self.scenario.agents
        return Policy(
            heartbeat_ms=timing.heartbeat_ms,
            lease_ms=timing.lease_ms,
            poll_ms=timing.poll_ms,
            kill_grace_ms=agents.kill_grace_ms,
            silence_ms=agents.silence_ms,
        )

    def _start_dispatcher(self) -> None:
        scenario = self.scenario
        self._incarnations += 1
        house = House(
            pools=scenario.pools,
            caps=scenario.caps,
            profile_caps={account.profile: account.caps for account in scenario.accounts},
            timing=scenario.timing,
            policy=self.policy,
            plan_ms=scenario.plan_ms,
            drivers=self._drivers,
            clock=self.told,
            entropy=SeededEntropy(self.streams),
            folder=self.disk.folder,
        )
        living = self.incarnation = Incarnation(self._incarnations, house, self.disk, self.loop, self.network, self)
        living.assembled = self._plant
        self.journal.note("dispatcher", f"starts, incarnation {living.number}")
        self.go(self._supervise(living))

    def _plant(self, living: Incarnation) -> None:
        for plant in self.plants:
            plant(living)
        self._watch_steps()
        self._judge_health()

    async def _supervise(self, living: Incarnation) -> None:
        """Whatever ends an incarnation by itself starts the next one after a while."""
        life = self.loop.start(living.live(), living.group, name=f"dispatcher {living.number}")
        await asyncio.wait({life})
        if living.dead() or living.stopped:
            return
        error = None if life.cancelled() else life.exception()
        if not isinstance(error, DispatchError):
            self.report("world", f"the dispatcher ended by itself: {error!r}")
        self.journal.note("dispatcher", f"ended by itself: {error}")
        await self._die(_RESTART_MS)

    def _drivers(self) -> dict[ProfileName, Provider]:
        return {
            spec.profile: account.driver(spec.profile)
            for spec, account in zip(self.scenario.accounts, self.accounts, strict=True)
        }

    def crash(self, down_ms: int, restore: Any = None) -> None:
        """The dispatcher dies now, whatever it does; it is back after `down_ms`, on the backup `restore` if given."""
        living = self.incarnation
        if living is None or living.dead():
            return
        self.deaths += 1
        self.journal.note("dispatcher", f"dies, incarnation {living.number}")
        living.die()
        self._watch_steps()
        self._judge_health()
        self.loop.call_soon(self.go, self._bury(living, down_ms, restore), context=self._own)

    async def _die(self, down_ms: int) -> None:
        self.crash(down_ms)

    async def _bury(self, dead: Incarnation, down_ms: int, restore: Any) -> None:
        await dead.bury()
        if restore is not None:
            self.disk.restore(restore)
            for checker in self.checkers:
                checker.restored()
        await asyncio.sleep(max(down_ms, 1) / 1000)
        self._start_dispatcher()

    async def _stop(self, down_ms: int) -> None:
        """A stop as an operator wants it; a crash may come in between."""
        living = self.incarnation
        if living is None or living.dead() or living.parts is None:
            return
        self.journal.note("dispatcher", f"is stopped, incarnation {living.number}")
        stopping = self.loop.start(living.stop(), living.group)
        await asyncio.wait({stopping})
        if living.dead():
            return
        living.cut.severed = True
        self._judge_health()
        await asyncio.sleep(max(down_ms, 1) / 1000)
        self._start_dispatcher()

    async def inside(self, work: Callable[[Incarnation], Coroutine[Any, Any, T]], tries: int = _TRIES) -> T | None:
        """What `work` gives, done among the tasks of the living incarnation; tried again when that dies or its store
        refuses. None when it was all in vain."""
        for _ in range(tries):
            living = self.incarnation
            if living is not None and living.parts is not None and not living.dead() and not living.stopped:
                task = self.loop.start(work(living), living.group)
                await asyncio.wait({task})
                if not task.cancelled():
                    error = task.exception()
                    if error is None:
                        return task.result()
                    self.journal.note("world", f"refused: {error}")
                    if not isinstance(error, DispatchError):
                        raise error
            await asyncio.sleep(_RETRY_MS / 1000)
        return None

    # -- work
    def _begin_work(self, number: int, work: Work) -> None:
        self.go(self._submit(number, work))

    async def _submit(self, number: int, work: Work) -> None:
        for first in range(0, work.count, _SUBMIT_AT_ONCE):
            count = min(work.count - first, _SUBMIT_AT_ONCE)
            specs = [self._spec(work, f"w{number}-{first + i}") for i in range(count)]

            async def submit(living: Incarnation, specs: list[TaskSpec] = specs) -> None:
                assert living.store is not None
                await living.store.submit(specs)

            await self.inside(submit)
        self._unsubmitted -= 1

    def _spec(self, work: Work, key: str) -> TaskSpec:
        return TaskSpec(
            argv=conduct.command(work.conduct),
            shape=work.shape,
            expected_runtime_ms=work.expected_ms,
            max_runtime_ms=work.max_runtime_ms,
            priority=work.priority,
            retry=RetryRules(max_attempts=work.max_attempts),
            outputs=tuple(Transfer(path) for path in work.outputs),
            user=work.user,
            project=work.project,
            # A submission whose answer is lost is sent again; where nothing is lost the keys would only cost.
            idempotency_key=key if self.scenario.faults else "",
        )

    # -- faults
    def _schedule(self, fault: Fault) -> None:
        self.at(fault.at_ms, lambda: self._begin(fault))
        if fault.kind is FaultKind.RESTORE:
            self.at(max(fault.at_ms - fault.amount, 1), lambda: self._back_up(fault))

    def _begin(self, fault: Fault) -> None:
        self.journal.note("fault", fault.describe())
        instant = _INSTANT.get(fault.kind)
        if instant is not None:
            instant(self, fault)
            return
        if fault.until_ms <= self.now_ms:
            return
        self._holding.append(fault)
        if fault.kind is FaultKind.CLOCK:
            self.told.step_ms = fault.amount
        if fault.kind is FaultKind.PAUSE:
            self._pause(True)
        self._judge_health()
        self.at(fault.until_ms, lambda: self._cease(fault))

    def _cease(self, fault: Fault) -> None:
        self._holding.remove(fault)
        self.journal.note("fault", f"over: {fault.describe()}")
        if fault.kind is FaultKind.CLOCK:
            self.told.step_ms = 0
        if fault.kind is FaultKind.PAUSE:
            self._pause(False)
        self._judge_health()

    def _set_trap(self, fault: Fault) -> None:
        if fault.point == "step" and fault.which == 0:
            self.crash(fault.amount)
            return
        self._traps.append([fault, max(fault.which, 1)])
        self._watch_steps()

    def _watch_steps(self) -> None:
        """Count the living incarnation's steps while a trap waits for one: that costs time."""
        living = self.incarnation
        wanted = living is not None and any(fault.point == "step" for fault, _ in self._traps)
        self.loop.watched = living.group if living is not None and wanted else None
        self.loop.trap = (lambda: self.point("step")) if wanted else None

    def point(self, name: str) -> None:
        """The dispatcher is at the point `name`: it dies there if a trap is set for it."""
        if not self._traps:
            return
        for trap in self._traps:
            fault, left = trap
            if fault.point == name:
                trap[1] = left - 1
        sprung = next((trap for trap in self._traps if trap[1] <= 0), None)
        if sprung is not None:
            self._traps.remove(sprung)
            self.crash(sprung[0].amount)

    def _back_up(self, fault: Fault) -> None:
        if self.store is not None and len(self._backups) < _EARLIER_BACKUPS:
            self._backups[id(fault)] = self.disk.copy()

    def _restore(self, fault: Fault) -> None:
        backup = self._backups.pop(id(fault), None)
        if backup is not None:
            self.crash(1_000, restore=backup)

    def _pause(self, paused: bool) -> None:
        living = self.incarnation
        if living is not None and living.parts is not None:
            living.parts.context.paused = paused

    def _choose_guest(self, which: int) -> Guest | None:
        living = [guest for guest in self.guests.values() if guest.shell is not None]
        return living[which % len(living)] if living else None

    def _crash_agent(self, fault: Fault) -> None:
        guest = self._choose_guest(fault.which)
        if guest is not None:
            self.journal.note(guest.vm.id, "its agent crashes")
            guest.crash_agent()

    def _hang_agent(self, fault: Fault) -> None:
        guest = self._choose_guest(fault.which)
        if guest is not None:
            self.journal.note(guest.vm.id, "its agent hangs")
            guest.hang_agent(self.scenario.agents.hang_ms)

    def _operate(self, fault: Fault) -> None:
        self.go(self._as_operator(fault))

    def _hold(self, fault: Fault) -> None:
        """Hold one instance, and let go of that one when the fault is over."""
        store = self.store
        chosen = _choose(store, fault.which) if store is not None else None
        if chosen is None:
            return

        async def resume(living: Incarnation) -> None:
            assert living.parts is not None
            with contextlib.suppress(DispatchError):
                await living.parts.fleet.resume(chosen, "as the scenario says")

        self._operate(fault)
        self.at(max(fault.until_ms, self.now_ms + 1_000), lambda: self.go(self.inside(resume)))

    async def _as_operator(self, fault: Fault) -> None:
        """Once, on what the living dispatcher has; a refusal is an answer."""
        living = self.incarnation
        if living is None or living.parts is None or living.store is None or living.dead():
            return
        work = _operator_act(living, fault)
        if work is not None:
            task = self.loop.start(work, living.group)
            await asyncio.wait({task})
            if (
                not task.cancelled()
                and (error := task.exception()) is not None
                and not isinstance(error, DispatchError)
            ):
                raise error

    # -- health: the time in which bounded promises count
    def _judge_health(self) -> None:
        living = self.incarnation
        well = (
            living is not None
            and not living.dead()
            and not living.stopped
            and living.parts is not None
            and not self._traps
            and not self._ails()
        )
        if not well:
            self._well_since_ms = None
        elif self._well_since_ms is None:
            self._well_since_ms = self.now_ms

    def _ails(self) -> bool:
        """Whether a fault of the scenario holds."""
        now = self.now_ms
        return any(fault.at_ms <= now < fault.ends_ms for fault in self.scenario.faults) or any(
            fault.from_ms <= now and (now < fault.until_ms or not fault.until_ms)
            for account in self.scenario.accounts
            for fault in account.faults
        )

    # -- what ports ask (severed.Hooks, network.Weather)
    def store_delay_ms(self) -> int:
        return sum(fault.amount for fault in self._holding if fault.kind is FaultKind.STORE_SLOW)

    def store_fails(self) -> bool:
        return any(fault.kind is FaultKind.STORE_FAILS for fault in self._holding)

    def committed(self, batch: Batch) -> None:
        self.commits += 1
        commit = commit_of(batch)
        self._note_commit(commit)
        for checker in self.checkers:
            checker.committed(commit)

    def loss_percent(self) -> int:
        return max((f.amount for f in self._holding if f.kind is FaultKind.LOSS), default=0) if self._holding else 0

    def extra_ms(self) -> int:
        return sum(f.amount for f in self._holding if f.kind is FaultKind.DELAY) if self._holding else 0

    def partitioned(self) -> bool:
        return bool(self._holding) and any(fault.kind is FaultKind.PARTITION for fault in self._holding)

    def _note_commit(self, commit: Commit) -> None:
        note = self.journal.note
        if commit.new_tasks:
            note("store", f"{len(commit.new_tasks)} tasks queued from {commit.new_tasks[0]}")
        for live in commit.live:
            holder = f" by {live.instance} under {live.token}" if live.instance else ""
            note("store", f"task {live.task} {live.state}{holder}")
        for task, state in commit.ended:
            note("store", f"task {task} {state}")
        for instance in commit.instances:
            note("store", f"instance {instance.id} {instance.state} {instance.cause}".rstrip())

    # -- what clouds tell (ports.Guests)
    def on_boot(self, vm: TrueVm, user_data: str) -> None:
        self.journal.note(vm.id, "boots")
        guest = Guest(vm, user_data, self.loop, self.network, self.streams.stream("guest", vm.batch, vm.id), self)
        self.guests[vm.id] = guest
        guest.boot()

    def on_end(self, vm: TrueVm, cause: EndCause) -> None:
        self.journal.note(vm.id, f"ends: {cause}")
        guest = self.guests.pop(vm.id, None)
        if guest is not None:
            guest.die()

    def on_notice(self, vm: TrueVm, ends_ms: int) -> None:
        self.journal.note(vm.id, f"is told that it ends in {ends_ms - self.clock.now()} ms")
        guest = self.guests.get(vm.id)
        if guest is not None:
            guest.notice()

    def on_change(self, vm: TrueVm) -> None:
        self.journal.note(vm.id, str(vm.state))
        if vm.state is VmState.GONE:
            self.alive.pop(vm.id, None)
        else:
            self.alive[vm.id] = vm
        for checker in self.checkers:
            checker.vm_changed(vm)

    # -- what guests tell (guest.Watcher)
    def process_started(self, vm: TrueVm, attempt: VirtualAttempt) -> None:
        process = Process(vm, attempt.order.task, attempt.token, self.now_ms, attempt.unkillable)
        self.processes[vm.id, attempt.token] = process
        self.journal.note(vm.id, f"runs task {process.task} under {process.token}")
        for checker in self.checkers:
            checker.process_started(process)

    def process_ended(self, vm: TrueVm, attempt: VirtualAttempt) -> None:
        process = self.processes.pop((vm.id, attempt.token), None)
        if process is not None:
            self.journal.note(vm.id, f"task {process.task} under {process.token} runs no more")
            for checker in self.checkers:
                checker.process_ended(process)

    def note(self, who: str, what: str) -> None:
        self.journal.note(who, what)

    def registered(self, vm: TrueVm, instance: str) -> None:
        self.journal.note(vm.id, f"is registered as {instance}")
        for checker in self.checkers:
            checker.registered(vm, instance)

    def powered_off(self, vm: TrueVm) -> None:
        for account in self.accounts:
            if account.name == vm.account:
                account.guest_shuts_down(vm.id)


def _operator_act(living: Incarnation, fault: Fault) -> Coroutine[Any, Any, Any] | None:
    """What an operator does to one of the instances or tasks that the dispatcher shows; None if there is none."""
    assert living.parts is not None
    assert living.store is not None
    if fault.kind is FaultKind.CANCEL:
        return _cancel(living.store, fault.which)
    chosen = _choose(living.store, fault.which)
    if chosen is None:
        return None
    verb = getattr(living.parts.fleet, str(fault.kind))
    act: Coroutine[Any, Any, Any] = verb(chosen, "as the scenario says")
    return act


def _choose(store: Store, which: int) -> InstanceId | None:
    rows = list(store.instances())
    return rows[which % len(rows)] if rows else None


async def _cancel(store: Store, which: int) -> None:
    last = sum(store.task_counts().values())
    if last:
        await store.cancel(TaskFilter(ids=(TaskId(which % last + 1),)))


_INSTANT: Mapping[FaultKind, Callable[[World, Fault], None]] = {
    FaultKind.CRASH: World._set_trap,
    FaultKind.STOP: lambda world, fault: world.go(world._stop(fault.amount)),
    FaultKind.RESTORE: World._restore,
    FaultKind.AGENT_CRASH: World._crash_agent,
    FaultKind.AGENT_HANG: World._hang_agent,
    FaultKind.DRAIN: World._operate,
    FaultKind.HOLD: World._hold,
    FaultKind.KILL: World._operate,
    FaultKind.CANCEL: World._operate,
}
