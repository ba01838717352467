"""A wrapper around any driver that believes tags and nothing else. Owns the one question: is this VM ours?

Providers filter by tag with varying care (case, prefixes, stale indexes), and a wrong answer would end somebody's VM.
So what a listing brings is decoded here, and VMs whose tags do not carry the deployment are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from cloud_dispatch.domain import tags
from cloud_dispatch.domain.ids import InstanceId, VmId
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Listing, Provider, Vm

log = structlog.get_logger(__name__)


class TagFilter:
    """`driver` seen by `deployment`: lists its VMs and no others.

    An empty deployment, and any other than its own, lists nothing; such a listing is not complete, so that it proves
    no absence.
    """

    def __init__(self, driver: Provider, deployment: str) -> None:
        self._driver = driver
        self._deployment = deployment
        self.traits = driver.traits

    async def offerings(self) -> Sequence[Offering]:
        return await self._driver.offerings()

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        return await self._driver.launch(request)

    async def list(self, deployment: str) -> Listing:
        if not deployment or deployment != self._deployment:
            return Listing((), complete=False)
        listing = await self._driver.list(deployment)
        return Listing(tuple(vm for vm in listing.vms if self._ours(vm)), listing.complete)

    def vm_name(self, instance: InstanceId) -> VmId:
        return self._driver.vm_name(instance)

    async def get(self, vm: VmId) -> Vm:
        """Not filtered: a VM whose tags are late must not look absent."""
        return await self._driver.get(vm)

    async def terminate(self, vm: VmId) -> None:
        await self._driver.terminate(vm)

    async def tag(self, vm: VmId, tags: Mapping[str, str]) -> None:
        await self._driver.tag(vm, tags)

    async def console(self, vm: VmId) -> str:
        return await self._driver.console(vm)

    async def close(self) -> None:
        await self._driver.close()

    def _ours(self, vm: Vm) -> bool:
        facts = tags.decode(vm.tags)
        if facts is not None:
            return facts.deployment == self._deployment
        if vm.tags.get(tags.DEPLOYMENT) == self._deployment:
            # Nobody will end it for us: an operator has to see it.
            log.warning("provider.tags_unreadable", vm=vm.id, tags=dict(vm.tags))
        return False
