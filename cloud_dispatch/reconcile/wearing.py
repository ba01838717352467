"""What VMs wear: the tags that tell whoever reads them without the statestore. Owns which are to be set, and when.

A VM whose name does not tell its slot is tagged with it as soon as it has one: an agent knows itself by its slot, and a
statestore that comes back older than the launch can tell two VMs of one launch apart by nothing else. What did not take
then, and all else that is to be changed, is seen by the next listing and set after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import InstanceId, ProfileName, VmId, slot_of
from cloud_dispatch.provider.errors import ProviderError
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.matching import Finding, Seen
from cloud_dispatch.reconcile.together import Together

log = structlog.get_logger(__name__)
#: Tags that VMs shall have, as pairs.
_Tags = tuple[tuple[str, str], ...]


class Wearing:
    def __init__(self, context: Context) -> None:
        self._c = context
        self._tags: Together[_Tags] = Together(context.calls, "tag", self._tag)
        #: Rows that had a VM when they were looked at and are not looked at again. Those of a start are the listings'.
        self._bound: Set[InstanceId] = {name for name, row in context.store.instances().items() if row.vm}

    def name(self) -> None:
        """Have those tagged with their slots that have got their VMs since the last time."""
        rows = self._c.store.instances()
        if rows.keys() <= self._bound:
            return
        fresh = [row for name, row in rows.items() if name not in self._bound]
        self._bound = rows.keys() - {row.id for row in fresh if not row.vm}
        by_profile: dict[ProfileName, list[tuple[VmId, _Tags]]] = {}
        for row in fresh:
            if row.vm:
                by_profile.setdefault(row.profile, []).append((row.vm, (_slot(row.id),)))
        for profile, wanted in by_profile.items():
            provider = self._c.settings.providers.get(profile)
            if provider is not None and not provider.traits.named_slots:
                self._tags.start(profile, provider, wanted)

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
                    yield row.vm, ((tags.BEHAVIOUR, str(row.behaviour)), *slot, *store)

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
