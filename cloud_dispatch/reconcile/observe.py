"""Look at the providers. Owns listings, offerings, and what is done about every difference between rows and VMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from cloud_dispatch.domain.errors import Conflict, InvalidInput, NotFound
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName, instance_id
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine
from cloud_dispatch.ports.store import Store
from cloud_dispatch.provider.errors import ProviderError, VmNotFound
from cloud_dispatch.provider.spi import HardEnd, Provider, Traits, Vm, VmState
from cloud_dispatch.reconcile import apart, boot, foreign
from cloud_dispatch.reconcile.absence import Absence
from cloud_dispatch.reconcile.asking import Asking, Listed
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.matching import (
    Bound,
    Ended,
    Finding,
    Missing,
    Seen,
    Stranger,
    has_ended,
    match,
    was_adopted,
)
from cloud_dispatch.reconcile.recalled import Recalled
from cloud_dispatch.reconcile.restored import SHOWN
from cloud_dispatch.reconcile.spend import lag_ms
from cloud_dispatch.reconcile.wearing import Wearing

log = structlog.get_logger(__name__)
_S, _E = InstanceState, InstanceEvent
HERITAGE_FACT = "heritage"
#: What an adopted VM is until its profile has said what it offers.
_UNKNOWN = Machine(Resources())
#: Slots of one batch that are looked at to find out whose a stranger is; no launch has as many.
MAX_SLOTS = 10_000
#: From here on they are those of VMs of which nobody can tell which one of its launch they were.
UNTOLD = MAX_SLOTS
#: By what a VM ended that this dispatcher had not ended, as far as its provider says.
_TAKEN = "it has taken the VM back (spot interruption)"
_VANISHED = "it was ended from outside, or by itself, and not by this dispatcher"


def heritage(store: Store) -> frozenset[str]:
    """The ids of the statestores whose VMs are this one's: its own, and those that an operator had it take over."""
    return frozenset({store.id, *(store.fact(HERITAGE_FACT) or "").split()})


async def inherit(store: Store, other: str) -> None:
    """From now on the VMs of the statestore `other` are this one's too. Durable; InvalidInput for no store's id. What
    that one has spent is not known, whether its VMs were seen or not."""
    if not other or other != "".join(other.split()):
        raise InvalidInput(
            f"{other!r} is not the id of a statestore", place="store", hint="`events` names foreign ones"
        )
    known = heritage(store) - {store.id}
    if other != store.id and other not in known:
        await store.doubt([other])
        await store.set_fact(HERITAGE_FACT, " ".join(sorted({*known, other})))


def _guessed(finding: Finding) -> bool:
    """Whether its slot has to be guessed: these come last, when the slots that are known are taken."""
    return isinstance(finding, Stranger) and finding.vm.slot < 0 and finding.facts.slot < 0


