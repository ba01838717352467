"""What VMs wear: the tags that tell whoever reads them without the statestore. Owns which are to be set, and when.

A VM whose name does not tell its slot is tagged with it soon after it has one: an agent knows itself by its slot, and a
statestore that comes back older than the launch can tell two VMs of one launch apart by nothing else. So is what an
operator has said, which such a store has forgotten (`recalled`). What did not take then, and all else, is seen by the
next listing and set after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId, slot_of
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.matching import Finding, Seen
from cloud_dispatch.reconcile.together import Together

log = structlog.get_logger(__name__)
#: Tags that VMs shall have, as pairs.
_Tags = tuple[tuple[str, str], ...]


class Wearing:
    """`undecided` says whether a VM's tag may know its behaviour better than the row."""

    def __init__(self, context: Context, undecided: Callable[[Instance], bool]) -> None:
        self._c = context
        self._undecided = undecided
        self._tags: Together[_Tags] = Together(context.calls, "tag", self._tag)
        #: Rows that had a VM when they were looked at and are not looked at again. Those of a start are the listings'.
        self._bound: Set[InstanceId] = {name for name, row in context.store.instances().items() if row.vm}

    def catch_up(self) -> None:
        """Have set what has come to be since the last time: the slots of those that have got their VMs, and behaviours
        that an operator has changed."""
        by_profile: dict[ProfileName, list[tuple[VmId, _Tags]]] = {}
        for row in self._newly_bound():
            by_profile.setdefault(row.profile, []).append((row.vm, (_slot(row.id),)))
        for row in self._reworded():
            by_profile.setdefault(row.profile, []).append((row.vm, (_behaviour(row),)))
        for profile, wanted in by_profile.items():
            if profile in self._c.settings.providers:
                self._tags.start(profile, self._c.settings.providers[profile], wanted)

    def _newly_bound(self) -> list[Instance]:
        """Those whose names do not tell their slots, nor the tags of their launch: one that is alone wears its own."""
        rows = self._c.store.instances()
        if rows.keys() <= self._bound:
            return []
        fresh = [row for name, row in rows.items() if name not in self._bound]
        self._bound = rows.keys() - {row.id for row in fresh if not row.vm}
        known, alike = self._c.settings.providers, Counter(row.batch for row in rows.values())
        return [
            row
            for row in fresh
            if row.vm and row.profile in known and not known[row.profile].traits.named_slots and alike[row.batch] > 1
        ]

    def _reworded(self) -> list[Instance]:
        rows, reworded = self._c.store.instances(), self._c.reworded
        found = [rows[name] for name in reworded if name in rows and rows[name].vm]
        reworded.clear()
        return found

    def after(self, profile: ProfileName, provider: Provider, found: Sequence[Finding]) -> None:
        """Have set what a listing shows to be missing."""
        self._tags.start(profile, provider, self._wanted(found))

    def _wanted(self, found: Sequence[Finding]) -> Iterator[tuple[VmId, _Tags]]:
        """The row's behaviour beats the tag's; what the VM is shall be known without the row; and whose it is now."""
        rows = self._c.store.instances()
        for finding in found:
            if isinstance(finding, Seen) and finding.news:
                row = rows.get(finding.instance)
                if row is not None and row.vm:
                    slot = (_slot(row.id),) if finding.nameless else ()
                    store = ((tags.STORE, self._c.store.id),) if finding.inherited else ()
                    behaviour = () if self._undecided(row) else (_behaviour(row),)
                    if behaviour or slot or store:
                        yield row.vm, (*behaviour, *slot, *store)

    async def _tag(self, provider: Provider, vms: Sequence[VmId], wanted: _Tags) -> None:
        """Once; a tag that did not take is seen by the next listing and set again."""
        try:
            missing = await provider.tag(vms, dict(wanted))
        except ProviderError as error:
            log.warning("instance.tag_failed", vms=len(vms), first=vms[0], error=repr(error))
        else:
            if missing:
                log.info("instance.tag_missed", vms=len(missing), first=min(missing))


def _slot(instance: InstanceId) -> tuple[str, str]:
    return tags.SLOT, str(slot_of(instance)[1])


def _behaviour(row: Instance) -> tuple[str, str]:
    return tags.BEHAVIOUR, str(row.behaviour)
