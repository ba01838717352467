"""Intending, adopting and changing instances, as operations of the group commit.

States go through `INSTANCE_TABLE` alone. Busy is stored as idle: whether an instance is busy follows from its claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound
from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.instance import (
    INSTANCE_TABLE,
    Behaviour,
    Instance,
    InstanceEvent,
    InstanceState,
    LaunchIntent,
)
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.spend.instances import price
from cloud_dispatch.statestore import paying
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.departures import Departures
from cloud_dispatch.statestore.endings import lose_all
from cloud_dispatch.statestore.memory import Memory
from cloud_dispatch.statestore.records import Write
from cloud_dispatch.statestore.rows import INSTANCE_FIELDS, instance_of, instance_row
from cloud_dispatch.statestore.schema import instances, intents

_S, _E = InstanceState, InstanceEvent
#: States in which nothing can run on an instance any more, as far as we are concerned.
CLAIMLESS = frozenset({_S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE})
#: Fields that have ways of their own, or none.
_FIXED = frozenset({"id", "batch", "state", "busy_ms"})
_UPDATE = (
    update(instances)
    .where(instances.c.id == bindparam("which"))
    .values({c: bindparam(f"v_{c.name}") for c in instances.c if c.name != "id"})
)
#: Of that update, by the names of the columns.
_PARAMETERS = {c.name: "which" if c.name == "id" else f"v_{c.name}" for c in instances.c}


class Intend:
    """A launch intent with its slots; OverBudget when a spending limit does not admit what they may cost."""

    reads = True

    def __init__(self, intent: LaunchIntent, slots: Sequence[Instance], clock: Clock) -> None:
        if len(slots) != intent.slots or len({slot.id for slot in slots}) != intent.slots:
            raise InvalidInput(f"intent {intent.batch} has {intent.slots} slots and {len(slots)} instances")
        for slot in slots:
            if slot.state is not _S.INTENDED or slot.batch != intent.batch:
                raise InvalidInput(
                    f"instance {slot.id} of batch {slot.batch} is {slot.state}: not a slot of this intent"
                )
        self._intent = intent
        self._slots = slots
        self._clock = clock
        self._taken: set[str] = set()

    def prepare(self, connection: Connection) -> None:
        self._taken = _existing(connection, [slot.id for slot in self._slots])
        self._taken.update(connection.scalars(select(intents.c.batch).where(intents.c.batch == self._intent.batch)))

    def plan(self, batch: Batch) -> None:
        taken = sorted(self._taken | {slot.id for slot in self._slots if batch.instance(slot.id)})
        if taken:
            raise Conflict(f"batch {self._intent.batch} exists: {', '.join(taken)}")
        batch.admit([(None, slot) for slot in self._slots], self._clock.now())
        intent = self._intent
        row = {name: getattr(intent, name) for name in intents.c.keys()}  # noqa: SIM118 (not a dict)
        batch.write(insert(intents), row)
        batch.write(insert(instances), *[instance_row(slot) for slot in self._slots])
        batch.instances.update({slot.id: slot for slot in self._slots})

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None


class Adopt:
    """An instance that was found by its tags."""

    reads = True

    def __init__(self, instance: Instance) -> None:
        if instance.state is _S.GONE:
            raise InvalidInput(f"instance {instance.id} is gone: nothing to adopt")
        self._instance = _stored(instance)
        self._taken: set[str] = set()

    def prepare(self, connection: Connection) -> None:
        self._taken = _existing(connection, [self._instance.id])

    def plan(self, batch: Batch) -> None:
        own = self._instance
        if self._taken or batch.instance(own.id):
            raise Conflict(f"instance {own.id} exists", hint="change it instead")
        if own.vm:
            _free(batch, own.vm, own.id)
            batch.vms[own.vm] = own.id
        batch.write(insert(instances), instance_row(own))
        batch.appeared(own)

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None


class Change:
    """All of `changes`, and what else is written with them, or nothing. Answers the instances as they are after it, in
    order of the changes. OverBudget when one is to live longer than a spending limit admits.

    `memory` has those that need not be looked for in the tables."""

    def __init__(
        self, changes: Sequence[InstanceChange], memory: Memory, clock: Clock, also: Write | None = None
    ) -> None:
        for change in changes:
            wrong = sorted((set(change.fields) - INSTANCE_FIELDS) | (set(change.fields) & _FIXED))
            if wrong:
                raise InvalidInput(f"{', '.join(wrong)} of an instance can't be set", place=str(change.instance))
        self._changes = changes
        self._also = also
        self._clock = clock
        self._unknown = sorted({change.instance for change in changes if change.instance not in memory.seats})
        leaving = {change.instance: _done_by(change, memory) for change in changes if change.event is _E.GONE}
        self._refused = {change.instance for change in changes if change.event is _E.REFUSED}
        self.departures = Departures(leaving, lambda instance: memory.leases(instance))
        self.reads = bool(self._unknown or self.departures)
        self._past: dict[str, Instance] = {}
        self._result: list[InstanceId] = []
        self._after: dict[InstanceId, Instance] = {}
        self._batch: Batch | None = None

    def prepare(self, connection: Connection) -> None:
        if self._unknown:
            gone = select(instances).where(instances.c.id.in_(self._unknown), instances.c.state == _S.GONE.value)
            self._past = {row.id: instance_of(row) for row in connection.execute(gone)}
        self.departures.read(connection)

    def plan(self, batch: Batch) -> None:
        now = self._clock.now()
        after: dict[InstanceId, Instance] = {}
        losing: list[InstanceId] = []
        dearer: list[tuple[Instance | None, Instance]] = []
        eased: list[Instance] = []
        bound: dict[VmId, InstanceId] = {}
        repriced = False
        for change in self._changes:
            before = after.get(change.instance) or batch.instance(change.instance) or self._past.get(change.instance)
            if before is None:
                raise NotFound(f"there is no instance {change.instance}")
            after[change.instance] = changed = self._changed(batch, before, change, now)
            if changed.vm and changed.vm != before.vm:
                self._bind(batch, before, changed.vm, bound)
            if changed.state in CLAIMLESS:
                losing.append(change.instance)
            if changed.ends_ms > before.ends_ms:
                dearer.append((before, changed))
            elif changed.last_ms != before.last_ms:
                eased.append(changed)
            repriced = repriced or price(changed) != price(before)
        if dearer:
            batch.admit(dearer, now)
        batch.vms.update(bound)
        paying.ease(batch.memory, eased)
        if eased or repriced:
            batch.recount()
        for instance in losing:
            seat = batch.memory.seats.get(instance)
            if seat is not None and seat.held:
                lose_all(batch, seat, after[instance], now)
        for own in after.values():
            self._write(batch, self.departures.leave(batch, own, now) if self._leaves(own) else own)
        self._after = {instance: batch.instances[instance] for instance in after}
        if self._also is not None:
            self._also.plan(batch)

    def answer(self, specs: Mapping[int, bytes]) -> Sequence[Instance]:
        return [self._after[change.instance] for change in self._changes]

    @staticmethod
    def _changed(batch: Batch, before: Instance, change: InstanceChange, now: int) -> Instance:
        """`before` with one change; refuses it without having done anything."""
        shown = before.state
        seat = batch.memory.seats.get(before.id)
        if shown is _S.IDLE and seat is not None and seat.held:
            shown = _S.BUSY
        if change.expect and shown.value not in change.expect:
            raise Conflict(f"instance {before.id} is {shown}, expected {' or '.join(sorted(change.expect))}")
        if change.unless_held and before.behaviour is Behaviour.HOLD:
            raise Conflict(f"instance {before.id} is held")
        state = before.state if change.event is None else INSTANCE_TABLE.apply(shown, change.event)
        changed = _stored(replace(before, **{**change.fields, "state": state}))
        if changed.state is _S.GONE and changed.ended_ms is None:
            changed = replace(changed, ended_ms=now)
        return changed

    @staticmethod
    def _bind(batch: Batch, before: Instance, vm: VmId, bound: dict[VmId, InstanceId]) -> None:
        """`before` becomes the instance of `vm`, where neither has another; `bound` are those of the same change."""
        if before.vm:
            raise Conflict(f"instance {before.id} is VM {before.vm}, and not {vm}")
        if (other := bound.get(vm)) not in (None, before.id):
            raise Conflict(f"VM {vm} is instance {other}, and not {before.id}")
        _free(batch, vm, before.id)
        bound[vm] = before.id

    def _leaves(self, own: Instance) -> bool:
        """Whether it is gone from here on, having been asked for: what was refused has cost nothing."""
        return own.state is _S.GONE and own.id not in self._past and own.id not in self._refused

    @staticmethod
    def _write(batch: Batch, own: Instance) -> None:
        row = instance_row(own)
        batch.write(_UPDATE, {_PARAMETERS[name]: value for name, value in row.items()})
        batch.instances[own.id] = own


def _done_by(change: InstanceChange, memory: Memory) -> int | None:
    """The moment after which one that leaves did nothing any more, where one is known before it is planned."""
    seat = memory.seats.get(change.instance)
    if seat is None:
        return None
    ended_ms = change.fields.get("ended_ms") or seat.instance.ended_ms
    return min((ms for ms in (ended_ms, seat.instance.last_ms) if ms is not None), default=None)


def _free(batch: Batch, vm: VmId, instance: InstanceId) -> None:
    """A VM is one instance: two would count its cost twice, and the VM that the second one stands for not at all."""
    if (holder := batch.holder(vm)) not in (None, instance):
        raise Conflict(f"VM {vm} is instance {holder}, and not {instance}")


def _stored(instance: Instance) -> Instance:
    return replace(instance, state=_S.IDLE) if instance.state is _S.BUSY else instance


def _existing(connection: Connection, ids: Sequence[str]) -> set[str]:
    return set(connection.scalars(select(instances.c.id).where(instances.c.id.in_(ids))))
