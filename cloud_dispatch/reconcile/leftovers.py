"""What outlives its VM: disks, NICs, addresses. Owns the proof that one belongs to nothing, and its deletion (P2).

A leftover is deleted only when it carries our tags and those of one of our statestores, no launch of its batch is being
made, and two listings had it, the second begun after the provider's consistency horizon and the longest call. What
another statestore made is left alone, as its VMs are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import BatchId, ProfileName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Leftover, Provider
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.observe import heritage

log = structlog.get_logger(__name__)
_S = InstanceState
#: While an instance of a batch is in one of these, what carries the batch's tags may be about to get its VM.
MAKING = frozenset({_S.INTENDED, _S.LAUNCHING, _S.BOOTING, _S.UNKNOWN})
#: Deletions after one listing; the rest wait for the next.
MOST_A_ROUND = 20
LONGEST_DELAY_MS = 1_800_000


@dataclass
class _Suspect:
    """Seen without a VM. Monotonic milliseconds; `tries` deletions did not take."""

    since_ms: int
    due_ms: int
    tries: int = 0


class Leftovers:
    """Looks at each provider that can tell, now and then. Volatile: after a restart the proof begins anew."""

    def __init__(self, context: Context) -> None:
        self._c = context
        self._suspects: dict[ProfileName, dict[str, _Suspect]] = {}
        self._looked_ms: dict[ProfileName, int] = {}

    def look(self) -> None:
        """Start a look at every provider whose turn it is."""
        now, timing = self._c.clock.monotonic(), self._c.settings.timing
        for profile, provider in self._c.settings.providers.items():
            if not provider.traits.leftovers:
                continue
            looked = self._looked_ms.get(profile)
            if looked is None or now - looked >= timing.leftovers_interval_ms:
                if self._c.calls.start(f"leftovers:{profile}", self._look_at(profile, provider, now), profile):
                    self._looked_ms[profile] = now

    async def _look_at(self, profile: ProfileName, provider: Provider, started_ms: int) -> None:
        try:
            async with asyncio.timeout(self._c.settings.timing.call_timeout_ms / 1000):
                found = await provider.leftovers(self._c.settings.deployment)
        except (ProviderError, TimeoutError) as error:
            log.warning("leftovers.not_listed", profile=profile, error=repr(error))
            return
        left = MOST_A_ROUND
        for leftover, suspect in self._judge(profile, provider, found, started_ms):
            if left == 0:
                break
            left -= 1
            await self._delete(profile, provider, leftover, suspect)

    def _judge(
        self, profile: ProfileName, provider: Provider, found: Sequence[Leftover], started_ms: int
    ) -> list[tuple[Leftover, _Suspect]]:
        """Those that are proved to belong to nothing; what is not listed any more is forgotten."""
        before, now = self._suspects.get(profile, {}), self._c.clock.monotonic()
        making, ours = self._making(), heritage(self._c.store)
        horizon_ms = provider.traits.consistency_ms + self._c.settings.timing.call_timeout_ms
        suspects = self._suspects[profile] = {}
        proved = []
        for leftover in found:
            facts = tags.decode(leftover.tags)
            if facts is None or facts.deployment != self._c.settings.deployment or facts.store not in ours:
                continue
            if facts.batch in making:
                continue  # the proof begins when nothing of its batch is under way
            suspect = before.get(leftover.id)
            if suspect is None:
                suspects[leftover.id] = _Suspect(now, now + horizon_ms)
                continue
            suspects[leftover.id] = suspect
            if started_ms >= suspect.due_ms:
                proved.append((leftover, suspect))
        return proved

    def _making(self) -> frozenset[BatchId]:
        rows = self._c.store.instances().values()
        return frozenset(row.batch for row in rows if row.state in MAKING)

    async def _delete(self, profile: ProfileName, provider: Provider, leftover: Leftover, suspect: _Suspect) -> None:
        """Once; it is forgotten when a listing lacks it, and tried again, ever more seldom, while one has it."""
        suspect.tries += 1
        pause_ms = self._c.settings.timing.leftovers_interval_ms << min(suspect.tries - 1, 16)
        suspect.due_ms = self._c.clock.monotonic() + min(pause_ms, LONGEST_DELAY_MS)
        what = f"{leftover.kind} {leftover.id} of profile {profile}"
        try:
            async with asyncio.timeout(self._c.settings.timing.call_timeout_ms / 1000):
                await provider.delete_leftover(leftover)
        except (ProviderError, TimeoutError) as error:
            self._c.note("leftover.not-deleted", detail=f"{what}: {error!r}; it is tried again")
        else:
            waited_s = (self._c.clock.monotonic() - suspect.since_ms) // 1000
            self._c.note("leftover.deleted", detail=f"{what}: it belonged to no VM for {waited_s} s")
