"""Ends. Owns that a VM which shall go is asked to go until its provider says that it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.instance import Instance, InstanceEvent, InstanceState
from cloud_dispatch.provider.errors import ProviderError, VmNotFound
from cloud_dispatch.provider.spi import Provider, VmState
from cloud_dispatch.reconcile.context import Context

log = structlog.get_logger(__name__)
_TERMINATING = InstanceState.TERMINATING
FIRST_DELAY_MS = 250
LONGEST_DELAY_MS = 30_000


@dataclass
class _Try:
    at_ms: int
    delay_ms: int


class Reaper:
    """Repeats have a back-off; the repetition itself has no end, because a VM that is not gone is billed."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._tries: dict[InstanceId, _Try] = {}
        self._looked: object = None  # at these instances, of which `_terminating` have a VM to end
        self._terminating: list[Instance] = []
        self._known_ms: dict[InstanceId, int] = {}  # since when those with a VM have one, as far as this process knows

    def reap(self) -> None:
        """Start every deletion that is due."""
        now = self._c.clock.monotonic()
        rows = self._c.store.instances()
        if rows is not self._looked:
            self._looked = rows
            self._tries = {i: t for i, t in self._tries.items() if i in rows}
            self._c.unended.keep(rows)
            self._terminating = [row for row in rows.values() if row.state is _TERMINATING and row.vm]
            self._meet(rows, now)
        for row in self._terminating:
            due = self._tries.setdefault(row.id, _Try(now, FIRST_DELAY_MS))
            if now >= due.at_ms and self._c.calls.start(f"reap:{row.id}", self._end(row), row.profile):
                due.at_ms = now + due.delay_ms
                due.delay_ms = min(due.delay_ms * 2, LONGEST_DELAY_MS)

    def _meet(self, rows: Mapping[InstanceId, Instance], now: int) -> None:
        """Nearly all of a large fleet was known before: only the others are looked at."""
        known = self._known_ms
        for gone in known.keys() - rows.keys():
            del known[gone]
        for name in rows.keys() - known.keys():
            if rows[name].vm:
                known[name] = now

    def next_due_ms(self) -> int | None:
        """Milliseconds until the next repetition, None when nothing is terminating."""
        if not self._tries:
            return None
        return max(min(t.at_ms for t in self._tries.values()) - self._c.clock.monotonic(), 0)

    async def _end(self, row: Instance) -> None:
        provider = self._c.settings.providers.get(row.profile)
        if provider is None:
            log.error("instance.unreachable", instance=row.id, profile=row.profile)
            return
        timeout_s = self._c.settings.timing.call_timeout_ms / 1000
        refusal: Exception | None = None
        try:
            refusal = await self._ordered(row, provider, timeout_s)
            async with asyncio.timeout(timeout_s):
                gone = (await provider.get(row.vm)).state is VmState.GONE
        except VmNotFound:
            gone = self._proved(row, provider.traits.consistency_ms)
        except (ProviderError, TimeoutError) as error:
            gone, refusal = False, refusal or error
        if gone:
            await self._gone(row)
        elif refusal is None:
            self._c.unended.accepted(row.id)
        else:
            self._c.unended.refused(row.id, f"{type(refusal).__name__}: {refusal}", self._c.clock.monotonic())
            self._c.note("instance.terminate_failed", instance=row.id, detail=repr(refusal))

    async def _ordered(self, row: Instance, provider: Provider, timeout_s: float) -> Exception | None:
        """Ask for the VM's end. Why that was refused proves nothing, until a look says that the VM is there: a cloud
        whose rights hang on tags may refuse to end one that is gone, which has none any more."""
        try:
            async with asyncio.timeout(timeout_s):
                await provider.terminate(row.vm)
        except VmNotFound:
            raise
        except (ProviderError, TimeoutError) as error:
            return error
        return None

    def _proved(self, row: Instance, consistency_ms: int) -> bool:
        """Whether a VM that was not found is gone, and not just too new to be shown: it was made before this process
        knew of it. Only its own clock tells how long ago that is: a cloud's may be another, the wall's may have jumped
        since, and a launch may have waited long for its turn."""
        now = self._c.clock.monotonic()
        return now >= self._known_ms.get(row.id, now) + consistency_ms

    async def _gone(self, row: Instance) -> None:
        await self._c.apply(row.id, InstanceEvent.GONE, ended_ms=self._c.clock.now())
