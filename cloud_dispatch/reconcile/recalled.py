"""What a statestore from a backup has forgotten, and tags remember. Owns what of it counts.

Tags are written by the dispatcher alone, soon after the row has changed: what they say differently was said after the
copy was made. But a listing may show tags of before that, until the provider's consistency horizon is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import InstanceId, ProfileName
from cloud_dispatch.domain.instance import Behaviour, Instance
from cloud_dispatch.ports.store import Store
from cloud_dispatch.reconcile.asking import Listed
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.matching import Bound, Ended, Finding, Seen
from cloud_dispatch.reconcile.restored import READ, is_shown, settled
from cloud_dispatch.reconcile.spend import lag_ms

#: The fact after which restore an operator has spoken of an instance.
_SPOKEN = "spoken-of:"


def spoken_of(store: Store, row: Instance) -> dict[str, str]:
    """An operator says what the instance shall do: from here on no tag knows better. The facts that say so, to be set
    with his word: a dispatcher that dies before the tag says it too must not take the old one for news."""
    since = store.restored_ms()
    return {} if since is None or is_shown(store, row.profile) else {_SPOKEN + row.id: str(since)}


class Recalled:
    def __init__(self, context: Context) -> None:
        self._c = context

    async def read(
        self, found: Sequence[Finding], rows: Mapping[InstanceId, Instance], profile: ProfileName, listed: Listed
    ) -> None:
        """Heed the tags that a listing has shown, of a store that was restored."""
        since = self._c.store.restored_ms()
        if since is None or is_shown(self._c.store, profile):
            return
        known = [
            (rows[one.instance], facts)
            for one in found
            if isinstance(one, Seen | Bound | Ended) and one.instance in rows
            if (facts := tags.decode(one.vm.tags)) is not None
        ]
        await self._ends(known, profile)
        last = settled(self._c, since, self._c.settings.providers[profile], listed.started_ms)
        await self._told(known, last=last)
        if last and listed.listing.complete:
            await self._c.store.set_fact(READ + profile, str(since))

    def undecided(self, row: Instance) -> bool:
        """Whether its tag may still say what the row does not know."""
        store = self._c.store
        spoken = store.fact(_SPOKEN + row.id) == str(store.restored_ms())
        return not is_shown(store, row.profile) and not spoken

    async def _ends(self, known: Sequence[tuple[Instance, tags.VmTags]], profile: ProfileName) -> None:
        """Which ends were moved on: the later one on the VM counts for what it may cost. No budget is asked, since it
        is so."""
        lag = lag_ms(self._c.settings, profile)
        for row, facts in known:
            if lag is not None and row.last_ms is not None:
                later_ms = facts.ends_ms + lag
                if later_ms > row.last_ms:
                    await self._c.apply(row.id, None, end_lag_ms=later_ms - row.ends_ms)

    async def _told(self, known: Sequence[tuple[Instance, tags.VmTags]], *, last: bool) -> None:
        """What operators have said of instances, by a listing that shows it all if it is the `last`: before that a hold
        alone is heeded, which costs nothing that is not given back. Not of those of which one has spoken since: from
        then on the row knows."""
        for row, facts in known:
            heeded = last or facts.behaviour is Behaviour.HOLD
            if heeded and self.undecided(row) and facts.behaviour is not row.behaviour:
                told = f"its tag says {facts.behaviour}, which an operator said after the copy was made"
                self._c.note("instance.recalled", instance=row.id, detail=told)
                await self._c.apply(row.id, None, behaviour=facts.behaviour)
                self._c.tell(row.id)
