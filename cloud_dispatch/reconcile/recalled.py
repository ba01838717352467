"""What a statestore from a backup has forgotten, and tags remember. Owns what of it counts.

Tags are written by the dispatcher alone, soon after the row has changed: what they say differently was said after the
copy was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.instance import Behaviour, Instance
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.matching import Bound, Ended, Finding, Seen
from cloud_dispatch.reconcile.spend import lag_ms

#: Facts: up to which restore the tags of a profile's VMs have been read.
_FACT = "tags-recalled:"


class Recalled:
    def __init__(self, context: Context) -> None:
        self._c = context
        #: Behaviours as the copy has them, of rows whose tags have not been read since.
        self._behaviours: dict[InstanceId, Behaviour] = {}
        if context.store.unsure_since() is not None:
            self._behaviours = {row.id: row.behaviour for row in context.store.instances().values()}

    async def read(
        self, found: Sequence[Finding], rows: Mapping[InstanceId, Instance], profile: ProfileName, complete: bool
    ) -> None:
        """Heed the tags that a listing has shown, of a store that was restored."""
        since = self._c.store.unsure_since()
        if since is None:
            return
        known = [
            (rows[one.instance], facts)
            for one in found
            if isinstance(one, Seen | Bound | Ended) and one.instance in rows
            if (facts := tags.decode(one.vm.tags)) is not None
        ]
        await self._ends(known, profile)
        if self._c.store.fact(_FACT + profile) != str(since):
            await self._told(known)
            if complete:
                await self._c.store.set_fact(_FACT + profile, str(since))

    async def _ends(self, known: Sequence[tuple[Instance, tags.VmTags]], profile: ProfileName) -> None:
        """Which ends were moved on: the later one on the VM counts for what it may cost. No budget is asked, since it
        is so."""
        lag = lag_ms(self._c.settings, profile)
        for row, facts in known:
            if lag is not None and row.last_ms is not None:
                later_ms = facts.ends_ms + lag
                if later_ms > row.last_ms:
                    await self._c.apply(row.id, None, end_lag_ms=later_ms - row.ends_ms)

    async def _told(self, known: Sequence[tuple[Instance, tags.VmTags]]) -> None:
        """What operators have said of instances. Once, and not of those of which one has spoken since: from then on
        the row knows."""
        for row, facts in known:
            before = self._behaviours.pop(row.id, None)
            if before is row.behaviour and facts.behaviour is not before:
                told = f"its tag says {facts.behaviour}, which an operator said after the copy was made"
                self._c.note("instance.recalled", instance=row.id, detail=told)
                await self._c.apply(row.id, None, behaviour=facts.behaviour)
                self._c.tell(row.id)
