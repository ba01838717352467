"""What a complaint's regression is: a scenario, what must have come about in it, and what the peer got wrong.

What went wrong is read from the truth: the clouds' inventory, meter and calls, the store's transactions, the processes.
The same reading has to find something when the peer's behaviour is planted, or it would prove nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.provider.spi import VmState
from cloud_dispatch.simulation.checkers import ALL
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.ports import BillLine, EndCause, TrueVm
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario
from cloud_dispatch.simulation.world import World

_NOT_CALLS_FOR_VMS = ("offerings", "quotas")


@dataclass(frozen=True)
class Call:
    """A call that reached an account. `refused`: the error that the account's gate answered with, "" for none."""

    at_ms: int
    account: str
    operation: str
    refused: str


@dataclass(frozen=True)
class End:
    """A guest whose machine ended under it. `running`: what ran on it at that moment."""

    at_ms: int
    vm: VmId
    cause: EndCause
    running: tuple[Process, ...]


@dataclass(frozen=True)
class Start:
    """A process that was started."""

    at_ms: int
    vm: VmId
    task: int
    token: int


@dataclass(frozen=True)
class Row:
    """An instance as a transaction left it. `truly`: what the cloud itself had of its VM then."""

    at_ms: int
    instance: Instance
    truly: VmState | None


@dataclass
class Evidence:
    """All that a run left behind. Times are virtual milliseconds since its start."""

    scenario: Scenario
    calls: list[Call] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    exits: list[Start] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    commits: list[tuple[int, Commit]] = field(default_factory=list)
    states: list[tuple[int, VmId, VmState]] = field(default_factory=list)
    registered: dict[VmId, str] = field(default_factory=dict)
    vms: list[TrueVm] = field(default_factory=list)
    most_alive: int = 0
    epoch_ms: int = 0
    #: What a story noted of its own accord.
    noted: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome | None = None

    @property
    def result(self) -> Outcome:
        assert self.outcome is not None
        return self.outcome

    @property
    def bill(self) -> tuple[BillLine, ...]:
        return self.result.bill

    @property
    def billed(self) -> Amount:
        return Amount(sum(line.amount for line in self.bill))

    def launches(self, account: str = "") -> list[Call]:
        """Calls that asked for VMs."""
        return [c for c in self.calls if c.operation == "launch" and account in ("", c.account)]

    def made_ms(self, vm: TrueVm) -> int:
        return vm.created_ms - self.epoch_ms

    def ended_ms(self, vm: TrueVm) -> int | None:
        return None if vm.ended_ms is None else vm.ended_ms - self.epoch_ms

    def attempts(self) -> list[tuple[int, int, str]]:
        """Task, number and cause of every attempt that ended."""
        return [(a.task, a.number, a.cause) for _, commit in self.commits for a in commit.attempts]

    def first(self, instance: str, *states: InstanceState) -> Row | None:
        """The first transaction that has the instance in one of `states`."""
        return next((r for r in self.rows if r.instance.id == instance and r.instance.state in states), None)


def ended_at_work(found: Evidence) -> Iterator[str]:
    """Machines that the dispatcher ended while something ran on them."""
    for end in found.ends:
        if end.cause is EndCause.TERMINATED and end.running:
            yield f"machine {end.vm} was ended at {end.at_ms} ms while task {end.running[0].task} ran on it"


def all_succeeded(found: Evidence) -> Iterator[str]:
    done = found.result.tasks.get(TaskState.SUCCEEDED, 0)
    if done != found.scenario.tasks:
        yield f"{done} of {found.scenario.tasks} tasks succeeded"


Plant = Callable[[World, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Story:
    """See the module. `wrong` says in sentences what went wrong, nothing when all is well; `missing` what did not come
    about, without which the run would prove nothing. `plant` brings the peer's behaviour in, and `fires` is a part of
    the sentence that must then be said. `stage` puts on what a scenario can't say, `finish` reads the store at last."""

    number: int
    name: str
    scenario: Scenario
    missing: Callable[[Evidence], Iterable[str]]
    wrong: Callable[[Evidence], Iterable[str]]
    plant: Plant
    fires: str
    stage: Callable[[World, Evidence], None] = lambda world, evidence: None
    finish: Callable[[World, Evidence], Awaitable[None]] | None = None
    #: Where the planted run would go on for long: when it has shown enough, virtual milliseconds.
    planted_ms: int = 0

    def play(self, patch: pytest.MonkeyPatch | None = None) -> Evidence:
        """The run as it is; with `patch` the one in which the peer's behaviour is planted, without the checkers: those
        of the promises would end it before the complaint shows."""
        evidence = Evidence(self.scenario)

        class Witness(_Witness):
            kept = evidence

        def prepare(world: World) -> None:
            _listen(world, evidence)
            self.stage(world, evidence)
            if patch is not None:
                self.plant(world, patch)

        def finish(world: World) -> Awaitable[None] | None:
            return self.finish(world, evidence) if self.finish is not None and world.store is not None else None

        scenario = self.scenario
        checkers: tuple[type[Checker], ...] = (*ALL, Witness)
        if patch is not None:
            checkers = (Witness,)
            scenario = msgspec.structs.replace(scenario, horizon_ms=self.planted_ms or scenario.horizon_ms)
        evidence.outcome = run(scenario, checkers=checkers, keep=100, prepare=prepare, finish=finish)
        return evidence


class _Witness(Checker):
    """A checker that finds nothing and keeps everything."""

    name = "witness"
    kept: Evidence

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._truth: dict[VmId, TrueVm] = {}

    def vm_changed(self, vm: TrueVm) -> None:
        kept = self.kept
        if self._truth.get(vm.id) is not vm:  # a name may be given again
            kept.vms.append(vm)
        self._truth[vm.id] = vm
        kept.states.append((self.view.now_ms, vm.id, vm.state))
        kept.most_alive = max(kept.most_alive, len(self.view.alive))

    def committed(self, commit: Commit) -> None:
        now = self.view.now_ms
        self.kept.commits.append((now, commit))
        for instance in commit.instances:
            vm = self._truth.get(instance.vm)
            self.kept.rows.append(Row(now, instance, None if vm is None else vm.state))

    def process_started(self, process: Process) -> None:
        self.kept.starts.append(Start(self.view.now_ms, process.vm.id, process.task, process.token))

    def process_ended(self, process: Process) -> None:
        self.kept.exits.append(Start(self.view.now_ms, process.vm.id, process.task, process.token))

    def registered(self, vm: TrueVm, instance: str) -> None:
        self.kept.registered[vm.id] = instance


def _listen(world: World, evidence: Evidence) -> None:
    """Keep the calls that reach the accounts, and what ran on machines when they ended."""
    evidence.epoch_ms = world.clock.now() - world.now_ms
    for account in world.accounts:
        _count_calls(world, account, evidence)
    tell = world.on_end

    def on_end(vm: TrueVm, cause: EndCause) -> None:
        running = tuple(process for (name, _), process in world.processes.items() if name == vm.id)
        evidence.ends.append(End(world.now_ms, vm.id, cause, running))
        tell(vm, cause)

    world.on_end = on_end  # type: ignore[method-assign]


def _count_calls(world: World, account: Any, evidence: Evidence) -> None:
    judge = account.gate._refusal

    def refusal(operation: str, *args: Any) -> Any:
        error = judge(operation, *args)
        if operation not in _NOT_CALLS_FOR_VMS:
            refused = "" if error is None else type(error).__name__
            evidence.calls.append(Call(world.now_ms, account.name, operation, refused))
        return error

    account.gate._refusal = refusal
