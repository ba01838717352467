"""Trouble: refusals by class, doubt, throttling, latency; each leaves the account as its class promises."""

from __future__ import annotations

import asyncio

import pytest

from cloud_dispatch.provider.errors import DEFINITIVE, InDoubt, ProviderError
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import ContractBase, Faults, MakeRequest


class FaultContract(ContractBase):
    @pytest.mark.parametrize("error", DEFINITIVE, ids=lambda error: error.__name__)
    async def test_a_definitive_refusal_makes_nothing(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, error: type[ProviderError]
    ) -> None:
        """Each refusal arrives as its own class, its scope covers what was asked for, and it leaves no VM behind; the
        same request succeeds later."""
        request = await make_request()
        faults.fail("launch", error)
        with pytest.raises(ProviderError) as caught:
            await provider.launch(request)
        assert type(caught.value) is error
        assert caught.value.scope.covers(request.offering)
        assert await self.known(provider) == set()
        assert len(await self.launched(provider, request)) == 1

    async def test_a_launch_in_doubt_and_repeated_gives_the_same_vms(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A launch that was carried out and whose answer was lost is found by listing and by asking again."""
        request = await make_request()
        faults.fail("launch", InDoubt, commit=True)
        with pytest.raises(InDoubt):
            await provider.launch(request)
        made = await self.until(lambda: self.ids(provider), bool)
        again = await self.launched(provider, request)
        assert {vm.id for vm in again} == made
        assert await self.known(provider) == made

    async def test_a_launch_in_doubt_that_was_lost_can_be_repeated(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A request that never arrived is InDoubt too; nothing is there, and the repeat makes the batch once."""
        request = await make_request()
        faults.fail("launch", InDoubt)
        with pytest.raises(InDoubt):
            await provider.launch(request)
        assert await self.known(provider) == set()
        (vm,) = await self.launched(provider, request)
        assert await self.known(provider) == {vm.id}

    async def test_a_launch_whose_caller_gave_up_can_be_repeated(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """A caller's deadline ends a slow launch with its VMs made or not; repeated, it gives one set of them."""
        request = await make_request()
        faults.delay("launch", 60_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await provider.launch(request)
        faults.calm()  # on a busy machine the call may not have been made
        (vm,) = await self.launched(provider, request)
        assert await self.known(provider) == {vm.id}

    async def test_a_fault_of_a_later_call_leaves_the_earlier_ones_alone(
        self, provider: Provider, faults: Faults, make_request: MakeRequest
    ) -> None:
        """What a driver answered before trouble came stays true: of two launches the first VM is there."""
        faults.fail("launch", DEFINITIVE[0], after=1)
        (vm,) = await self.launched(provider, await make_request())
        with pytest.raises(DEFINITIVE[0]):
            await provider.launch(await make_request())
        assert await self.known(provider) == {vm.id}
