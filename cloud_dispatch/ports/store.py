"""The statestore as the core sees it. Owns the protocol and its values; adapters own SQL, commits and queue order.

An awaited call that returns has been committed durably. A call that raises has changed nothing. One process owns a
store at a time. Reads that are plain methods (not async) come from memory and cost no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import ArrayId, BatchId, FencingToken, InstanceId, PoolName, ProfileName, TaskId, VmId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, LaunchIntent
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.payer import NOBODY, Payer, Refused
from cloud_dispatch.domain.shape import Load, Shape
from cloud_dispatch.domain.task import Attempt, Outcome, Task, TaskSpec, TaskState
from cloud_dispatch.ports.pages import LedgerEntry, TaskPage
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Commitment, Key
from cloud_dispatch.spend.costs import AttemptCost, CostPage, CostQuery, Costs
from cloud_dispatch.spend.past import Past
from cloud_dispatch.spend.payers import ClaimTerms
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Span, Window


class HeldClaim(Struct, frozen=True):
    """A claim that an agent says it holds; `ran_ms` None until the command was started."""

    task: TaskId
    token: FencingToken
    ran_ms: int | None


class ClaimResult(Struct, frozen=True):
    """How a claim ended, `ago_ms` before this is told. `outcome` None: handed back unstarted (costs no attempt)."""

    task: TaskId
    token: FencingToken
    ran_ms: int | None
    outcome: Outcome | None
    ago_ms: int = 0


class SyncCall(Struct, frozen=True):
    """An agent's sync as the store needs it. `order` rises with every sync of an instance: an older one that comes to
    its turn late claims nothing. `claiming` False (draining, on hold): nothing is handed out whatever `want` says."""

    instance: InstanceId
    order: int
    held: tuple[HeldClaim, ...] = ()
    results: tuple[ClaimResult, ...] = ()
    want: int = 0
    ahead: int = 0
    claiming: bool = True


class Claimed(Struct, frozen=True):
    """A claim handed out. `spec` is the task's specification as stored JSON (field names of `TaskSpec`)."""

    task: TaskId
    token: FencingToken
    attempt: int
    spec: bytes


