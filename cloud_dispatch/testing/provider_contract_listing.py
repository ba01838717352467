"""Listings and gets: whole or known not to be, one deployment, late within the horizon only, kept across drivers."""

from __future__ import annotations

import asyncio

import pytest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import ProviderError, Transient, VmNotFound
from cloud_dispatch.provider.spi import Provider, VmState
from cloud_dispatch.testing.provider_contract_base import (
    DEPLOYMENT,
    OTHER_DEPLOYMENT,
    Connect,
    ContractBase,
    Faults,
    MakeRequest,
)

#: How often a machine that is busy asks for a listing in time.
_TRIES = 20


class ListingContract(ContractBase):
    async def test_a_listing_shows_one_deployment(self, provider: Provider, make_request: MakeRequest) -> None:
        """VMs of another deployment are not listed; an empty deployment lists nothing."""
        (ours,) = await self.launched(provider, await make_request())
        (theirs,) = await self.launched(provider, await make_request(deployment=OTHER_DEPLOYMENT))
        assert await self.known(provider) == {ours.id}
        assert await self.known(provider, OTHER_DEPLOYMENT) == {theirs.id}
        assert (await provider.list("")).vms == ()

    async def test_a_listing_has_every_vm_once(self, provider: Provider, make_request: MakeRequest) -> None:
        """However many pages it takes, a complete listing has each VM once, and says of it what a get says."""
        made: set[VmId] = set()
        while len(made) < self.many:
            slots = min(self.many - len(made), provider.traits.max_batch)
            made |= {vm.id for vm in await self.launched(provider, await make_request(slots=slots))}
        assert await self.known(provider) == made
        for listed in (await provider.list(DEPLOYMENT)).vms[:3]:
            found = await provider.get(listed.id)
            assert (found.type, found.zone, found.slot, found.created_ms, dict(found.tags)) == (
                listed.type, listed.zone, listed.slot, listed.created_ms, dict(listed.tags),
            )  # fmt: skip

    async def test_a_listing_that_was_cut_short_is_not_complete(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """When a page is missing the listing is an error, or says that it is not complete: it proves no absence."""
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        faults.cut_short()
        try:
            listing = await provider.list(DEPLOYMENT)
        except ProviderError as error:
            assert isinstance(error, Transient)  # noqa: PT017  (either answer is right)
        else:
            assert not listing.complete
        assert await self.ids(provider) == {vm.id}

    async def test_a_listing_that_fails_on_a_later_page_is_not_complete(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """Whichever question of it fails, of this listing or the next: what says that it is complete has every VM."""
        made: set[VmId] = set()
        while len(made) < self.many:
            slots = min(self.many - len(made), provider.traits.max_batch)
            made |= {vm.id for vm in await self.launched(provider, await make_request(slots=slots))}
        await self.horizon(provider)
        faults.fail("list", Transient, after=1)
        for _ in range(2):
            try:
                listing = await provider.list(DEPLOYMENT)
            except Transient:
                continue
            assert not listing.complete or {vm.id for vm in listing.vms} == made

    async def test_a_failed_listing_is_an_error_and_not_an_empty_one(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """Trouble while listing is never taken for the absence of VMs."""
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        faults.fail("list", Transient)
        with pytest.raises(Transient):
            await provider.list(DEPLOYMENT)
        assert await self.ids(provider) == {vm.id}

    async def test_a_vm_is_missing_from_listings_no_longer_than_the_horizon(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """`consistency_ms` holds: however late the cloud's lists are, after it a VM that lives is listed and got."""
        horizon = provider.traits.consistency_ms
        if not horizon:
            pytest.skip("the driver's lists are never late")
        (vm,) = await self.launched(provider, await make_request())
        assert vm.id not in await self._shown_within(provider, faults, vm.id, horizon)
        assert await self.known(provider) == {vm.id}
        assert (await provider.get(vm.id)).id == vm.id

    async def _shown_within(self, provider: Provider, faults: Faults, vm: VmId, horizon: int) -> set[VmId]:
        """What a listing shows that was answered before the VM may be shown again: a machine that is busy asks anew."""
        loop = asyncio.get_running_loop()
        for _ in range(_TRIES):
            hidden = loop.time()
            faults.hide(vm, horizon)
            shown = await self.ids(provider)
            if (loop.time() - hidden) * 1000 < horizon:
                return shown
        raise AssertionError(f"no listing was answered within {horizon} ms, in {_TRIES} tries")

    async def test_get_of_an_unknown_vm_is_not_found(self, provider: Provider) -> None:
        """Get tells absence apart from every other trouble."""
        with pytest.raises(VmNotFound):
            await provider.get(self.unknown_vm)

    async def test_a_get_that_fails_is_not_an_absence(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A question that was not answered is Transient: VmNotFound would declare a living VM gone."""
        (vm,) = await self.launched(provider, await make_request())
        await self.horizon(provider)
        faults.fail("get", Transient)
        with pytest.raises(Transient):
            await provider.get(vm.id)
        assert (await provider.get(vm.id)).id == vm.id

    async def test_vms_outlive_the_driver(
        self, provider: Provider, connect: Connect, make_request: MakeRequest
    ) -> None:
        """A new driver over the same account sees the VMs of a closed one, tags included, and can end them."""
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        await self.running(provider, vm.id)
        await provider.close()
        heir = connect()
        try:
            found = await heir.get(vm.id)
            assert (found.state, dict(found.tags)) == (VmState.RUNNING, dict(request.tags))
            await self.end(heir, vm.id)
        finally:
            await heir.close()
