"""The statestore behind `ports.store.Store`. Owns the database's engine, the lock and the way of each call: plain reads
from memory, writes through the group commit, other reads on a reader's connection. The sentences of the port hold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy.engine import Engine

from cloud_dispatch.domain.errors import InvalidInput, Overloaded, StoreUnavailable
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import BatchId, FencingToken, InstanceId, PoolName, TaskId, VmId
from cloud_dispatch.domain.instance import Instance, LaunchIntent
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.domain.payer import NOBODY, Payer
from cloud_dispatch.domain.shape import Load, Shape
from cloud_dispatch.domain.task import Attempt, Task, TaskSpec, TaskState
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.executor import Executor
from cloud_dispatch.ports.pages import LedgerEntry, TaskPage
from cloud_dispatch.ports.store import (
    InstanceChange,
    Outlook,
    PlanEntry,
    Retention,
    ShapeDemand,
    StoredPlan,
    SyncCall,
    SyncDone,
    Target,
    TaskFilter,
)
from cloud_dispatch.spend import doubt
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.commitment import Commitment, Key
from cloud_dispatch.spend.costs import AttemptCost, CostPage, CostQuery, Costs
from cloud_dispatch.spend.instances import Drivers
from cloud_dispatch.spend.past import Past
from cloud_dispatch.spend.payers import ClaimTerms, task_of
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.tightened import TIGHTENED_FACT, decode, encode, set_limit
from cloud_dispatch.spend.windows import Span, Window
from cloud_dispatch.statestore import care, copying, costs, reading, records
from cloud_dispatch.statestore.claims import Sync, without_commit
from cloud_dispatch.statestore.commit import GroupCommit
from cloud_dispatch.statestore.costs import ByTask, Present, Runs
from cloud_dispatch.statestore.instances import Adopt, Change, Intend
from cloud_dispatch.statestore.limits import Facts, SetLimits
from cloud_dispatch.statestore.lineage import RESTORED_FACT
from cloud_dispatch.statestore.loading import STORE_ID
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.paying import refusing
from cloud_dispatch.statestore.purse import OTHERS_FACT, RECKONED_FACT, RECONCILED_FACT, UNSURE_FACT, Configured, doubts
from cloud_dispatch.statestore.reader import Reader
from cloud_dispatch.statestore.tasks import Cancel, Prioritise, Submit
from cloud_dispatch.statestore.timely import declined
from cloud_dispatch.statestore.writer import DatabaseWriter, Line

T = TypeVar("T")
MAX_LIMIT = 10_000
#: A database that refused to be written is tried again so often.
TRY_S = 5.0
_NOTHING = SyncDone()


class SqlStore:
    """Made by `statestore.open_store`. Used on one event loop."""

    def __init__(
        self, engine: Engine, lock: FileLock | AdvisoryLock, memory: Memory, *, clock: Clock, executor: Executor,
        reads: Executor, line: Line,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._lock = lock
        self._memory = memory
        self._clock = clock
        self._executor = executor
        self._reader = Reader(engine, lock, reads)
        self._writer = DatabaseWriter(engine, lock, clock, line, memory)
        self._commit = GroupCommit(memory, self._writer, executor)
        self._setting = asyncio.Lock()
        self._by_task = ByTask()
        self._closed = self._released = False
        self._shown: Mapping[InstanceId, Instance] = {}
        self._proxy = MappingProxyType(self._shown)

    @property
    def id(self) -> str:
        return self._memory.facts[STORE_ID]

    # -- tasks
    async def submit(self, specs: Sequence[TaskSpec]) -> Sequence[TaskId]:
        return await self._commit.run(Submit(specs, self._clock)) if specs else []

    async def task(self, task: TaskId) -> Task:
        return await self._read(reading.one_task, task)

    async def tasks(
        self, where: TaskFilter, *, after: TaskId = TaskId(0), before: TaskId | None = None, limit: int = 100
    ) -> Sequence[Task]:
        _check_filter(where)
        return await self._read(reading.list_tasks, where, after, before, _limited(limit))

    async def page(
        self, where: TaskFilter, *, after: TaskId = TaskId(0), before: TaskId | None = None, limit: int, size: int
    ) -> TaskPage:
        _check_filter(where)
        return await self._read(reading.page_of_tasks, where, after, before, _limited(limit), size)

    async def attempts(self, task: TaskId) -> Sequence[Attempt]:
        return await self._read(reading.attempts_of_task, task)

    async def attempts_of(self, instance: InstanceId) -> Sequence[Attempt]:
        return await self._read(reading.attempts_of_instance, instance)

    async def cancel(self, where: TaskFilter) -> Sequence[TaskId]:
        _check_filter(where)
        return await self._commit.run(Cancel(where, self._clock))

    async def prioritise(self, task: TaskId, priority: int) -> Task:
        await self._commit.run(Prioritise(task, priority))
        return await self.task(task)

    def task_counts(self) -> Mapping[TaskState, int]:
        return MappingProxyType(dict(self._memory.counts))

    async def count(self, where: TaskFilter) -> Mapping[TaskState, int]:
        if where == TaskFilter():
            return self.task_counts()
        _check_filter(where)
        counts = dict.fromkeys(TaskState, 0)
        last, until = self._memory.last_task, 0
        while until < last and (first := await self._read(reading.first_kept, until)) is not None:
            for state, count in (await self._read(reading.count_tasks, where, first)).items():
                counts[TaskState(state)] += count
            until = first + reading.COUNT_WINDOW - 1
        return counts

    # -- claims
    def sync(self, call: SyncCall) -> Coroutine[Any, Any, SyncDone]:
        if self._commit.quiet and without_commit(call, self._memory, self._clock.now()):
            if self._memory.unwritten:
                self._commit.write_soon()
            return _nothing()
        return self._commit.run(Sync(call, self._clock))

    def token_of(self, task: TaskId) -> FencingToken | None:
        hold = self._memory.holds.get(task)
        return None if hold is None else FencingToken(hold.token)

    def holds(self, task: TaskId, token: FencingToken, instance: InstanceId) -> bool:
        hold = self._memory.holds.get(task)
        return hold is not None and hold.token == token and hold.seat.instance.id == instance

    def leases_of(self, instance: InstanceId) -> Mapping[TaskId, FencingToken]:
        return self._memory.leases(instance)

    def held_by(self, instance: InstanceId) -> int:
        seat = self._memory.seats.get(instance)
        return len(seat.held) if seat else 0

    def load_of(self, instance: InstanceId) -> Load:
        seat = self._memory.seats.get(instance)
        return seat.load() if seat else Load()

    def shapes_of(self, instance: InstanceId) -> tuple[Shape, ...]:
        return self._memory.shapes_of(instance)

    def loads(self) -> Mapping[InstanceId, Load]:
        return MappingProxyType(self._memory.loads())

    # -- demand
    def waiting(self) -> Sequence[ShapeDemand]:
        return self._memory.waiting(self._clock.now())

    def subscribe(self, listener: Callable[..., object], *, early: bool = False) -> None:
        self._commit.subscribe(listener, early=early)

    # -- instances
    def instances(self) -> Mapping[InstanceId, Instance]:
        shown = self._memory.shown()
        if shown is not self._shown:
            self._shown, self._proxy = shown, MappingProxyType(shown)
        return self._proxy

    def living(self, instance: InstanceId) -> Instance | None:
        seat = self._memory.seats.get(instance)
        return seat.shown if seat else None

    def by_vm(self, vm: VmId) -> Instance | None:
        seat = self._memory.vms.get(vm)
        return seat.shown if seat else None

    def parted(self, batch: BatchId) -> Collection[VmId]:
        return self._memory.parted.get(batch, ())

    async def instance(self, instance: InstanceId) -> Instance:
        seat = self._memory.seats.get(instance)
        return seat.shown if seat else await self._read(reading.one_instance, instance)

    async def past_instances(self, *, limit: int = 1000) -> Sequence[Instance]:
        return await self._read(reading.past_instances, _limited(limit))

    async def intend(self, intent: LaunchIntent, instances: Sequence[Instance]) -> None:
        await self._commit.run(Intend(intent, instances, self._clock))

    async def adopt(self, instance: Instance) -> None:
        await self._commit.run(Adopt(instance))

    async def change(
        self, changes: Sequence[InstanceChange], *, facts: Mapping[str, str] | None = None
    ) -> Sequence[Instance]:
        if not changes and not facts:
            return []
        change = Change(changes, self._memory, self._clock, records.set_facts(facts, self._memory) if facts else None)
        if change.departures and self._reader.executor is not self._executor:
            await self._read(change.departures.look)
        changed = await self._commit.run(change)
        return [
            seat.shown if (seat := self._memory.seats.get(own.id)) and seat.instance is own else own for own in changed
        ]

    # -- money
    async def set_limits(
        self, budgets: Sequence[Budget], drivers: Drivers, terms: ClaimTerms | None = None, *,
        facts: Facts | None = None,
    ) -> None:  # fmt: skip
        async with self._setting:  # what an operator is tightening just now counts under the new ones too
            before = self._writer.configured
            try:
                await self._set_limits(Configured(tuple(budgets), dict(drivers), terms or ClaimTerms()), facts)
            except BaseException:
                self._writer.configured = before
                raise

    async def _set_limits(self, configured: Configured, changed: Facts | None = None) -> None:
        self._writer.configured = configured  # first: a reload of the memory after this commit has to know it
        await self._commit.run(SetLimits(configured, self._memory, self._clock.now(), changed))

    def configured_limits(self) -> Sequence[Budget]:
        return self._writer.configured.budgets

    def limits(self) -> Sequence[Budget]:
        return self._memory.purse.budgets

    async def set_limit(self, key: Key, window: Window, limit: Amount | None) -> None:
        async with self._setting:  # each starts from what the one before it has set
            configured, now = self._writer.configured, decode(self.fact(TIGHTENED_FACT))
            tightened = set_limit(configured.budgets, now, key, window, limit)
            await self._set_limits(configured, {TIGHTENED_FACT: encode(tightened) if tightened else None})

    def unsure_since(self) -> int | None:
        return max(doubts(self._memory.facts), default=None)

    def unsure(self, span: Span) -> bool:
        return any(doubt.reach(noted).overlap_ms(*span) for noted in doubts(self._memory.facts))

    async def doubt(self, others: Collection[str] = ()) -> bool:
        async with self._setting:  # an operator may be reconciling just now
            if others and not set(others).difference(self.reckoned()):
                return False
            now = self._clock.now()
            if doubt.is_due(self.doubted_ms(), now):
                await self._set_limits(self._writer.configured, {OTHERS_FACT: str(now)})
            return True

    def doubted_ms(self) -> int | None:
        doubted = self._memory.facts.get(OTHERS_FACT)
        return None if doubted is None else int(doubted)

    def reconciled_ms(self) -> int | None:
        reconciled = self._memory.facts.get(RECONCILED_FACT)
        return None if reconciled is None else int(reconciled)

    def reckoned(self) -> Collection[str]:
        return (self._memory.facts.get(RECKONED_FACT) or "").split()

    def restored_ms(self) -> int | None:
        known = self._memory.facts  # the version before said it together with what is spent
        restored = known.get(RESTORED_FACT) or known.get(UNSURE_FACT)
        return None if restored is None else int(restored)

    async def reconcile(self, others: Collection[str] = ()) -> None:
        async with self._setting:
            restored = self.restored_ms()  # said by itself from now on
            known = {RECONCILED_FACT: str(self._clock.now())}
            if restored is not None:
                known[RESTORED_FACT] = str(restored)
            if others:
                known[RECKONED_FACT] = " ".join(sorted({*self.reckoned(), *others}))
            await self._set_limits(self._writer.configured, {UNSURE_FACT: None, OTHERS_FACT: None, **known})

    def withhold(self, reasons: Mapping[Key, str]) -> None:
        self._memory.payers.stopped = reasons

    def standing(self) -> Standing:
        memory = self._memory
        living = (seat.instance for seat in memory.seats.values())
        return memory.purse.standing(living, self._clock.now(), memory.payers.commitments())

    def commitments(self) -> Sequence[Commitment]:
        return [*self.committed().values(), *self.claim_commitments()]

    def committed(self) -> Mapping[InstanceId, Commitment]:
        living = (seat.instance for seat in self._memory.seats.values())
        return {InstanceId(one.name): one for one in self._memory.purse.commitments(living)}

    def claim_commitments(self) -> Sequence[Commitment]:
        return list(self._memory.payers.commitments())

    def holder_of(self, commitment: Commitment) -> InstanceId | None:
        seat = self._memory.seats.get(InstanceId(commitment.name))
        if seat is None:
            task = task_of(commitment)
            hold = None if task is None else self._memory.holds.get(task)
            seat = None if hold is None else hold.seat
        return None if seat is None else seat.instance.id

    def payer_of(self, spec: TaskSpec) -> Payer:
        payer = Payer(spec.project, spec.user)
        return payer if self._memory.payers.covers(payer) else NOBODY

    def trying(self, payer: Payer) -> bool:
        return self._memory.payers.trying(payer)

    def finish_of(self, instance: InstanceId, now_ms: int) -> tuple[bool, int | None]:
        seat = self._memory.seats.get(instance)
        finishes = self._memory.finishes(seat, now_ms) if seat else []
        known = [finish for finish in finishes if finish is not None]
        return bool(finishes), max(known) if known and len(known) == len(finishes) else None

    def outlook(self, instance: InstanceId, now_ms: int, within_ms: int) -> Outlook:
        return self._memory.outlook(instance, now_ms, within_ms)

    def typical_ms(self, shape: Shape) -> int:
        return self._memory.typical_ms(self._memory.shape_numbers.get(shape, -1))

    def coming(self, most: int) -> Sequence[tuple[Shape, int]]:
        return self._memory.coming(most, self._clock.now())

    def declined(self) -> Mapping[InstanceId, Collection[tuple[Shape, Payer]]]:
        old, refused = declined(self._memory, self._clock.now()), refusing(self._memory)
        if not refused:
            return old
        both = {(id(old.get(name)), id(lines)): (*old.get(name, ()), *lines) for name, lines in refused.items()}
        return {**old, **{name: both[id(old.get(name)), id(lines)] for name, lines in refused.items()}}

    async def ledger(
        self, *, from_ms: int = 0, until_ms: int | None = None, limit: int = 1000
    ) -> Sequence[LedgerEntry]:
        return await self._read(reading.list_ledger, from_ms, until_ms, _limited(limit))

    def past(self) -> Past:
        return self._memory.past

    async def costs(self, query: CostQuery) -> Costs:
        return await self._read(costs.grouped, query, self._present())

    async def costs_by_task(
        self, query: CostQuery, *, after: tuple[InstanceId, int] | None = None, limit: int = 1000
    ) -> CostPage:
        async with self._by_task.alone:
            return await self._read(self._by_task.page, query, self._present(), after, _limited(limit))

    async def cost_of_task(self, task: TaskId) -> Sequence[AttemptCost]:
        await self.task(task)
        return await self._read(costs.of_task, task, self._present())

    def _present(self) -> Present:
        memory = self._memory
        living = {
            name: (
                seat.instance,
                [Runs(h.token, h.task, h.started_ms) for h in seat.held.values() if h.started_ms],
            )
            for name, seat in memory.seats.items()
        }
        return Present(self._clock.now(), living, memory.shapes, memory.purse.drivers)

    # -- plans, events, targets, facts
    async def record_plan(self, at_ms: int, snapshot: bytes, plan: bytes) -> int:
        return await self._commit.run(records.RecordPlan(at_ms, snapshot, plan))

    async def amend_plan(self, plan: int, became: bytes) -> None:
        await self._commit.run(records.amend_plan(plan, became))

    async def plans(self, *, before: int | None = None, limit: int = 20) -> Sequence[PlanEntry]:
        return await self._read(reading.list_plans, before, _limited(limit))

    async def plan(self, plan: int) -> StoredPlan:
        return await self._read(reading.one_plan, plan)

    async def record(self, events: Sequence[Event]) -> None:
        if events:
            await self._commit.run(records.record_events(events))

    async def events(
        self, *, instance: InstanceId | None = None, task: TaskId | None = None, before: int | None = None,
        after: int | None = None, limit: int = 100,
    ) -> Sequence[Event]:  # fmt: skip
        return await self._read(reading.list_events, instance, task, before, after, _limited(limit))

    def in_doubt(self) -> bool:
        return self._writer.in_doubt

    def trouble(self) -> str:
        """Why nothing can be written at this moment, "" as far as it is known that all is well."""
        return self._commit.trouble

    async def try_writing(self) -> None:
        """Write something that changes nothing: `trouble` tells whether it went."""
        with contextlib.suppress(StoreUnavailable, Overloaded):
            await self._commit.run(records.the_same())

    async def mend(self) -> None:
        """Whenever the database refused to be written, find out when that is over: nobody else may have anything to
        write for long, and what became of a commit without an answer is not known before. Until it is cancelled."""
        while True:
            await self._commit.troubled.wait()
            await asyncio.sleep(TRY_S)
            if self.trouble():
                await self.try_writing()
            else:
                self._commit.troubled.clear()

    async def set_target(self, target: Target) -> None:
        await self._commit.run(records.set_target(target, self._memory))

    async def drop_target(self, pool: PoolName, source: str) -> None:
        await self._commit.run(records.drop_target(pool, source, self._memory))

    def targets(self) -> Sequence[Target]:
        return list(self._memory.targets.values())

    def fact(self, name: str) -> str | None:
        return self._memory.facts.get(name)

    def facts(self, prefix: str) -> Mapping[str, str]:
        return {name: value for name, value in self._memory.facts.items() if name.startswith(prefix)}

    async def set_fact(self, name: str, value: str) -> None:
        await self.set_facts({name: value})

    async def set_facts(self, changed: Mapping[str, str | None]) -> None:
        if STORE_ID in changed:
            raise InvalidInput("a statestore keeps its identity", place=STORE_ID)
        await self._commit.run(records.set_facts(changed, self._memory))

    # -- care
    async def prune(
        self, now_ms: int, retention: Retention, *, batch: int = 10_000, of: Collection[str] = ()
    ) -> Mapping[str, int]:
        no_page = partial(self._by_task.none, self._clock)
        return await care.prune(self._read, self._commit.run, now_ms, retention, batch, of, no_page)

    async def backup(self, target: Path) -> None:
        await self._commit.settle()
        await self._reader.executor.run(copying.backup, self._engine, target)

    async def check(self) -> Sequence[str]:
        return await self._commit.run(care.Check(self._memory))

    async def close(self) -> None:
        self._closed = True
        if self._released:
            return
        await self._commit.close()
        await self._executor.run(self._writer.close)
        self._engine.dispose()
        self._released = True  # not before: a close that was interrupted is to be repeated

    async def _read(self, query: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise StoreUnavailable("the statestore is closed")
        await self._commit.settle()
        return await self._reader.ask(query, *args)


async def _nothing() -> SyncDone:
    return _NOTHING


def _limited(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"limit {limit}", place="limit", hint=f"between 1 and {MAX_LIMIT}")
    return limit


def _check_filter(where: TaskFilter) -> None:
    if len(where.ids) > MAX_LIMIT:
        raise InvalidInput(f"{len(where.ids)} ids in one filter", place="ids", hint=f"at most {MAX_LIMIT} at once")