class SyncDone(Struct, frozen=True):
    """`settled`: tokens of results dealt with; `kill`: tokens that the agent must end."""

    claims: tuple[Claimed, ...] = ()
    settled: tuple[FencingToken, ...] = ()
    kill: tuple[FencingToken, ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """One change of one instance: an event for its table and/or new values of fields (names of `Instance`).

    `expect` guards against late observations: when given, the change is refused (Conflict) unless the instance is in
    one of these states' names; with `unless_held` also where an operator holds it by then. So is a `vm` where the
    instance has another one already, or another instance that is not gone has it: who finds a VM by its tags and who
    registers may both give it a slot, and the first one counts.
    """

    instance: InstanceId
    event: InstanceEvent | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    expect: frozenset[str] = frozenset()
    unless_held: bool = False


@dataclass(frozen=True, slots=True)
class ShapeDemand:
    """Waiting tasks of a shape: how many, of those that say how long they take the milliseconds and how many in classes
    of which each takes twice as long (`lengths`), the best priority, and when the head was submitted and how long it is
    expected to run (0 unknown). What waits for a payer with a spending limit is apart, with its `payer`, why none of it
    is begun now (`withheld`, "" when it is), and its `front`: how long the first of it say that they take, and how many
    each. `refused`: what of it was not admitted where it was asked for, and would not be now."""

    shape: Shape
    count: int
    lengths: tuple[tuple[int, int], ...]
    priority: int
    oldest_ms: int
    head_expected_ms: int = 0
    payer: Payer = NOBODY
    withheld: str = ""
    front: tuple[tuple[int, int], ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """Instances wanted of a pool by a source; expires at `expires_ms` (None: never)."""

    pool: PoolName
    source: str
    count: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks a list or a cancel speaks of; empty fields match anything."""

    ids: tuple[TaskId, ...] = ()
    states: frozenset[TaskState] = frozenset()
    project: str = ""
    user: str = ""
    array_id: ArrayId = ArrayId("")
    name: str = ""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan that had actions, with its snapshot: both as JSON text."""

    id: int
    at_ms: int
    snapshot: bytes
    plan: bytes


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A stored plan as a list has it: what it was made from, which is much larger, is read with `plan`."""

    id: int
    at_ms: int
    plan: bytes


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended things are kept, in milliseconds; None is for ever."""

    tasks_ms: int | None = None
    events_ms: int | None = None
    plans_ms: int | None = None
    instances_ms: int | None = None


#: Later than any moment.
NEVER_MS = 1 << 62


class Outlook(NamedTuple):
    """Of what an instance holds: what `stays` for longer than work is planned for, or for nobody knows how long; when
    the rest is expected to be done, now at the earliest; until when that is known, if nothing is claimed or ends there
    (a moment that is not later than now: it may be another at every moment); and how long the longest of it takes, from
    its begin, as far as that is known."""

    stays: Load
    free_ms: int
    until_ms: int
    work_ms: int


class Store(Protocol):
    """One statestore, opened and locked by this process."""

    @property
    def id(self) -> str:
        """The store's own random identity, made when it was created; VMs are tagged with it."""

    # -- tasks
    async def submit(self, specs: Sequence[TaskSpec]) -> Sequence[TaskId]:
        """Queue all tasks or none; ids in order. A spec whose idempotency key is known gives the known task's id, and
        InvalidInput if that task's spec differs. Duplicate keys within one call count as one task."""

    async def task(self, task: TaskId) -> Task:
        """NotFound when there is none."""

    async def tasks(
        self, where: TaskFilter, *, after: TaskId = TaskId(0), before: TaskId | None = None, limit: int = 100
    ) -> Sequence[Task]:
        """Tasks in order of id, at most `limit` (1 to 10,000): the first ones after `after`; with `before` the last
        ones of those before it."""

    async def page(
        self, where: TaskFilter, *, after: TaskId = TaskId(0), before: TaskId | None = None, limit: int, size: int
    ) -> TaskPage:
        """As `tasks`, but no more than come to `size` bytes of specifications and manifests, and at least one."""

    async def attempts(self, task: TaskId) -> Sequence[Attempt]: ...

    async def attempts_of(self, instance: InstanceId) -> Sequence[Attempt]:
        """Ended attempts that ran on `instance`, in order of claim."""

    async def cancel(self, where: TaskFilter) -> Sequence[TaskId]:
        """Cancel every matching task that has not ended: queued ones at once, held ones become `cancelling`. Returns
        those changed. InvalidInput for a filter that matches everything by being empty."""

    async def prioritise(self, task: TaskId, priority: int) -> Task:
        """A new priority, effective at the next claim; Conflict when the task has ended."""

    def task_counts(self) -> Mapping[TaskState, int]: ...

    async def count(self, where: TaskFilter) -> Mapping[TaskState, int]: ...

    # -- claims
    async def sync(self, call: SyncCall) -> SyncDone:
        """Deal with results (accepted only under the current token from the instance that holds it), with the running
        set (claims that the agent lacks end: unstarted ones go back, started ones end instance-lost; extras and
        cancelled ones are to be killed), then claim up to `want` tasks that fit what is free, best priority first, then
        lowest id; `ahead` of them may exceed what is free. NotFound for an unknown instance. A call without news writes
        nothing."""

    def holds(self, task: TaskId, token: FencingToken, instance: InstanceId) -> bool:
        """Whether this is a current claim: guards logs and outputs."""

    def token_of(self, task: TaskId) -> FencingToken | None:
        """The token of the task's current claim, from memory; None while nobody holds it."""

    def leases_of(self, instance: InstanceId) -> Mapping[TaskId, FencingToken]: ...

    def held_by(self, instance: InstanceId) -> int:
        """How many claims `instance` holds."""

    def load_of(self, instance: InstanceId) -> Load: ...

    def shapes_of(self, instance: InstanceId) -> tuple[Shape, ...]:
        """The shapes of what `instance` holds, each once; in the same order where they are the same."""

    def loads(self) -> Mapping[InstanceId, Load]:
        """`load_of` of all `instances`; each the same object until it changes."""

    # -- demand
    def waiting(self) -> Sequence[ShapeDemand]:
        """Queued tasks by shape, cost in proportion to the number of shapes."""

    def subscribe(self, listener: Any, *, early: bool = False) -> None:
        """`listener(shape, count)` is called after each commit that put `count` tasks of `shape` into the queue.

        `early`: before it where possible, so that the claims which the listener brings about at once share the commit;
        it may still fail, and what was announced is not there then.
        """

    # -- instances
    def instances(self) -> Mapping[InstanceId, Instance]:
        """All that are not gone; `busy` where it holds claims, else `idle`, when it serves. The same mapping until
        one of them changes, then another one."""

    def living(self, instance: InstanceId) -> Instance | None:
        """One of `instances`, None when there is no such one; its cost does not grow with their number."""

    def by_vm(self, vm: VmId) -> Instance | None: ...

    def parted(self, batch: BatchId) -> Collection[VmId]:
        """The VMs of those instances of this launch that are gone, while others of it live: they are nobody else's,
        however late a listing or the launch's answer shows them."""

    async def instance(self, instance: InstanceId) -> Instance:
        """One, gone ones included; NotFound when there is none."""

    async def past_instances(self, *, limit: int = 1000) -> Sequence[Instance]:
        """Gone ones, newest first."""

    async def intend(self, intent: LaunchIntent, instances: Sequence[Instance]) -> None:
        """Commit a launch intent with its slots (instances in state `intended`) before any call is made. OverBudget
        when a budget does not admit what they may cost: none of them is there then."""

    async def adopt(self, instance: Instance) -> None:
        """Insert an instance that was found by its tags."""

    async def change(
        self, changes: Sequence[InstanceChange], *, facts: Mapping[str, str] | None = None
    ) -> Sequence[Instance]:
        """Apply all changes or none, in one transaction, which sets these `facts` too. An instance that becomes failed,
        lost, terminating or gone loses its claims in it, and what one that is gone has cost is booked in it.
        IllegalTransition, Conflict, NotFound; OverBudget when a later hard end is not admitted."""

    # -- money
    async def set_limits(
        self, budgets: Sequence[Budget], drivers: Mapping[ProfileName, str], terms: ClaimTerms | None = None, *,
        facts: Mapping[str, str | None] | None = None,
    ) -> None:  # fmt: skip
        """From now on these budgets hold: an intent, or a later hard end of an instance, that one of them does not
        admit is refused (OverBudget) in the transaction that would have made it. `drivers`: by profile, its driver;
        of those that have left too, as long as VMs of theirs live.
        `facts` are set in the same transaction, None: forgotten.

        Of a project or a user, what claims of its tasks may cost is bounded, by `terms`: a sync claims none that their
        limits do not admit, a later hard end is refused where it would let their claims cost more than that. What such
        a claim has cost is booked when it ends; it counts from when its payer first had a limit."""

    async def set_limit(self, key: Key, window: Window, limit: Amount | None) -> None:
        """An operator tightens one limit, over restarts and whatever later configurations say: the lower one counts.
        None takes that back. InvalidInput for a limit above the configuration's."""

    def limits(self) -> Sequence[Budget]:
        """All limits that hold now."""

    def configured_limits(self) -> Sequence[Budget]:
        """What `set_limits` said."""

    def standing(self) -> Standing:
        """How the budgets stand now, and not what is booked later: what was booked, and what living instances and
        claims may still cost."""

    def commitments(self) -> Sequence[Commitment]:
        """What each instance that is not gone may bill at most, named by it, and `claim_commitments`."""

    def committed(self) -> Mapping[InstanceId, Commitment]:
        """What each instance that is not gone may bill at most."""

    def claim_commitments(self) -> Sequence[Commitment]:
        """What each claim may cost a payer with a limit at most, named `task N`."""

    def holder_of(self, commitment: Commitment) -> InstanceId | None:
        """The instance that one of `commitments` is of, or on which it is a claim; None when that has ended."""

    def payer_of(self, spec: TaskSpec) -> Payer:
        """Who pays for a task, if that one has a limit; nobody else is told apart."""

    def trying(self, payer: Payer) -> bool:
        """Whether a claim of unknown length counts for what this payer counts for."""

    def withhold(self, reasons: Mapping[Key, str]) -> None:
        """Until this is said anew no task of these projects and users is begun, for these reasons. In memory only."""

    def unsure_since(self) -> int | None:
        """When the store came back from a backup, or its spending was doubted, for the last time, if nothing was
        reconciled since: all windows that were open then count as spent."""

    def unsure(self, span: Span) -> bool:
        """Whether a window counts as spent for that."""

    async def doubt(self, others: Collection[str] = ()) -> bool:
        """From this commit on it is not known what was spent until now, and for as long as `spend.doubt.reach` says:
        because of what the statestores `others` made, unless an operator reckons with all of them; whether it is so."""

    def doubted_ms(self) -> int | None:
        """When it was doubted for the last time, if nothing was reconciled since."""

    def reconciled_ms(self) -> int | None:
        """When an operator reconciled for the last time."""

    def reckoned(self) -> Collection[str]:
        """The statestores of which an operator has said that what their VMs cost is reckoned with."""

    def restored_ms(self) -> int | None:
        """When the store was made from a copy for the last time, None if it never was."""

    async def reconcile(self, others: Collection[str] = ()) -> None:
        """An operator says that the ledger is the truth: windows count what it has booked, and nothing else. What VMs
        of the statestores `others` (ids) cost is reckoned with, also later."""

    def finish_of(self, instance: InstanceId, now_ms: int) -> tuple[bool, int | None]:
        """Whether it holds claims, and when all of them are expected to be done: as their tasks say, else as others of
        their shape have run. None where that is not known."""

    def outlook(self, instance: InstanceId, now_ms: int, within_ms: int) -> Outlook:
        """When what it holds is expected to be done, as by `finish_of`, where work is planned for `within_ms`."""

    def typical_ms(self, shape: Shape) -> int:
        """How long tasks of this shape have run that succeeded since the store was opened, on average; 0 unknown."""

    def coming(self, most: int) -> Sequence[tuple[Shape, int]]:
        """The next tasks of each shape that will be claimed, at most `most` of it, in the order of claims: the shape,
        and how long the task is expected to run, as it says, else as others of its shape have run; 0 unknown."""

    def declined(self) -> Mapping[InstanceId, Collection[tuple[Shape, Payer]]]:
        """By instance, what waits of which it is given nothing although its machine could run it: so little is left of
        its life (`ClaimTerms.remaining`) that the next tasks of that shape would be cut off. Those of payers with a
        limit are apart, as in `waiting`; so is what their limits did not admit there when it last asked. Those that
        boot decline nothing. Equal answers are one object; who is younger than anything that waits is long costs a
        comparison."""

    async def ledger(
        self, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 1000
    ) -> Sequence[LedgerEntry]:
        """The first `limit` entries whose time reaches into [`from_ms`, `until_ms`), in order of id."""

    def past(self) -> Past:
        """The newest entries of the ledger, as breakers look at them, and of spot VMs; all bounded. From memory."""

    async def costs(self, query: CostQuery) -> Costs:
        """What was spent, what living instances have cost up to now with it. Whatever is asked for, and however it is
        added up, of instances that are gone it sums to the amounts of the ledger exactly. InvalidInput where that makes
        too many rows, and for costs by task."""

    async def costs_by_task(
        self, query: CostQuery, *, after: tuple[InstanceId, int] | None = None, limit: int = 1000
    ) -> CostPage:
        """The same costs, split further: by task. A page has at most `limit` rows (1 to 10,000); what was used by tasks
        that are not kept any more is that of no task."""

    async def cost_of_task(self, task: TaskId) -> Sequence[AttemptCost]:
        """The attempts of a task in order, the one that runs last; NotFound when there is no such task."""

    # -- plans, events, targets, small facts
    async def record_plan(self, at_ms: int, snapshot: bytes, plan: bytes) -> int: ...

    async def amend_plan(self, plan: int, became: bytes) -> None:
        """What is stored of it, `became` this; its moment and its snapshot stay."""

    async def plans(self, *, before: int | None = None, limit: int = 20) -> Sequence[PlanEntry]:
        """Newest first, those with smaller numbers than `before`."""

    async def plan(self, plan: int) -> StoredPlan:
        """NotFound when there is none, or none any more."""

    async def record(self, events: Sequence[Event]) -> None: ...

    async def events(
        self, *, instance: InstanceId | None = None, task: TaskId | None = None, before: int | None = None,
        after: int | None = None, limit: int = 100,
    ) -> Sequence[Event]:  # fmt: skip
        """Newest first: the last ones, of those before the id `before`; with `after` the first ones after that id."""

    async def set_target(self, target: Target) -> None:
        """Replace the target of this pool and source."""

    async def drop_target(self, pool: PoolName, source: str) -> None: ...

    def targets(self) -> Sequence[Target]: ...

    def fact(self, name: str) -> str | None: ...

    def facts(self, prefix: str) -> Mapping[str, str]:
        """Those whose names begin so."""

    async def set_fact(self, name: str, value: str) -> None: ...

    async def set_facts(self, changed: Mapping[str, str | None]) -> None:
        """All at once; None: forget it."""

    # -- care
    async def prune(
        self, now_ms: int, retention: Retention, *, batch: int = 10_000, of: Collection[str] = ()
    ) -> Mapping[str, int]:
        """Delete what is past retention, at most `batch` rows a kind, of the kinds `of` if it names any; the numbers
        deleted. `shapes` that no task has go with tasks, and, untold, targets a day after they expired. What is in no
        open window is added up instead: what claims have cost payers (`charges`), whatever the retention, and what
        instances have that are not kept (`ledger`), but for the newest."""

    async def backup(self, target: Path) -> None:
        """A consistent copy, taken while running; Conflict if `target` exists."""

    async def check(self) -> Sequence[str]:
        """Problems found in the store, none being the healthy answer."""

    def in_doubt(self) -> bool:
        """Whether what was committed last may not be in memory: its answer was lost, and it can't be looked up yet."""

    async def close(self) -> None:
        """Finish commits under way, release the lock."""