class Observer:
    def __init__(self, context: Context) -> None:
        self._c = context
        self._asking = Asking(context)
        self._recalled = Recalled(context)
        self._wearing = Wearing(context, self._recalled.undecided)

    async def observe(self) -> None:
        """Deal with the listings that have come, and ask for those that are due."""
        for profile, listed in (await self._asking.listings()).items():
            if profile in self._c.settings.providers:  # it may have left the configuration meanwhile
                await self._match(profile, listed)  # in turn: two profiles may list the same VMs
        self._wearing.catch_up()

    async def _match(self, profile: ProfileName, listed: Listed) -> None:
        provider, rows, listing = self._c.settings.providers[profile], self._c.store.instances(), listed.listing
        # Rows made while the listing was under way prove nothing either way; they are matched, but can't be missing.
        current = {i: row for i, row in rows.items() if row.profile == profile}
        found = match(
            listing.vms, current, own=self._c.store.id, stores=heritage(self._c.store), complete=listing.complete,
            restored_ms=self._c.store.restored_ms(), parted=self._c.store.parted,
        )  # fmt: skip
        await self._recalled.read(found, current, profile, listed)
        await self._outlived([current[one.instance] for one in found if isinstance(one, Seen)], profile)
        for finding in sorted(found, key=_guessed):
            if isinstance(finding, Seen):
                self._settled(finding.instance)
            elif not isinstance(finding, Missing) or finding.instance in listed.rows:
                await self._handle(finding, profile, provider, listed.started_ms)
        await self._learn(profile)
        self._wearing.after(profile, provider, found)
        self._heeded(listing.vms, provider.traits, listed.started_ms)
        view = self._c.view(profile)
        view.listed_ms = self._c.clock.monotonic()
        await foreign.listed(self._c, profile, found, listed, provider.traits)
        if listing.complete:
            view.shown_ms = listed.started_ms
            if self._c.store.fact(SHOWN + profile) is None:
                await self._c.store.set_fact(SHOWN + profile, str(self._c.clock.now()))

    async def _outlived(self, rows: Sequence[Instance], profile: ProfileName) -> None:
        """End what a hand has left that is later than was reckoned with; what it costs is counted for as long as it is
        seen. No budget is asked, since it is so."""
        now, lag = self._c.clock.now(), lag_ms(self._c.settings, profile)
        for row in rows:
            if lag is not None and row.last_ms is not None and row.last_ms < now:
                self._c.note("instance.outlived", instance=row.id, detail="it is past its hard end and still there")
                event = None if row.state is _S.TERMINATING else _E.TERMINATE
                cause, reason = row.ended_by("hard-end", "its hard end has come")
                await self._c.apply(row.id, event, cause=cause, reason=reason, end_lag_ms=now - row.ends_ms + lag)

    def _heeded(self, vms: Sequence[Vm], traits: Traits, started: int) -> None:
        """Which hard ends the provider heeds: those that VMs wear."""
        if traits.hard_end is HardEnd.EXTENDABLE:
            self._c.heeded.seen(vms, started, traits.consistency_ms)
            if self._c.heeded.knows_more_than(2 * len(self._c.store.instances())):
                self._c.heeded.keep_only({row.vm for row in self._c.store.instances().values()})

    async def _handle(self, finding: Finding, profile: ProfileName, provider: Provider, started: int) -> None:
        if isinstance(finding, Bound):
            await self.bind(finding.instance, finding.vm)
        elif isinstance(finding, Ended):
            await self._ended(finding)
        elif isinstance(finding, Missing):
            self._missing(finding.instance, provider, started)
        elif isinstance(finding, Stranger):
            await self._stranger(finding, profile, provider)

    async def bind(self, instance: InstanceId, vm: Vm) -> None:
        """`vm` is the VM of the slot `instance`."""
        row = self._c.store.instances().get(instance)
        if row is not None:
            event = _E.BOUND if row.state is _S.LAUNCHING else None
            if not row.vm:
                apart.heard(self._c, row, (vm,))
            launched = row.launched_ms or vm.created_ms or self._c.clock.now()
            await self._c.apply(instance, event, vm=vm.id, launched_ms=launched, zone=vm.zone or row.zone)
            now = self._c.store.instances().get(instance)
            if now is not None and not now.vm:
                return  # its agent has registered for another slot meanwhile: this one is still looked for
        self._settled(instance)

    def _settled(self, instance: InstanceId) -> None:
        """Nothing of it is in doubt any more: only once the store has it, for the doubt keeps it looked for."""
        self._c.in_doubt.discard(instance)
        self._c.absences.pop(instance, None)

    async def _ended(self, finding: Ended) -> None:
        row = self._c.store.instances().get(finding.instance)
        if row is None or not has_ended(row, finding.vm):
            return  # its agent has registered since the listing was compared
        taken, gone = finding.vm.preempted, finding.vm.state is VmState.GONE
        what, by = ("preempted", _TAKEN) if taken else ("vanished" if gone else "powered-off", _VANISHED)
        reason = f"the provider says that the VM is {finding.vm.state}: {by}"
        failed_boot = row.state is _S.BOOTING and not taken
        if gone:
            cause, reason = row.ended_by(what, reason)
            if failed_boot:
                boot.count(self._c, row, reason)
            await self._c.apply(row.id, _E.GONE, cause=cause, reason=reason, ended_ms=self._c.clock.now())
        elif failed_boot:
            boot.give_up(self._c, row, what, "the VM stopped before a compute service registered")
        elif row.state not in (_S.TERMINATING, _S.DRAINED, _S.FAILED, _S.LOST):
            await self._c.apply(row.id, _E.FAIL, cause=what, reason=reason, expect=frozenset({row.state}))

    def _missing(self, instance: InstanceId, provider: Provider, started: int) -> None:
        """One more piece of evidence; enough of it starts the last question, a get."""
        row = self._c.store.instances().get(instance)
        if row is None or (row.state is _S.LAUNCHING and instance not in self._c.in_doubt):
            return  # its call is still under way
        if row.state is _S.TERMINATING and row.vm:
            return  # the reaper asks the provider itself
        known = self._c.absences.get(instance)
        if known is None:
            known = Absence(horizon_ms=self._c.clock.monotonic() + provider.traits.consistency_ms)
            self._c.absences[instance] = known
            return  # this listing started before the horizon
        known = self._c.absences[instance] = known.missed(started)
        if known.worth_a_get:
            self._c.calls.start(f"absence:{instance}", self._prove_absence(row, provider), row.profile)

    async def _prove_absence(self, row: Instance, provider: Provider) -> None:
        vm = row.vm or provider.traits.vm_id(row.id, row.zone)
        if vm:
            try:
                found = await provider.get(vm)
            except VmNotFound:
                pass
            except ProviderError as error:
                log.warning("absence.unproved", instance=row.id, error=repr(error))
                return
            else:
                if found.state is not VmState.GONE:
                    await self.bind(row.id, found)
                    return
        reason = "no VM: missing from two complete listings after the provider's consistency horizon, and from a get"
        if row.state is not _S.TERMINATING:
            cause, _ = row.ended_by("lost" if row.vm else "not-launched", reason)
            if row.state is _S.BOOTING:
                boot.count(self._c, row, reason)
            await self._c.apply(row.id, _E.ABSENT, cause=cause, reason=reason)
        await self._c.apply(row.id, _E.GONE, ended_ms=self._c.clock.now())
        self._settled(row.id)

    async def _stranger(self, finding: Stranger, profile: ProfileName, provider: Provider) -> None:
        """Adopt a VM that the store does not know; end one whose row is gone or whose batch has all its VMs.

        Where its name or a tag says its slot it becomes the instance of that slot: its agent knows itself by it. Where
        nothing does, it may have been any of its launch: it becomes one that nobody can have been, and an agent that
        has registered as another ends itself."""
        if self._held(finding.vm):
            return  # its agent has registered since the listing was compared
        batch, named = finding.facts.batch, finding.vm.slot >= 0
        if finding.vm.id in self._c.store.parted(batch):
            self._c.calls.start(f"zombie:{finding.vm.id}", self._end_zombie(finding.vm, provider), profile)
            return
        first = finding.vm.slot if named else finding.facts.slot
        told = first >= 0
        for slot in range(first, UNTOLD + MAX_SLOTS) if told else (0, *range(UNTOLD, UNTOLD + MAX_SLOTS)):
            try:
                row = await self._c.store.instance(instance_id(batch, slot))
            except NotFound:
                if not told and not slot:
                    continue
                await self._adopt(instance_id(batch, slot), finding, profile)
                return
            if row.profile != profile and row.profile in self._c.settings.providers:
                return  # a profile of the same account lists it too: it is that one's to bind, to keep or to end
            if not told and not slot and self._is_undecided(batch):
                continue
            if named or row.vm == finding.vm.id or not was_adopted(row):
                self._c.calls.start(f"zombie:{finding.vm.id}", self._end_zombie(finding.vm, provider), profile)
                return

    def _is_undecided(self, batch: BatchId) -> bool:
        """Whether it is not known yet which VMs of the batch there are."""
        rows = self._c.store.instances().values()
        return any(row.batch == batch and row.state is _S.LAUNCHING and not row.vm for row in rows)

    def _held(self, vm: Vm) -> bool:
        """Whether it is the VM of an instance that somebody looks after."""
        holder = self._c.store.by_vm(vm.id)
        return holder is not None and holder.profile in self._c.settings.providers

    async def _end_zombie(self, vm: Vm, provider: Provider) -> None:
        if self._held(vm):
            return  # its agent has registered since this was decided
        self._c.note("instance.zombie", detail=f"VM {vm.id} belongs to an instance that is gone: ending it")
        try:
            await provider.terminate(vm.id)
        except ProviderError as error:
            log.warning("zombie.terminate_failed", vm=vm.id, error=repr(error))

    async def _adopt(self, own: InstanceId, finding: Stranger, profile: ProfileName) -> None:
        vm, facts = finding.vm, finding.facts
        market = Market.SPOT if vm.spot else Market.ON_DEMAND
        row = Instance(
            id=own, batch=facts.batch, pool=facts.pool, profile=profile, type=vm.type, zone=vm.zone,
            market=market, machine=_UNKNOWN, vcpus=1,
            rate=None if facts.rate < 0 else Rate(facts.rate), state=_S.UNKNOWN, intended_ms=vm.created_ms,
            ends_ms=facts.ends_ms, boot_deadline_ms=0, behaviour=facts.behaviour, vm=vm.id,
            end_lag_ms=lag_ms(self._c.settings, profile),
            launched_ms=vm.created_ms, reason="adopted: found by its tags, unknown to the statestore",
        )  # fmt: skip
        try:
            await self._c.store.adopt(replace(row, **self._offered_as(row)))
        except Conflict as moot:  # it has registered since
            log.debug("instance.change_moot", instance=own, arrow="adopt", why=str(moot))
            return
        self._c.note("instance.adopted", instance=own, detail=f"VM {vm.id} found by its tags")

    async def _learn(self, profile: ProfileName) -> None:
        """What adopted VMs are, and cost at most, is what their types are offered as: tags don't tell, and after a
        start a profile may list its VMs before it can say what it offers. Until it does, no task fits them."""
        for row in self._c.store.instances().values():
            if row.profile == profile and was_adopted(row) and row.machine.capacity == _UNKNOWN.capacity:
                what = self._offered_as(row)
                if what:
                    await self._c.apply(row.id, None, **what)

    def _offered_as(self, row: Instance) -> dict[str, Any]:
        """What it is by what is offered, in its market and its zone where it still is there, else by the dearest of its
        type; nothing where nobody knows."""
        offered = [one for one in self._c.view(row.profile).offerings if one.type.name == row.type]
        alike = [one for one in offered if one.market is row.market] or offered
        alike = [one for one in alike if one.zone == row.zone] or alike
        if not alike:
            return {}
        one = max(alike, key=lambda one: (one.highest_rate is None, one.top_rate))
        return {
            "machine": self._machine(replace(one, market=row.market), row.pool), "vcpus": one.type.vcpus,
            "max_rate": one.highest_rate, "extra_rate": one.extra_rate,
            "minimum_ms": one.minimum_ms, "increment_ms": one.increment_ms,
        }  # fmt: skip

    def _machine(self, offering: Offering, name: PoolName) -> Machine:
        pool = self._c.settings.pools.get(name)
        if pool is None:
            return Machine(offering.type.capacity)
        return offering.machine(name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance)
