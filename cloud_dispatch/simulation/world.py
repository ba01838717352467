"""A run's world: clouds, VMs, network, dispatcher and statestore on one virtual loop. Owns who tells whom what happens.

It carries out the scenario's work and faults and keeps the truth that checkers look at. It never looks into the
dispatcher to decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.ids import ProfileName, VmId
from cloud_dispatch.domain.task import RetryRules, TaskSpec, Transfer
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.spi import Provider, VmState
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation import conduct
from cloud_dispatch.simulation.attempts import VirtualAttempt
from cloud_dispatch.simulation.checkers.base import Checker, Finding, Process, overriding
from cloud_dispatch.simulation.clock import VirtualClock
from cloud_dispatch.simulation.disk import Disk
from cloud_dispatch.simulation.dispatcher import House, Incarnation
from cloud_dispatch.simulation.entropy import SeededEntropy, SeededStreams
from cloud_dispatch.simulation.facts import Commit, commit_of
from cloud_dispatch.simulation.finish import PROGRESS, Finish
from cloud_dispatch.simulation.guest import Guest
from cloud_dispatch.simulation.journal import Journal
from cloud_dispatch.simulation.loop import VirtualLoop
from cloud_dispatch.simulation.network import Network
from cloud_dispatch.simulation.ports import CloudAccount, EndCause, TrueVm
from cloud_dispatch.simulation.scenario import Scenario, Work
from cloud_dispatch.simulation.troubles import Troubles
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.wire.messages import Policy

T = TypeVar("T")
LOOK_MS = 5_000
_LOOKS = 3_000
#: A look costs as much as there are VMs: no more of them in so long a time for each VM. Up to 50 VMs that is no limit.
LOOK_MS_A_VM = 100
#: A broken promise breaks on and on: this many findings of one checker are enough.
FINDINGS_A_CHECKER = 3
#: With so many findings a run has said enough.
ENOUGH = 10
#: Whether a run is over is looked at on this grid.
_WATCH_MS = 500
_RETRY_MS = 1_000
_TRIES = 36_000
_SUBMIT_AT_ONCE = 5_000
#: An incarnation that ends by itself is started again by its supervisor after so long.
_RESTART_MS = 1_000


class World:
    """See the module. Implements what clouds, guests, the network and the dispatcher's ports ask of a world."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        disk: Disk,
        journal: Journal,
        accounts: Mapping[ProfileName, CloudAccount],
        streams: SeededStreams,
        clock: VirtualClock,
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.disk = disk
        self.journal = journal
        self._by_profile = accounts
        self.accounts = tuple(dict.fromkeys(accounts.values()))  # some profiles may share one
        self.clock = clock
        #: What the dispatcher takes for the time: a fault may set it wrong.
        self.told = VirtualClock(loop, scenario.begins_ms)
        self.streams = streams
        self.checkers: list[Checker] = []
        self._on_commit: list[Callable[[Commit], None]] = []
        self._on_process: list[Callable[[Process], None]] = []
        self._on_process_end: list[Callable[[Process], None]] = []
        self._on_vm: list[Callable[[TrueVm], None]] = []
        self.findings: list[Finding] = []
        self.guests: dict[VmId, Guest] = {}
        self.processes: dict[tuple[VmId, int], Process] = {}
        self.alive: dict[VmId, TrueVm] = {}
        self.incarnation: Incarnation | None = None
        #: Set when everything is over, time is up, or enough was found.
        self.ended = asyncio.Event()
        self.deaths = 0
        #: Set while the statestore has lost commits that the living incarnation, or the last one, has made.
        self.fallen_back = False
        #: Called with each incarnation once it is assembled: tests plant bugs by it.
        self.plants: list[Callable[[Incarnation], None]] = []
        #: The run is over with the first finding of this checker.
        self.sought = ""
        self.commits = 0
        self.troubles = Troubles(self)
        self.network = Network(loop, clock, streams, self.troubles, scenario.latency_ms)
        self._incarnations = 0
        self._finish = Finish(self)
        self._well_since_ms: int | None = None
        self._unsubmitted = 0
        self._begun: list[tuple[int, Work]] = []  # what was to be submitted by now
        self._watching = False
        self._look_due_ms = 0
        self._own = Context()  # what the world does is never the work of an incarnation that is dying
        self._tasks: set[asyncio.Task[Any]] = set()
        for account in self.accounts:
            account.attach(self)

    # -- the view of checkers
    @property
    def now_ms(self) -> int:
        return self.loop.now_ms

    @property
    def told_ms(self) -> int:
        return self.told.now()

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
            self._watch_on()
            self.journal.write("FINDING", f"{checker}: {text}")

    @property
    def _said_enough(self) -> bool:
        return len(self.findings) >= ENOUGH or any(finding.checker == self.sought for finding in self.findings)

    # -- running
    def start(self) -> None:
        """Bring everything about that the scenario says, each at its time."""
        scenario = self.scenario
        self._on_commit = overriding(self.checkers, Checker.committed)
        self._on_process = overriding(self.checkers, Checker.process_started)
        self._on_process_end = overriding(self.checkers, Checker.process_ended)
        self._on_vm = overriding(self.checkers, Checker.vm_changed)
        self._start_dispatcher()
        for number, work in enumerate(scenario.work):
            self._unsubmitted += 1
            self.at(work.submit_ms, partial(self._begin_work, number, work))
        for fault in scenario.faults:
            self.troubles.schedule(fault)
        self.at(self._look_ms, self._look)
        self.at(-(-scenario.horizon_ms // _WATCH_MS) * _WATCH_MS, self.ended.set)
        self._watch()

    def _watch(self) -> None:
        """Look whether the run is over."""
        self._watching = False
        if self.over or self._said_enough:
            self.ended.set()
        else:
            self._watch_on()

    def _watch_on(self) -> None:
        """Look at the next moment of the grid. With work to come, or more VMs than pools keep, it can't be over."""
        near = not self._unsubmitted and self._finish.near()
        if not self._watching and (near or self._said_enough):
            self._watching = True
            self.at(self.now_ms - self.now_ms % _WATCH_MS + _WATCH_MS, self._watch)

    @property
    def _look_ms(self) -> int:
        """A long run is looked at less often: what a look finds does not go away by itself."""
        return max(LOOK_MS, self.scenario.horizon_ms // _LOOKS)

    def at(self, moment_ms: int, callback: Callable[[], Any]) -> None:
        self.loop.post(max(moment_ms, self.loop.now_ms), self._own, callback)

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
        """Whether all work has ended and nothing is to go wrong any more; see `finish`."""
        return not self._unsubmitted and self._finish.reached()

    def end(self) -> None:
        """Let every checker have its last word."""
        if not self.over:
            self.report(PROGRESS, self._finish.left())
        for checker in self.checkers:
            checker.look()
            checker.end()

    def _look(self) -> None:
        self.judge_health()
        if self.now_ms >= self._look_due_ms:
            self._look_due_ms = self.now_ms + LOOK_MS_A_VM * len(self.alive)
            for checker in self.checkers:
                checker.look()
        self.at(self.now_ms + self._look_ms, self._look)

    # -- the dispatcher
    def _policy(self, timing: Timing) -> Policy:
        agents = self.scenario.agents
        return Policy(
            heartbeat_ms=timing.heartbeat_ms,
            lease_ms=timing.lease_ms,
            poll_ms=timing.poll_ms,
            kill_grace_ms=agents.kill_grace_ms,
            silence_ms=agents.silence_ms,
            replace_ms=agents.replace_ms,
        )

    def _start_dispatcher(self) -> None:
        scenario, timing = self.scenario, self.troubles.timing()
        self._incarnations += 1
        house = House(
            pools=scenario.pools,
            caps=scenario.caps,
            profile_caps={account.profile: account.caps for account in scenario.accounts},
            driver_caps=scenario.driver_caps,
            timing=timing,
            policy=self._policy(timing),
            plan_ms=scenario.plan_ms,
            budgets=scenario.budgets,
            driver_names=scenario.drivers,
            pace=scenario.pace,
            guest_enforced=frozenset(account.profile for account in scenario.accounts if account.guest_enforced),
            drivers=self._drivers,
            clock=self.told,
            entropy=SeededEntropy(self.streams),
            folder=self.disk.folder,
        )
        self.troubles.house = house
        house = self.troubles.configured(house)
        living = self.incarnation = Incarnation(
            self._incarnations, house, self.disk, self.loop, self.network, self, self.troubles
        )
        living.assembled = self._plant
        self.journal.write("dispatcher", f"starts, incarnation {living.number}")
        self.go(self._supervise(living))

    def _plant(self, living: Incarnation) -> None:
        for plant in self.plants:
            plant(living)
        self.troubles.watch_steps()
        self.judge_health()

    async def _supervise(self, living: Incarnation) -> None:
        """Whatever ends an incarnation by itself starts the next one after a while."""
        life = self.loop.start(living.live(), living.group, name=f"dispatcher {living.number}")
        await asyncio.wait({life})
        if living.dead() or living.stopped:
            return
        error = None if life.cancelled() else life.exception()
        if not isinstance(error, DispatchError):
            self.report("world", f"the dispatcher ended by itself: {error!r}")
        self.journal.write("dispatcher", f"ended by itself: {error}")
        self.crash(_RESTART_MS)

    def _drivers(self) -> dict[ProfileName, Provider]:
        return {profile: account.driver(profile) for profile, account in self._by_profile.items()}

    def crash(self, down_ms: int, restore: Any = None) -> None:
        """The dispatcher dies now, whatever it does; it is back after `down_ms`, on the backup `restore` if given."""
        living = self.incarnation
        if living is None or living.dead():
            return
        self.deaths += 1
        self.journal.write("dispatcher", f"dies, incarnation {living.number}")
        living.die()
        self.troubles.watch_steps()
        self.judge_health()
        self.loop.call_soon(self.go, self._bury(living, down_ms, restore), context=self._own)

    async def _bury(self, dead: Incarnation, down_ms: int, restore: Any) -> None:
        await dead.bury()
        await self._begin_again(down_ms, restore)

    async def _begin_again(self, down_ms: int, restore: Any = None) -> None:
        """The next incarnation, after a while: on `restore`, or on what is left where commits were lost."""
        if restore is not None:
            self.disk.restore(restore, self.told.now())
        elif self.fallen_back:
            self.disk.came_back(self.told.now())
        if restore is not None or self.fallen_back:
            self.fallen_back = False
            self.forget()
            self.troubles.restored()
        await asyncio.sleep(max(down_ms, 1) / 1000)
        self._start_dispatcher()

    def forget(self) -> None:
        """The store has gone back in time."""
        for checker in self.checkers:
            checker.restored()

    async def stop(self, down_ms: int) -> None:
        """A stop as an operator wants it; a crash may come in between."""
        living = self.incarnation
        if living is None or living.dead() or living.parts is None:
            return
        self.journal.write("dispatcher", f"is stopped, incarnation {living.number}")
        stopping = self.loop.start(living.stop(), living.group)
        await asyncio.wait({stopping})
        if living.dead():
            return
        stopping.result()  # a stop that fails is a bug of the dispatcher's
        living.cut.severed = True
        self.judge_health()
        await self._begin_again(down_ms)

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
                    self.journal.write("world", f"refused: {error}")
                    if not isinstance(error, DispatchError):
                        raise error
            await asyncio.sleep(_RETRY_MS / 1000)
        return None

    # -- work
    def _begin_work(self, number: int, work: Work) -> None:
        self._begun.append((number, work))
        self.go(self._submit(number, work))

    def submit_anew(self) -> None:
        """Who has submitted anything so far does so once more: what he is known for is not doubled."""
        self._unsubmitted += len(self._begun)
        for number, work in self._begun:
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
        self._watch_on()

    def _spec(self, work: Work, key: str) -> TaskSpec:
        return TaskSpec(
            argv=conduct.command(work.conduct),
            shape=work.shape,
            expected_runtime_ms=work.expected_ms,
            max_runtime_ms=work.max_runtime_ms,
            checkpoint_signal=work.checkpoint_signal,
            priority=work.priority,
            retry=RetryRules(work.max_attempts, frozenset(work.causes), frozenset(work.exit_codes)),
            outputs=tuple(Transfer(path) for path in work.outputs),
            user=work.user,
            project=work.project,
            # A submission whose answer is lost is sent again; where nothing is lost the keys would only cost.
            idempotency_key=key if self.scenario.faults else "",
        )

    # -- health: the time in which bounded promises count
    def judge_health(self) -> None:
        living = self.incarnation
        well = (
            living is not None
            and not living.dead()
            and not living.stopped
            and living.parts is not None
            and not self.troubles.trapped
            and not self.troubles.ail()
        )
        if not well:
            self._well_since_ms = None
        elif self._well_since_ms is None:
            self._well_since_ms = self.now_ms

    # -- what ports ask (severed.Hooks, network.Weather)
    def point(self, name: str) -> None:
        self.troubles.point(name)

    def committed(self, batch: Batch) -> None:
        self.commits += 1
        commit = commit_of(batch)
        self._write_commit(commit)
        for tell in self._on_commit:
            tell(commit)

    def _write_commit(self, commit: Commit) -> None:
        write = self.journal.write
        if commit.new_tasks:
            write("store", f"{len(commit.new_tasks)} tasks queued from {commit.new_tasks[0]}")
        for live in commit.live:
            holder = f" by {live.instance} under {live.token}" if live.instance else ""
            write("store", f"task {live.task} {live.state}{holder}")
        for task, state in commit.ended:
            write("store", f"task {task} {state}")
        for instance in commit.instances:
            write("store", f"instance {instance.id} {instance.state} {instance.cause}".rstrip())

    # -- what clouds tell (ports.Guests)
    def on_boot(self, vm: TrueVm, user_data: str) -> None:
        self.journal.write(vm.id, "boots")
        chance = self.streams.stream("guest", vm.batch, vm.id)
        guest = Guest(vm, user_data, self.loop, self.network, chance, self, self.clock.now())
        self.guests[vm.id] = guest
        guest.boot()

    def on_end(self, vm: TrueVm, cause: EndCause) -> None:
        self.journal.write(vm.id, f"ends: {cause}")
        guest = self.guests.pop(vm.id, None)
        if guest is not None:
            guest.die()

    def on_notice(self, vm: TrueVm, ends_ms: int) -> None:
        self.journal.write(vm.id, f"is told that it ends in {ends_ms - self.clock.now()} ms")
        guest = self.guests.get(vm.id)
        if guest is not None:
            guest.notice(max(ends_ms - self.clock.now(), 0))

    def on_freeze(self, vm: TrueVm, until_ms: int, unaware: bool) -> None:
        guest = self.guests.get(vm.id)
        if guest is not None:
            self.journal.write(vm.id, "stands still")
            lasts_ms = until_ms - self.clock.now()
            guest.freeze(lasts_ms, unaware=unaware)
            for process in self.processes.values():
                process.stood_ms += lasts_ms if process.vm is vm else 0

    def on_change(self, vm: TrueVm) -> None:
        self.journal.write(vm.id, str(vm.state))
        if vm.state is VmState.GONE:
            self.alive.pop(vm.id, None)
            self._watch_on()
        else:
            self.alive[vm.id] = vm
        for tell in self._on_vm:
            tell(vm)

    # -- what guests tell (guest.Watcher)
    def process_started(self, vm: TrueVm, attempt: VirtualAttempt) -> None:
        task, token = attempt.order.task, attempt.token
        process = self.processes[vm.id, token] = Process(
            vm, task, token, self.loop.now_ms, attempt.unkillable, attempt.order.spec.max_runtime_ms,
            thawed_ms=self.guests[vm.id].thawed_ms, run_ms=attempt.run_ms, gpus=attempt.gpus,
            asked_gpus=attempt.order.spec.shape.resources.gpus,
        )  # fmt: skip
        self.journal.write(vm.id, f"runs task {task} under {token}")
        for tell in self._on_process:
            tell(process)

    def process_ended(self, vm: TrueVm, attempt: VirtualAttempt) -> None:
        process = self.processes.pop((vm.id, attempt.token), None)
        if process is not None:
            process.end = attempt.exit
            self.journal.write(vm.id, f"task {process.task} under {process.token} runs no more")
            for tell in self._on_process_end:
                tell(process)

    def tell(self, who: str, what: str) -> None:
        self.journal.write(who, what)

    def registered(self, vm: TrueVm, instance: str) -> None:
        self.journal.write(vm.id, f"is registered as {instance}")
        for checker in self.checkers:
            checker.registered(vm, instance)

    def proof_of(self, vm: TrueVm, audience: str) -> str:
        return next(account.proof_of(vm.id, audience) for account in self.accounts if account.name == vm.account)

    def powered_off(self, vm: TrueVm) -> None:
        for account in self.accounts:
            if account.name == vm.account:
                account.guest_shuts_down(vm.id)
