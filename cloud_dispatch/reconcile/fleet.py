"""The fleet towards agents and operators: registration, what agents say, directives, hold, drain, resume, kill.

Implements `ports.fleet.Fleet`. Owns no deciding of its own: what words mean is in `liveness`, states in the domain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from cloud_dispatch.domain.errors import (
    Conflict,
    Denied,
    IllegalTransition,
    InvalidInput,
    NotFound,
    StoreUnavailable,
    Unavailable,
)
from cloud_dispatch.domain.ids import BatchId, InstanceId, VmId
from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.money import Amount, format_amount
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.domain.stop import STOP_FACT, Stop, StopLevel, strongest
from cloud_dispatch.domain.stop import encode as encode_stop
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import BootWord, Directive, Heard
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.reconcile import boot, explain, foreign, recalled, risk, unreachable
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.fitness import MOST_LET_GO, Row, Unfit
from cloud_dispatch.reconcile.identity import Doorkeeper
from cloud_dispatch.reconcile.liveness import Verdict, event_heard
from cloud_dispatch.reconcile.matching import is_open
from cloud_dispatch.reconcile.observe import heritage, inherit
from cloud_dispatch.reconcile.preview import Preview
from cloud_dispatch.spend.commitment import OF_PAYERS, Key, Scope
from cloud_dispatch.spend.windows import Window

_S, _E = InstanceState, InstanceEvent
_OPERATOR = "operator"
#: No agent was told to drain or to go on more often, whatever it says.
_MOST_DRAINS = 1 << 31
_STOPPED = {
    StopLevel.NOTHING: "",
    StopLevel.LAUNCHES: "launches",
    StopLevel.DRAIN: "launches and drains everything",
    StopLevel.TERMINATE: "launches and ends everything",
}
_WORKING = frozenset({_S.IDLE, _S.BUSY, _S.OUT_OF_CONTACT, _S.UNKNOWN})
_KEPT = f"it is kept, as {MOST_LET_GO} were let go for that within an hour"
_WORK_ON, _END_NOW = Directive(), Directive(claiming=False, end=True)
_RUN = Behaviour.RUN  # a member of an enum is found through its metaclass, ten times as slowly as a name
_ENDING = frozenset({_S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE, _S.DRAINED})


class FleetService:
    def __init__(self, context: Context, preview: Preview) -> None:
        self._c = context
        self._preview = preview
        self._door = Doorkeeper(context)
        self._stopping = asyncio.Lock()
        self._asked = context.stops.get(_OPERATOR, Stop())

    # -- agents
    async def admit(self, batch: BatchId, vm: VmId, incarnation: str, proof: str) -> Instance:
        place: Instance | None = None
        try:
            if not vm:
                raise Denied("the registration names no VM", hint="the agent's configuration lacks its VM id")
            place = self._slot_for(batch, vm)
            await self._door.check(place, vm, proof)
            return await self._registered(batch, vm, incarnation)
        except Denied as error:
            self._door.tell(batch, place.id if place else None, error.message)
            raise

    async def _registered(self, batch: BatchId, vm: VmId, incarnation: str) -> Instance:
        """The instance that `vm`, which is itself, has become."""
        for _ in range(3):  # another VM of the batch may take the slot between the look and the commit
            row = self._slot_for(batch, vm)
            if row.state in _ENDING:
                raise Denied(f"instance {row.id} is {row.state}: VM {vm} may not register", hint="end this VM")
            if row.registered_ms is not None:
                if self._c.contact(row.id).incarnation != incarnation:
                    raise Denied(
                        f"the VM of instance {row.id} has registered already",
                        hint="its agent goes on with the token that it was given; whoever asks again is another",
                    )
                self._touch(row.id, incarnation)  # its answer was lost
                return row
            now = self._c.clock.now()
            changed = await self._c.apply(
                row.id,
                _E.REGISTERED,
                expect=frozenset({row.state}),
                vm=vm,
                registered_ms=now,
                launched_ms=row.launched_ms or row.intended_ms,
            )
            if changed is not None:
                self._c.in_doubt.discard(row.id)
                self._c.absences.pop(row.id, None)
                if offering := self._c.offering_of(row):
                    self._c.failures.booted(offering)
                self._touch(row.id, incarnation)
                return changed
        raise Conflict(f"VM {vm} could not be bound to a slot of batch {batch}", hint="register again")

    async def boot_said(self, batch: BatchId, word: BootWord) -> None:
        await boot.hear(self._c, self.booting(batch, word.vm), word)

    def booting(self, batch: BatchId, vm: str) -> Instance:
        return boot.speaker([row for row in self._c.store.instances().values() if row.batch == batch], vm)

    def _slot_for(self, batch: BatchId, vm: VmId) -> Instance:
        bound = self._c.store.by_vm(vm)
        if bound is not None:
            if bound.batch != batch:
                raise Denied(f"VM {vm} belongs to batch {bound.batch}, its token is of batch {batch}")
            return bound
        if vm in self._c.store.parted(batch):
            raise Denied(f"the instance of VM {vm} is gone", hint="end this VM")
        slots = [row for row in self._c.store.instances().values() if row.batch == batch]
        unbound = [row for row in slots if not row.vm and row.state is _S.LAUNCHING]
        restored_ms, untold = self._c.store.restored_ms(), False
        for row in unbound:
            provider = self._c.settings.providers.get(row.profile)
            name = provider.traits.vm_id(row.id, row.zone) if provider is not None else None
            if name == vm or (name is None and is_open(row, len(unbound), restored_ms)):
                return row
            untold = untold or name is None
        if not slots:
            raise Denied(f"batch {batch} has no instance that lives: VM {vm} may not register", hint="end this VM")
        if untold:
            raise Unavailable(
                f"the statestore was restored: VM {vm} is not found yet", hint="register again in a moment"
            )
        raise Denied(f"all {len(slots)} instances of batch {batch} are taken; VM {vm} is none of them")

    def _touch(self, instance: InstanceId, incarnation: str) -> None:
        contact = self._c.contact(instance)
        contact.heard_ms = self._c.clock.monotonic()
        contact.incarnation = incarnation
        contact.idle_since_ms = self._c.clock.now()
        contact.asks_end = False

    def heard(self, said: Heard) -> Awaitable[None] | None:
        row = self._c.store.living(said.instance)
        if row is None:
            raise NotFound(f"instance {said.instance} does not live", hint="end this VM")
        now = self._c.clock.monotonic()
        contact = self._c.contacts.of(said.instance, now)
        contact.heard_ms = now
        contact.answered = contact.answered or said.answered
        contact.incarnation = said.incarnation
        tasks = self._c.store.held_by(said.instance)
        if tasks:
            contact.idle_since_ms = None
        elif contact.idle_since_ms is None:
            contact.idle_since_ms = self._c.clock.now()
        if said.ask_end and not contact.asks_end:
            self._c.wake()
        contact.asks_end = said.ask_end and not tasks and self._c.clock.now() >= contact.patience_ms
        unfit = None
        if said.ended:
            if contact.worked_ms is None and any(one.cause is not Cause.CANNOT_START for one in said.ended):
                contact.worked_ms = self._c.clock.now()
            unfit = self._c.fitness.judge(said.instance, contact.failures, said.ended)
        verdict = event_heard(row, said, tasks)
        return self._act(said, verdict, unfit) if verdict is not None or unfit is not None else None

    async def _act(self, said: Heard, verdict: Verdict | None, unfit: Unfit | None) -> None:
        row = self._c.store.living(said.instance)
        if verdict is not None and row is not None:
            # A store that was restored may have forgotten what its agent was told: only higher tokens are heeded.
            known = max(row.drain_token, min(said.drain_token, _MOST_DRAINS))
            token = known + (verdict.event is _E.DRAIN)
            await self._c.apply(
                said.instance, verdict.event, cause=verdict.cause, reason=verdict.reason, drain_token=token
            )
        if unfit is not None:
            await self._drain_unfit(said.instance, unfit)

    async def _drain_unfit(self, instance: InstanceId, unfit: Unfit) -> None:
        """A machine on which everything fails would take, and fail, the whole queue: let it go."""
        row = self._c.store.living(instance)
        if row is None or row.state not in _WORKING:
            return
        take_back = self._c.fitness.let_go(unfit, self._c.clock.monotonic())
        if take_back is None:
            failures = self._c.contact(instance).failures
            if not failures.kept:
                failures.kept = True
                self._c.note("instance.unfit", instance=instance, detail=f"{unfit.reason}; {_KEPT}")
            return
        token = row.drain_token + 1
        try:
            gone = await self._c.apply(instance, _E.DRAIN, cause=unfit.cause, drain_token=token, reason=unfit.reason)
        except StoreUnavailable:
            take_back()
            raise
        if gone is None:
            take_back()

    def directive(self, instance: InstanceId) -> Directive:
        row = self._c.store.living(instance)
        if row is None:
            return _END_NOW
        state, behaviour = row.state, row.behaviour
        working = behaviour is _RUN and state in _WORKING
        if working and not row.drain_token:
            return _WORK_ON
        if state is _S.DRAINING:
            return Directive(claiming=False, drain_token=row.drain_token, drain=True)
        if state in _ENDING:
            return _END_NOW
        return Directive(claiming=working, drain_token=row.drain_token, hold=behaviour is Behaviour.HOLD)

    def on_directive(self, listener: Callable[[InstanceId], None]) -> None:
        self._c.directive_listeners.append(listener)

    # -- operators
    async def hold(self, instance: InstanceId, reason: str) -> Instance:
        row = await self._live(instance)
        return await self._change(row, None, "hold", reason, behaviour=Behaviour.HOLD)

    async def drain(self, instance: InstanceId, reason: str) -> Instance:
        row = await self._live(instance)
        if row.state is _S.DRAINING:
            return await self._change(row, None, "drain", reason, behaviour=Behaviour.DRAIN)
        if row.state not in _WORKING:
            # Not registered yet: the tag and row say drain, and it drains as soon as it speaks.
            return await self._change(row, None, "drain", reason, behaviour=Behaviour.DRAIN)
        return await self._change(
            row, _E.DRAIN, "drain", reason,
            behaviour=Behaviour.DRAIN, drain_token=row.drain_token + 1, cause="operator",
            reason=f"drained by an operator: {reason}" if reason else "drained by an operator",
        )  # fmt: skip

    async def resume(self, instance: InstanceId, reason: str) -> Instance:
        """Of one that is over and held to be looked at, this takes back the hold: it is ended then."""
        row = await self._live(instance)
        self._be_patient(row)
        if row.state is _S.DRAINING:
            return await self._change(
                row, _E.RESUME, "resume", reason,
                behaviour=Behaviour.RUN, drain_token=row.drain_token + 1, cause="",
                reason=f"resumed by an operator: {reason}" if reason else "resumed by an operator",
            )  # fmt: skip
        if row.state in _ENDING and row.behaviour is not Behaviour.HOLD:
            raise Conflict(f"instance {instance} is {row.state}: too late to resume it")
        return await self._change(row, None, "resume", reason, behaviour=Behaviour.RUN)

    def _be_patient(self, row: Instance) -> None:
        """Resumed to be used: its idle time starts again; what its agent asked before is forgotten, and what failed."""
        contact, now = self._c.contact(row.id), self._c.clock.now()
        pool = self._c.settings.pools.get(row.pool)
        contact.asks_end = False
        contact.failures = Row()
        contact.patience_ms = now + (pool.end.idle_ms if pool else 0)
        if contact.idle_since_ms is not None:
            contact.idle_since_ms = now

    async def kill(self, instance: InstanceId, reason: str) -> Instance:
        row = await self._live(instance)
        if row.state is _S.TERMINATING:
            return row
        return await self._change(
            row, _E.TERMINATE, "kill", reason, cause="killed",
            reason=f"killed by an operator: {reason}" if reason else "killed by an operator",
        )  # fmt: skip

    async def _live(self, instance: InstanceId) -> Instance:
        row = self._c.store.living(instance)
        if row is None:
            known = await self._c.store.instance(instance)
            raise Conflict(f"instance {instance} is {known.state}", hint="only instances that live can be changed")
        return row

    async def _change(self, row: Instance, event: InstanceEvent | None, word: str, why: str, **fields: Any) -> Instance:
        spoken = recalled.spoken_of(self._c.store, row) if "behaviour" in fields else None
        try:
            (changed,) = await self._c.store.change([InstanceChange(row.id, event, fields)], facts=spoken)
        except IllegalTransition:
            raise Conflict(f"instance {row.id} is {row.state}: it can't {word} now") from None
        if "behaviour" in fields:
            self._c.reworded[row.id] = None
        self._c.note(f"operator.{word}", instance=row.id, detail=why)
        self._c.tell(row.id)
        self._c.wake()
        return changed

    async def stop(self, level: StopLevel, reason: str) -> Stop:
        why = f"an operator stopped {_STOPPED[level]}" + (f": {reason}" if reason else "")
        asked = Stop(level, why, self._c.clock.now()) if level is not StopLevel.NOTHING else Stop()
        self._asked = asked
        if strongest([self._c.stops.get(_OPERATOR, Stop()), asked]) is asked:
            self._c.stops[_OPERATOR] = asked  # before it is durable: a store that fails must not keep VMs running
        self._c.wake()
        async with self._stopping:  # the last word is the one that is kept, in memory as in the store
            await self._c.store.set_fact(STOP_FACT, encode_stop(asked))
            if self._asked is asked:
                self._c.stops[_OPERATOR] = asked
        self._c.note("operator.stop", detail=asked.why or "nothing is stopped any more")
        self._c.wake()
        return self._c.stop

    def stopped(self) -> Stop:
        return self._c.stop

    def check_spender(self, key: Key) -> None:
        settings = self._c.settings
        known: dict[Scope, list[str]] = {
            Scope.DEPLOYMENT: [""],
            Scope.DRIVER: sorted(set(settings.drivers.values())),
            Scope.PROFILE: sorted(settings.providers),
            Scope.POOL: sorted(settings.pools),
        }
        if key.scope not in OF_PAYERS and key.name not in known[key.scope]:
            names = ", ".join(filter(None, known[key.scope])) or "none"
            raise InvalidInput(f"no such {key.scope} {key.name!r}", place="of", hint=f"there are: {names}")

    async def set_limit(self, key: Key, window: Window, limit: Amount | None, reason: str) -> None:
        if limit is not None:
            self.check_spender(key)
        await self._c.store.set_limit(key, window, limit)
        self._c.failures.forget_money()
        said = "as configured" if limit is None else f"at most {format_amount(limit)}"
        name = " ".join(filter(None, (str(key.scope), key.name, str(window))))
        self._c.note("operator.limit", detail=f"{name}: {said}" + (f": {reason}" if reason else ""))
        self._c.wake()

    async def reconcile(self) -> None:
        others, store = foreign.uncounted(self._c), self._c.store
        await store.reconcile([*others, *(heritage(store) - {store.id})])
        self._c.failures.forget_money()
        beside = f", and what {', '.join(others.values())} cost is reckoned with" if others else ""
        self._c.note("operator.reconcile", detail=f"the ledger is the truth{beside}")
        self._c.wake()

    def risk(self) -> Sequence[str]:
        return risk.words(self._c)

    async def adopt(self, store: str) -> Mapping[str, int]:
        seen = foreign.stores(self._c)
        await inherit(self._c.store, store)
        self._c.note("operator.adopt", detail=f"VMs of statestore {store} are taken over")
        for view in self._c.profiles.values():
            view.listed_ms = None
        self._c.wake()
        return seen

    async def reset_breakers(self, name: str) -> None:
        await self._c.breakers.reset(name)
        self._c.note("operator.breaker-reset", detail=name or "all")
        self._c.wake()

    # -- answers
    def breakers(self) -> list[dict[str, Any]]:
        return self._c.breakers.listing()

    def unreachable(self, instance: Instance) -> str:
        return unreachable.why(self._c, instance)

    async def preview(self) -> dict[str, Any]:
        return await self._preview.preview()

    async def offers(self, shape: Shape, limit: int) -> dict[str, Any]:
        return await self._preview.offers(shape, limit)

    async def explain_task(self, task: int) -> dict[str, Any]:
        return await explain.task(self._c, task)

    async def explain_instance(self, instance: InstanceId) -> dict[str, Any]:
        return await explain.instance(self._c, instance)

    def wake(self) -> None:
        self._c.wake()
