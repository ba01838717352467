"""A wrapper around any driver that believes tags and nothing else. Owns the one question: is this ours?

Providers filter by tag with varying care (case, prefixes, stale indexes), and a wrong answer would end somebody's VM.
So what a listing brings is decoded here, and what does not carry the deployment in its tags is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Listing, Provider

log = structlog.get_logger(__name__)


class TagFilter(Wrapper):
    """`driver` seen by `deployment`: lists its VMs and leftovers, and no others.

    An empty deployment, and any other than its own, lists nothing; such a listing is not complete, so that it proves
    no absence. A get is not filtered: a VM whose tags are late must not look absent.
    """

    def __init__(self, driver: Provider, deployment: str) -> None:
        super().__init__(driver)
        self._deployment = deployment

    async def call(self, name: Call, *args: Any) -> Any:
        if name is Call.LIST:
            return await self._list(*args)
        if name is Call.LEFTOVERS:
            return await self._leftovers(*args)
        return await self.pass_on(name, *args)

    async def _list(self, deployment: str) -> Listing:
        if not deployment or deployment != self._deployment:
            return Listing((), complete=False)
        listing: Listing = await self.pass_on(Call.LIST, deployment)
        return Listing(tuple(vm for vm in listing.vms if self._ours(vm.id, vm.tags)), listing.complete)

    async def _leftovers(self, deployment: str) -> tuple[Any, ...]:
        if not deployment or deployment != self._deployment:
            return ()
        found = await self.pass_on(Call.LEFTOVERS, deployment)
        return tuple(item for item in found if self._ours(item.id, item.tags))

    def _ours(self, name: str, worn: Mapping[str, str]) -> bool:
        if worn.get(tags.DEPLOYMENT) != self._deployment:
            return False
        if tags.decode(worn) is not None:
            return True
        # Nobody will end it for us: an operator has to see it.
        log.warning("provider.tags_unreadable", vm=name, tags=dict(worn))
        return False
