"""Launches. Owns the way from an action to VMs: intent, call, binding, refusal and failover, doubt.

The intent with its slots is committed before the call; whatever happens then, the slots are found again by their batch.
A definitive refusal fails over to the next alternative in the same pass under a new batch. A launch in doubt keeps its
slots until its VMs are seen or their absence is proved; one that the provider only accepted is followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.errors import Conflict, DispatchError, IllegalTransition, OverBudget
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, instance_id
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState, LaunchIntent
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.planner.plan import Begun, Launch
from cloud_dispatch.ports.executor import give_way
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Operation
from cloud_dispatch.reconcile import apart
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.operations import Operations
from cloud_dispatch.reconcile.spend import Spending, lag_ms
from cloud_dispatch.spend.left import Left

log = structlog.get_logger(__name__)
_S, _E = InstanceState, InstanceEvent
BATCH_ID_LENGTH = 12
#: So many slots at least, of however many launches, are committed and called for first, and so many at a time at most.
FIRST_SLOTS, MOST_SLOTS = 100, 1_000


@dataclass(frozen=True)
class _Batch:
    """A launch that is being made: its slots, and what to try if it is refused."""

    pool: Pool
    offering: Offering
    instances: tuple[Instance, ...]
    reason: str
    alternatives: tuple[Offering, ...]
    #: Why it has no more slots than these, "" where it has all that were asked for.
    fewer: str = ""

    def intent(self, now_ms: int) -> LaunchIntent:
        batch = self.instances[0].batch
        return LaunchIntent(batch, self.pool.name, self.offering.key, len(self.instances), now_ms, self.reason)


class Launcher:
    def __init__(self, context: Context, spending: Spending) -> None:
        self._c = context
        self._spending = spending
        self._reserved: dict[InstanceId, Instance] = {}
        self._beginning: set[InstanceId] = set()
        #: Seen beyond `intended`: nothing comes back to that state, so that they need not be looked at again.
        self._begun: Set[InstanceId] = frozenset()
        self.operations = Operations(context)

    async def launch(self, actions: Sequence[Launch]) -> dict[int, Begun]:
        """Commit the intents of `actions` and start their calls beside the loop, in parts: the cloud is at work on some
        while others are prepared. They are a plan's, so that there are `planner.explain.MAX_LAUNCHES` at most, each
        with as many slots as its driver takes at once. Those of which less was begun, by their place in `actions`."""
        await self._withdraw_unbegun()
        left = await self._spending.left() if actions else None
        less: dict[int, Begun] = {}
        at = 0
        for part in _parts(actions):
            prepared: dict[int, _Batch] = {}
            try:
                for number, a in enumerate(part, at):
                    rows = self._c.store.instances()
                    batch = self._prepare(a.pool, a.offering, a.slots, a.reason, a.alternatives, rows, left)
                    if isinstance(batch, _Batch):
                        prepared[number] = batch
                    if why := batch.fewer if isinstance(batch, _Batch) else batch:
                        less[number] = Begun(len(batch.instances) if isinstance(batch, _Batch) else 0, why)
                    await give_way()  # each takes milliseconds
            except BaseException:
                self._free(prepared.values())
                raise
            at += len(part)
            refused = await self._begin(list(prepared.values()))
            less |= {number: Begun(0, why) for number, why in zip(prepared, refused, strict=True) if why}
        return less

    def _free(self, batches: Iterable[_Batch]) -> None:
        """Their slots are in the store now, or will never be."""
        for batch in batches:
            for instance in batch.instances:
                self._reserved.pop(instance.id, None)

    def _prepare(
        self,
        pool_name: PoolName,
        offering: Offering,
        slots: int,
        reason: str,
        alternatives: Sequence[Offering],
        rows: Mapping[InstanceId, Instance],
        left: Left | None,
    ) -> _Batch | str:
        """A batch with as many slots as caps, breakers and budgets still admit; why there is none for none, and for
        what the configuration wants no more. The slots are reserved from here on: other launches are prepared while
        this one's commit is under way (promise P4)."""
        pool = self._c.settings.pools.get(pool_name)
        if self._stopped():
            return str(self._c.stop)
        if pool is None or offering.profile not in pool.profiles:
            return f"pool {pool_name} with profile {offering.profile} left the configuration"
        together = self._c.settings.providers[offering.profile].traits.most_slots
        asked, slots = slots, min(slots, self._room(pool, offering, rows), together)
        if slots <= 0:
            return "the caps admit no more"
        fewer = "the caps, or its driver at once, admit no more" if slots < asked else ""
        # One reading of the clock: an end a moment before the lifetime's would be moved on, by a call to the provider.
        batch, now = BatchId(self._c.entropy.name("batch", BATCH_ID_LENGTH)), self._c.clock.now()
        ends, lag = self._spending.ends_of(pool, offering, now, slots=slots), lag_ms(self._c.settings, offering.profile)
        instances = slots_of(batch, pool, offering, slots, now, ends.ends_ms, lag, reason)
        proved, why = self._c.breakers.admits(instances[0], slots, {**self._reserved, **rows}.values())
        if not proved:
            self._c.failures.unproved(offering, pool.template, why, self._c.clock.now())
            return why
        fewer = "no more of it boot at once before one has shown itself" if proved < slots else fewer
        proved, why = apart.admits(self._c, pool, offering.profile, proved)
        if not proved:
            return why
        fewer = why or fewer
        instances = instances[:proved]
        if left is not None:
            instances = self._spending.take(left, instances, ends, offering)
            fewer = "a spending limit admits no more" if len(instances) < proved else fewer
            if not instances:
                apart.untold(self._c, pool, offering.profile)
                self._c.failures.unaffordable(
                    offering, left.why, self._c.clock.now(), pool=pool.name, from_rate=left.too_dear
                )
                self._c.wake()  # something cheaper may fit
                return left.why
        self._reserved.update({instance.id: instance for instance in instances})
        return _Batch(pool, offering, instances, reason, tuple(alternatives), fewer)

    async def _begin(self, batches: Sequence[_Batch]) -> list[str]:
        """Intents first, durable; then that the calls are about to be made; then the calls. Of each why none is made,
        "" where one is."""
        slots = [instance.id for batch in batches for instance in batch.instances]
        self._beginning.update(slots)
        try:
            try:
                refused = await self._intend(batches)
            finally:
                self._free(batches)
            if self._stopped():
                return [str(self._c.stop)] * len(batches)  # stopped meanwhile: the next pass gives the slots back
            begun = [batch for batch, why in zip(batches, refused, strict=True) if not why]
            answers = await asyncio.gather(*map(self._announce, begun), return_exceptions=True)
        finally:
            self._beginning.difference_update(slots)
        for batch, failure in zip(begun, answers, strict=True):
            if failure is not None:
                # It may be stored all the same: then the slots are only given up once no VM is found for them.
                await self._doubt(batch.instances, f"the statestore failed before the call: {failure!r}")
                continue
            self._c.note_all("instance.launching", {one.id: batch.reason for one in batch.instances})
            self._c.calls.start(f"launch:{batch.instances[0].batch}", self._call(batch), batch.offering.profile)
            await give_way()  # it prepares its request
        for failure in answers:
            if failure is not None:
                raise failure
        return refused

    async def _announce(self, batch: _Batch) -> None:
        """Commit that its call is about to be made, together with others', each by itself: a change of hundreds of
        instances would keep the loop from all else."""
        await self._c.store.change([InstanceChange(one.id, _E.LAUNCH) for one in batch.instances])

    async def _intend(self, batches: Sequence[_Batch]) -> list[str]:
        """Of each "" where its intent is committed; others are beyond a limit, which is remembered, and told."""
        now = self._c.clock.now()
        asked = (self._c.store.intend(batch.intent(now), batch.instances) for batch in batches)
        refused = []
        for batch, answer in zip(batches, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, OverBudget):
                apart.untold(self._c, batch.pool, batch.offering.profile)
                self._c.failures.unaffordable(batch.offering, answer.message, now)
            elif isinstance(answer, BaseException):
                raise answer
            refused.append(answer.message if isinstance(answer, OverBudget) else "")
        return refused

    def _stopped(self) -> bool:
        """Whether an operator has stopped launching by now: asked again after each wait."""
        return self._c.stop.launches

    async def _withdraw(self, batch: _Batch) -> None:
        """Give back the slots of a launch that was stopped before its call was made; in doubt where the store can't
        say so."""
        try:
            await self._c.apply_all(
                [one.id for one in batch.instances], _E.REFUSED, cause="withdrawn", ended_ms=self._c.clock.now(),
                reason=str(self._c.stop), expect=frozenset({_S.LAUNCHING}),
            )  # fmt: skip
        except DispatchError as error:
            await self._doubt_open(batch.instances, f"its withdrawal could not be stored: {error}")

    async def _withdraw_unbegun(self) -> None:
        """Give back the slots of intents after which the store failed, or launching was stopped: no call was made for
        them, and none will be."""
        rows = self._c.store.instances()
        if rows.keys() <= self._begun:
            return
        fresh = rows.keys() - self._begun
        intended = {slot for slot in fresh if rows[slot].state is _S.INTENDED}
        self._begun = rows.keys() - intended
        unbegun = [slot for slot in rows if slot in intended and slot not in self._beginning]
        await self._c.apply_all(
            unbegun, _E.REFUSED, cause="withdrawn", ended_ms=self._c.clock.now(),
            reason=str(self._c.stop) if self._stopped() else "the statestore failed before the launch call",
            expect=frozenset({_S.INTENDED}),
        )  # fmt: skip
        # Not one that turns out to be launching: that its call was about to be made had been stored, and not answered.
        self._c.in_doubt.difference_update(set(unbegun) - self._c.store.instances().keys())

    def _room(self, pool: Pool, offering: Offering, living: Mapping[InstanceId, Instance]) -> int:
        """How many more instances every cap admits, by the store's own count and what is reserved at this moment."""
        rows = list({**self._reserved, **living}.values())
        levels: tuple[tuple[Caps, list[Instance]], ...] = (
            (self._c.settings.caps, rows),
            (self._c.settings.profile_caps.get(offering.profile, Caps()),
             [row for row in rows if row.profile == offering.profile]),
            (pool.caps, [row for row in rows if row.pool == pool.name]),
        )  # fmt: skip
        levels += tuple(
            (bounds.caps, [row for row in rows if row.profile in bounds.profiles])
            for bounds in self._c.settings.driver_caps
            if offering.profile in bounds.profiles
        )
        room = 1_000_000  # no cap at all: then the driver's `most_slots` is what bounds a launch
        for caps, counted in levels:
            if caps.instances is not None:
                room = min(room, caps.instances - len(counted))
            if caps.vcpus is not None:
                room = min(room, (caps.vcpus - sum(row.vcpus for row in counted)) // max(offering.type.vcpus, 1))
        return room

    async def _call(self, batch: _Batch) -> None:
        if self._stopped():  # while it waited for its turn
            await self._withdraw(batch)
            return
        provider = self._c.settings.providers[batch.offering.profile]
        try:
            request = self._request(batch)
        except Exception as error:
            log.exception("launch.not_made", batch=batch.instances[0].batch)
            unmade = errors.InvalidRequest(f"the launch could not be prepared: {error}")
            await self._answered(batch, batch.instances, LaunchResult((), unmade))
            return
        for slot in batch.instances:
            asked_ms = self._c.clock.monotonic()
            self._c.contacts.of(slot.id, asked_ms).asked_ms = asked_ms
        try:
            async with asyncio.timeout(self._c.settings.timing.call_timeout_ms / 1000):
                result = await provider.launch(request)
        except (errors.InDoubt, TimeoutError) as error:
            await self._doubt(batch.instances, repr(error))
            return
        except errors.ProviderError as error:
            result = LaunchResult((), error)
        except Exception as error:
            await self._doubt(batch.instances, repr(error))
            raise
        await self._answered(batch, batch.instances, result)

    async def _answered(self, batch: _Batch, asked: Sequence[Instance], result: LaunchResult) -> None:
        """Each slot that was asked for has a VM, is pending, or was refused; in doubt where the store can't say so."""
        try:
            await self._sort(batch, asked, result)
        except DispatchError as error:
            await self._doubt_open(asked, f"the answer could not be stored: {error}")

    async def _doubt_open(self, asked: Sequence[Instance], why: str) -> None:
        """Doubt those of `asked` of which nothing has been stored."""
        rows = self._c.store.instances()
        await self._doubt([one for one in asked if one.id in rows and rows[one.id].state is _S.LAUNCHING], why)

    async def _sort(self, batch: _Batch, asked: Sequence[Instance], result: LaunchResult) -> None:
        if result.vms:
            self._c.failures.launched(batch.offering)
        missing = await self._bind(asked, result)
        for operation in result.pending:
            self._follow(batch, operation)
            missing = [slot for slot in missing if slot not in operation.instances]
        if not result.vms and not result.pending:
            apart.untold(self._c, batch.pool, batch.offering.profile)
        if missing:
            await self._refused(batch, missing, result.shortfall)
        elif result.shortfall is not None:
            self._remember(batch.offering, result.shortfall)
        if result.shortfall is not None:
            await self._refused_though_seen(batch.offering, asked, result, result.shortfall)

    async def _refused_though_seen(
        self, offering: Offering, asked: Sequence[Instance], result: LaunchResult, error: errors.ProviderError
    ) -> None:
        """End those whose VM a listing has shown while it was being made, and which the provider refused after all:
        nothing boots there, and why is known now. One that has registered proves the answer wrong or old."""
        answered = {vm.id for vm in result.vms}
        pending = {slot for operation in result.pending for slot in operation.instances}
        rows = self._c.store.instances()
        seen = [
            one.id for one in asked if one.id not in pending and one.id in rows and rows[one.id].vm not in answered
        ]  # fmt: skip
        if seen:
            cause = "refused" if isinstance(error, _OF_NO_RECIPE) else "launch-failed"
            why = _refusal(offering, error)
            await self._c.apply_all(seen, _E.FAIL, cause=cause, reason=why, expect=frozenset({_S.BOOTING}))

    def _remember(self, offering: Offering, error: errors.ProviderError) -> None:
        """Nothing of the kind is tried for a while; how much of the quotas is used is asked before long."""
        self._c.failures.refused(offering, error, self._c.clock.now())
        if isinstance(error, errors.QuotaExceeded):
            self._c.view(offering.profile).quotas_doubted = True

    def _follow(self, batch: _Batch, operation: Operation) -> None:
        asked = [instance for instance in batch.instances if instance.id in operation.instances]

        async def answered(_: Operation, result: LaunchResult | None) -> None:
            if result is None:
                await self._doubt_open(asked, "its operation does not end")
            else:
                await self._answered(batch, asked, result)

        self.operations.follow(batch.offering.profile, operation, answered, batch.pool.boot_deadline_ms)

    def _request(self, batch: _Batch) -> LaunchRequest:
        first, offering, slots = batch.instances[0], batch.offering, len(batch.instances)
        make, spot = self._c.settings.user_data, offering.market is Market.SPOT
        alone = slots == 1 and not self._c.settings.providers[offering.profile].traits.named_slots
        worn = tags.of_instance(first, self._c.settings.deployment, self._c.store.id, slot=0 if alone else -1)
        return LaunchRequest(
            batch=first.batch,
            slots=slots,
            offering=offering,
            tags=worn.encode(),
            user_data=make(batch.pool, first.batch, slots, offering.profile, first.ends_ms, spot),
            ends_ms=first.ends_ms,
            instances=tuple(instance.id for instance in batch.instances),
        )

    async def _doubt(self, instances: Sequence[Instance], why: str) -> None:
        """Nobody knows whether the VMs exist: keep the slots, look for them."""
        for instance in instances:
            self._c.in_doubt.add(instance.id)
            self._c.note("instance.in-doubt", instance=instance.id, detail=f"the launch was not answered: {why}")
        self._c.wake()

    async def _bind(self, instances: Sequence[Instance], result: LaunchResult) -> list[InstanceId]:
        """Give each VM of the answer its slot; returns the slots that got none. Conflict where agents that register
        are faster each time: then the slots are in doubt, and a listing finds them their VMs."""
        for last in (False, False, True):
            changes, unbound = self._bindings(instances, result)
            if not changes:
                break
            try:
                await self._c.store.change(changes)
            except (Conflict, IllegalTransition):
                if last:
                    raise
                continue
            self._c.note_all("instance.booting", {one.instance: f"VM {one.fields['vm']}" for one in changes})
            break
        self._c.heeded.seen(result.vms, self._c.clock.monotonic(), 0)
        apart.heard(self._c, instances[0], result.vms)
        self._c.wake()
        return unbound

    def _bindings(
        self, instances: Sequence[Instance], result: LaunchResult
    ) -> tuple[list[InstanceChange], list[InstanceId]]:
        """The slots that the VMs of the answer get, and those that get none, as things are now."""
        rows = self._c.store.instances()
        taken = {row.vm for row in rows.values() if row.vm}.union(self._c.store.parted(instances[0].batch))
        unbound = [i.id for i in instances if i.id in rows and not rows[i.id].vm]
        changes: list[InstanceChange] = []
        for vm in result.vms:
            if vm.id in taken:
                continue  # its agent registered before the answer came, and may have ended it since
            own = instance_id(instances[0].batch, vm.slot) if vm.slot >= 0 else None
            slot = own if own in unbound else (unbound[0] if own is None and unbound else None)
            if slot is None:
                continue
            unbound.remove(slot)
            taken.add(vm.id)
            event = _E.BOUND if rows[slot].state is _S.LAUNCHING else None
            launched = vm.created_ms or self._c.clock.now()
            changes.append(InstanceChange(slot, event, {"vm": vm.id, "launched_ms": launched}))
        return changes, unbound

    async def _refused(self, batch: _Batch, missing: Sequence[InstanceId], error: errors.ProviderError | None) -> None:
        """The provider said no: give the slots back, remember it, try the next offering. Each time there is one less
        of them, and the planner gives `MAX_ALTERNATIVES` at most."""
        error = error or errors.CapacityUnavailable("fewer VMs than asked for")
        self._remember(batch.offering, error)
        async with self._c.deciding:  # a pass between slots and slots would see work that nothing is launched for
            await self._fail_over(batch, missing, error)

    async def _fail_over(self, batch: _Batch, missing: Sequence[InstanceId], error: errors.ProviderError) -> None:
        now = self._c.clock.now()
        why = _refusal(batch.offering, error)
        await self._c.apply_all(missing, _E.REFUSED, cause="refused", reason=why, ended_ms=now)
        rest = [other for other in batch.alternatives if not self._c.failures.covers(other, now, batch.pool)]
        if not rest:
            return
        left = await self._spending.left()
        rows = self._c.store.instances()  # as they are when slots are reserved: nothing is awaited in between
        again = self._prepare(
            batch.pool.name, rest[0], len(missing), f"{batch.reason}; {why}", rest[1:], rows, left
        )  # fmt: skip
        if isinstance(again, _Batch):
            await self._begin([again])


#: Refusals that say nothing of what the VM was to be made from. After others it may have run, and failed by its image.
_OF_NO_RECIPE = (
    errors.CapacityUnavailable, errors.QuotaExceeded, errors.RateLimited, errors.CredentialsRejected,
)  # fmt: skip


def _refusal(offering: Offering, error: errors.ProviderError) -> str:
    return f"{offering.key} refused: {type(error).__name__}: {error.message}"


def _parts(actions: Iterable[Launch]) -> Iterator[list[Launch]]:
    """`actions` in their order, in parts as large as all before them: the cloud is given something to do at once and
    kept at it, and few parts are made, since each is two commits and an account of all that lives."""
    part: list[Launch] = []
    before = slots = 0
    for action in actions:
        part.append(action)
        slots += action.slots
        if slots >= min(max(before, FIRST_SLOTS), MOST_SLOTS):
            yield part
            part, before, slots = [], before + slots, 0
    if part:
        yield part


def slots_of(
    batch: BatchId, pool: Pool, offering: Offering, count: int, now_ms: int, ends_ms: int, lag: int | None,
    reason: str = "",
) -> tuple[Instance, ...]:  # fmt: skip
    """The instances of a launch that is decided now. `lag`: how long after `ends_ms` they may still bill."""
    machine = offering.machine(pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance)
    return tuple(
        Instance(
            id=instance_id(batch, slot), batch=batch, pool=pool.name, profile=offering.profile,
            type=offering.type.name, zone=offering.zone, market=offering.market, machine=machine,
            vcpus=offering.type.vcpus, rate=offering.rate, state=_S.INTENDED, intended_ms=now_ms,
            ends_ms=ends_ms, boot_deadline_ms=now_ms + pool.boot_deadline_ms, reason=reason,
            minimum_ms=offering.minimum_ms, increment_ms=offering.increment_ms,
            max_rate=offering.highest_rate,
            extra_rate=offering.extra_rate, end_lag_ms=lag,
            template=pool.template, image=offering.image,
        )
        for slot in range(count)
    )  # fmt: skip
