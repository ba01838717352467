"""The answer to a study. Owns how a run of the simulator becomes a record, with the clouds' own bills in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cloud_dispatch.domain.durations import about
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.task import TERMINAL, TaskState
from cloud_dispatch.planner.plan import Plan, Unsatisfiable, Waiting
from cloud_dispatch.planner.snapshot import Snapshot
from cloud_dispatch.simulation.checkers.base import Checker, Finding, View
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.finish import PROGRESS
from cloud_dispatch.simulation.record import Record
from cloud_dispatch.simulation.run import Outcome, run
from cloud_dispatch.simulation.scenario import Scenario
from cloud_dispatch.simulation.workload.history import record_of
from cloud_dispatch.simulation.world import World

#: Lines of the event log that are kept: a study asks for figures, not for the story.
_KEPT = 1
_TOLD_MS = 60_000
#: Reasons why tasks wait that are told, those of the most tasks.
_SHOWN_WAITS = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. `billed` is the sum of the clouds' own meters; `findings` what went wrong on the way, such as
    work that had not ended when the run did, and why it waits by the dispatcher's last plan. `stopped`: somebody ended
    the run before its end."""

    record: Record
    billed: Amount
    findings: tuple[str, ...]
    digest: str
    stopped: bool = False


class _Gone(Checker):
    """Finds nothing. Keeps every instance that is gone: the store gives a bounded number of them back, and a study may
    rent more."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.instances: dict[InstanceId, Instance] = {}

    def committed(self, commit: Commit) -> None:
        self.instances.update({one.id: one for one in commit.instances if one.state is InstanceState.GONE})


def answer(scenario: Scenario, told: Callable[[int, int], bool] = lambda virtual_ms, ended: True) -> Answer:
    """Run `scenario` to its end, without the checkers of promises. Must not be called while an event loop runs.

    `told` is called on the way, every virtual minute: with the virtual milliseconds and the tasks that have ended. It
    says whether to go on; else the answer is of the run so far. The same scenario gets the same answer in every
    process.
    """
    found: list[Record] = []
    prices: dict[str, tuple[tuple[int, int], ...]] = {}
    waits: list[str] = []
    stopped = False

    def go_on(virtual_ms: int, ended: int) -> bool:
        nonlocal stopped
        stopped = not told(virtual_ms, ended)
        return not stopped

    async def look(world: World) -> None:
        (gone,) = (own for own in world.checkers if isinstance(own, _Gone))

        async def read(living: Incarnation) -> Record:
            assert living.store is not None
            assert living.parts is not None
            record = await record_of(living.store, world.clock.now(), [*gone.instances.values()])
            waits.extend(_waits(living.parts.context.last, record))
            return record

        record = await world.inside(read)
        if record is None:  # nothing fails in a study, so nothing but a bug keeps the store from answering
            raise RuntimeError("the simulated dispatcher does not answer at the end of its run")
        found.append(record)
        prices.update({one.vm.id: tuple(one.prices()) for account in world.accounts for one in account.metered()})

    outcome = run(scenario, checkers=(_Gone,), keep=_KEPT, prepare=lambda world: _tell(world, go_on), finish=look)
    (record,) = found
    record = replace(record, unsubmitted=scenario.tasks - len(record.tasks))
    findings = [_told(finding, record, outcome.virtual_ms) for finding in outcome.findings]
    if stopped:
        findings.insert(0, f"the run was stopped: all figures are of its first {about(outcome.virtual_ms)} alone")
    bill = _bill(outcome)
    return Answer(
        record=_billed(record, bill, prices),
        billed=Amount(sum(bill.values())),
        findings=(*findings, *waits),
        digest=outcome.digest,
        stopped=stopped,
    )


def _tell(world: World, told: Callable[[int, int], bool]) -> None:
    """Now, and again; the run is over where that says so."""
    counts = world.store.task_counts() if world.store is not None else {}
    if not told(world.now_ms, sum(count for state, count in counts.items() if state in TERMINAL)):
        world.ended.set()
        return
    world.at(world.now_ms + _TOLD_MS, partial(_tell, world, told))


def _told(finding: Finding, record: Record, virtual_ms: int) -> str:
    """`finding` in a user's words: that a run did not come to its end is told of the work, not of the simulator."""
    if finding.checker != PROGRESS:
        return finding.text
    after = about(virtual_ms)
    open_tasks = Counter(task.state for task in record.tasks if task.state not in TERMINAL)
    states = [f"{count} {state}" for state, count in sorted(open_tasks.items())]
    if record.unsubmitted:
        states.append(f"{record.unsubmitted} not submitted yet")
    if states:
        count, of = open_tasks.total() + record.unsubmitted, len(record.tasks) + record.unsubmitted
        return f"{count} of {of} tasks had not ended after {after}: {', '.join(states)}"
    living = sum(rental.ended_ms is None for rental in record.rentals)
    return f"all tasks had ended, but not the run after {after}: {living} instances were left"


def _waits(last: tuple[Snapshot, Plan] | None, record: Record) -> list[str]:
    """Why tasks of each shape wait, of those that still do: the plan may be older. Payers that wait for the same are
    told together: there may be thousands, each with a line of its own in the plan."""
    if last is None:
        return []
    _, plan = last
    queued = Counter(task.shape for task in record.tasks if task.state is TaskState.QUEUED)
    stuck: list[Waiting | Unsatisfiable] = [*plan.waiting, *plan.unsatisfiable]
    counts: Counter[tuple[Shape, str]] = Counter()
    for one in stuck:
        if queued[one.shape]:
            counts[one.shape, one.reason] += one.count
    texts = [
        f"{min(count, queued[shape])} tasks of {shape.describe()} wait: {reason}"
        for (shape, reason), count in counts.most_common(_SHOWN_WAITS)
    ]
    more = len(counts) - len(texts)
    return [*texts, f"and {more} other reasons why tasks wait"] if more > 0 else texts


def _bill(outcome: Outcome) -> Mapping[str, Amount]:
    """By VM, with the disks and addresses that came with it."""
    bill: dict[str, Amount] = {}
    for line in outcome.bill:
        vm = line.came_with or line.vm
        bill[vm] = Amount(bill.get(vm, 0) + line.amount)
    return bill


def _billed(record: Record, bill: Mapping[str, Amount], prices: Mapping[str, tuple[tuple[int, int], ...]]) -> Record:
    rentals = tuple(
        replace(rental, billed=bill.get(rental.vm), prices=prices.get(rental.vm, ())) for rental in record.rentals
    )
    return replace(record, rentals=rentals)
