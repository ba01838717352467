"""Launches. Owns the way from an action to VMs: intent, call, binding, refusal and failover, doubt.

The intent with its slots is committed before the call; whatever happens then, the slots are found again by their batch.
A definitive refusal fails over to the next alternative in the same pass under a new batch. A launch in doubt keeps its
slots until its VMs are seen or their absence is proved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, InstanceId, instance_id
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState, LaunchIntent
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.planner.plan import Launch
from cloud_dispatch.ports.store import InstanceChange
from cloud_dispatch.provider import errors
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult
from cloud_dispatch.reconcile.context import Context

log = structlog.get_logger(__name__)
_S, _E = InstanceState, InstanceEvent
BATCH_ID_LENGTH = 12


class Launcher:
    def __init__(self, context: Context) -> None:
        self._c = context

    async def launch(self, action: Launch) -> None:
        """Commit the intent and start the call beside the loop."""
        await self._begin(action.pool, action.offering, action.slots, action.reason, action.alternatives)

    async def _begin(
        self, pool_name: str, offering: Offering, slots: int, reason: str, alternatives: Sequence[Offering]
    ) -> None:
        pool = next((p for p in self._c.settings.pools.values() if p.name == pool_name), None)
        if pool is None or self._c.paused:
            return
        slots = min(slots, self._room(pool, offering))
        if slots <= 0:
            return
        batch = BatchId(self._c.entropy.name("batch", BATCH_ID_LENGTH))
        instances = self._slots(batch, pool, offering, slots, reason)
        await self._c.store.intend(
            LaunchIntent(batch, pool.name, offering.key, slots, self._c.clock.now(), reason), instances
        )
        await self._c.store.change([InstanceChange(i.id, _E.LAUNCH) for i in instances])
        for instance in instances:
            self._c.note("instance.launching", instance=instance.id, detail=reason)
        self._c.calls.start(f"launch:{batch}", self._call(pool, offering, instances, reason, alternatives))

    def _room(self, pool: Pool, offering: Offering) -> int:
        """How many more instances every cap admits, by the store's own count at this moment (promise P4)."""
        rows = list(self._c.store.instances().values())
        levels = (
            (self._c.settings.caps, rows),
            (self._c.settings.profile_caps.get(offering.profile, Caps()),
             [row for row in rows if row.profile == offering.profile]),
            (pool.caps, [row for row in rows if row.pool == pool.name]),
        )  # fmt: skip
        room = 1_000_000
        for caps, counted in levels:
            if caps.instances is not None:
                room = min(room, caps.instances - len(counted))
            if caps.vcpus is not None:
                room = min(room, (caps.vcpus - sum(row.vcpus for row in counted)) // max(offering.type.vcpus, 1))
        return room

    def _slots(self, batch: BatchId, pool: Pool, offering: Offering, slots: int, reason: str) -> tuple[Instance, ...]:
        now = self._c.clock.now()
        machine = offering.machine(pool.name, pool.labels, reserve=pool.reserve, max_tasks=pool.max_tasks_per_instance)
        return tuple(
            Instance(
                id=instance_id(batch, slot), batch=batch, pool=pool.name, profile=offering.profile,
                type=offering.type.name, zone=offering.zone, market=offering.market, machine=machine,
                vcpus=offering.type.vcpus, rate=offering.rate, state=_S.INTENDED, intended_ms=now,
                ends_ms=now + pool.end.lifetime_ms, boot_deadline_ms=now + pool.boot_deadline_ms, reason=reason,
                minimum_ms=offering.minimum_ms, increment_ms=offering.increment_ms,
            )
            for slot in range(slots)
        )  # fmt: skip

    async def _call(
        self,
        pool: Pool,
        offering: Offering,
        instances: Sequence[Instance],
        reason: str,
        alternatives: Sequence[Offering],
    ) -> None:
        provider = self._c.settings.providers[offering.profile]
        try:
            request = self._request(pool, offering, instances)
        except Exception as error:
            log.exception("launch.not_made", batch=instances[0].batch)
            unmade = errors.InvalidRequest(f"the launch could not be prepared: {error}")
            await self._refused(pool, offering, [i.id for i in instances], unmade, reason, alternatives)
            return
        try:
            async with asyncio.timeout(self._c.settings.timing.call_timeout_ms / 1000):
                result = await provider.launch(request)
        except (errors.InDoubt, TimeoutError) as error:
            await self._doubt(instances, repr(error))
            return
        except errors.ProviderError as error:
            result = LaunchResult((), error)
        except Exception as error:
            await self._doubt(instances, repr(error))
            raise
        missing = await self._bind(instances, result)
        if missing:
            await self._refused(pool, offering, missing, result.shortfall, reason, alternatives)

    def _request(self, pool: Pool, offering: Offering, instances: Sequence[Instance]) -> LaunchRequest:
        first = instances[0]
        return LaunchRequest(
            batch=first.batch,
            slots=len(instances),
            offering=offering,
            tags=tags.of_instance(first, self._c.settings.deployment, self._c.store.id).encode(),
            user_data=self._c.settings.user_data(pool, first.batch, len(instances), offering.profile),
            ends_ms=first.ends_ms,
            instances=tuple(instance.id for instance in instances),
        )

    async def _doubt(self, instances: Sequence[Instance], why: str) -> None:
        """Nobody knows whether the VMs exist: keep the slots, look for them."""
        for instance in instances:
            self._c.in_doubt.add(instance.id)
            self._c.note("instance.in-doubt", instance=instance.id, detail=f"the launch was not answered: {why}")
        self._c.wake()

    async def _bind(self, instances: Sequence[Instance], result: LaunchResult) -> list[InstanceId]:
        """Give each VM of the answer its slot; returns the slots that got none."""
        rows = self._c.store.instances()
        taken = {row.vm for row in rows.values() if row.vm}
        unbound = [i.id for i in instances if i.id in rows and not rows[i.id].vm]
        changes: list[InstanceChange] = []
        for vm in result.vms:
            if vm.id in taken:
                continue  # its agent registered before the answer came
            own = instance_id(instances[0].batch, vm.slot) if vm.slot >= 0 else None
            slot = own if own in unbound else (unbound[0] if own is None and unbound else None)
            if slot is None:
                continue
            unbound.remove(slot)
            event = _E.BOUND if rows[slot].state is _S.LAUNCHING else None
            changes.append(
                InstanceChange(slot, event, {"vm": vm.id, "launched_ms": vm.created_ms or self._c.clock.now()})
            )
        if changes:
            await self._c.store.change(changes)
            for change in changes:
                self._c.note("instance.booting", instance=change.instance, detail=f"VM {change.fields['vm']}")
        self._c.wake()
        return unbound

    async def _refused(
        self,
        pool: Pool,
        offering: Offering,
        missing: Sequence[InstanceId],
        error: errors.ProviderError | None,
        reason: str,
        alternatives: Sequence[Offering],
    ) -> None:
        """The provider said no: give the slots back, remember it, try the next offering."""
        error = error or errors.CapacityUnavailable("fewer VMs than asked for")
        now = self._c.clock.now()
        self._c.failures.refused(offering, error, now)
        why = f"{offering.key} refused: {type(error).__name__}: {error.message}"
        for slot in missing:
            await self._c.apply(slot, _E.REFUSED, cause="refused", reason=why, ended_ms=now)
        rest = [other for other in alternatives if not self._c.failures.covers(other, now)]
        if rest:
            await self._begin(pool.name, rest[0], len(missing), f"{reason}; {why}", rest[1:])
