"""What only some clouds have: things that outlive a VM, prices that are told, a hand to hear. Traits say which."""

from __future__ import annotations

import pytest

from cloud_dispatch.provider.errors import InvalidRequest
from cloud_dispatch.provider.spi import Leftover, LeftoverKind, Level, Provider
from cloud_dispatch.testing.provider_contract_base import (
    DEPLOYMENT,
    LONG_AGO_MS,
    OTHER_DEPLOYMENT,
    UP,
    ContractBase,
    Faults,
    MakeRequest,
)


class ExtrasContract(ContractBase):
    async def test_a_driver_that_looks_for_no_leftovers_has_none(self, provider: Provider) -> None:
        """Without the trait there is nothing to list, and deleting is an invalid request."""
        if provider.traits.leftovers:
            pytest.skip("the driver looks for leftovers")
        assert list(await provider.leftovers(DEPLOYMENT)) == []
        with pytest.raises(InvalidRequest):
            await provider.delete_leftover(Leftover("no-such-disk", LeftoverKind.DISK, "z", {}))

    async def test_a_vm_that_lives_has_no_leftovers(self, provider: Provider, make_request: MakeRequest) -> None:
        """What is attached to a VM is no leftover of it, while it lives and after a clean end."""
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        assert list(await provider.leftovers(DEPLOYMENT)) == []
        await self.end(provider, vm.id)
        await self.horizon(provider)
        assert list(await provider.leftovers(DEPLOYMENT)) == []

    @pytest.mark.parametrize("kind", list(LeftoverKind), ids=str)
    async def test_what_outlives_a_vm_is_found_and_deleted(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, kind: LeftoverKind
    ) -> None:
        """A disk, NIC or address of a VM that is gone is listed with its tags until it is deleted; twice is once. When
        it was made is told in milliseconds, or not."""
        if not provider.traits.leftovers:
            pytest.skip("nothing of this driver's VMs can outlive them")
        request = await make_request()
        (vm,) = await self.launched(provider, request)
        await self.running(provider, vm.id)
        faults.leave_behind(kind)
        await self.end(provider, vm.id)
        await self.horizon(provider)
        (found,) = await provider.leftovers(DEPLOYMENT)
        assert (found.kind, dict(found.tags)) == (kind, dict(request.tags))
        assert found.zone or kind is not LeftoverKind.DISK, "a disk is of a zone"
        assert found.created_ms == 0 or found.created_ms >= LONG_AGO_MS, "milliseconds since the epoch"
        assert list(await provider.leftovers(OTHER_DEPLOYMENT)) == []
        assert list(await provider.leftovers("")) == []
        await provider.delete_leftover(found)
        await self.horizon(provider)
        assert list(await provider.leftovers(DEPLOYMENT)) == []
        await provider.delete_leftover(found)

    @pytest.mark.parametrize("kind", list(LeftoverKind), ids=str)
    async def test_what_a_vm_has_is_not_deleted(
        self, provider: Provider, faults: Faults, make_request: MakeRequest, kind: LeftoverKind
    ) -> None:
        """Something that was left behind, and that a VM was given after it was listed, is an invalid request and no
        leftover any more: who is told that it was deleted believes that it bills no more."""
        if not provider.traits.leftovers:
            pytest.skip("nothing of this driver's VMs can outlive them")
        (gone,) = await self.launched(provider, await make_request())
        await self.running(provider, gone.id)
        faults.leave_behind(kind)
        await self.end(provider, gone.id)
        (vm,) = await self.launched(provider, await make_request())
        await self.running(provider, vm.id)
        (found,) = await provider.leftovers(DEPLOYMENT)
        faults.attach(found, vm.id)
        with pytest.raises(InvalidRequest):
            await provider.delete_leftover(found)
        await self.horizon(provider)
        assert list(await provider.leftovers(DEPLOYMENT)) == []
        assert (await provider.get(vm.id)).state in UP

    async def test_a_preflight_makes_nothing_and_has_no_error(
        self, provider: Provider, make_request: MakeRequest
    ) -> None:
        """With an account in which launches work, launches would work; and no VM is there by it."""
        await make_request()  # there are offerings, and so all that a launch needs
        found = await provider.preflight(DEPLOYMENT)
        assert [one for one in found if one.level is Level.ERROR] == []
        assert all(one.about and one.text for one in found)
        await self.horizon(provider)
        assert (await provider.list(DEPLOYMENT)).vms == ()

    async def test_a_preflight_says_what_is_wrong(self, provider: Provider, faults: Faults) -> None:
        """Where the account refuses the credentials that is found, as an error, and raised at nobody: whoever asks
        what is wrong gets a list of it."""
        faults.lock_out()
        try:
            found = await provider.preflight(DEPLOYMENT)
        finally:
            faults.calm()
        assert [one for one in found if one.level is Level.ERROR], f"nothing is wrong: {found}"
        assert all(one.about and one.text for one in found)

    async def test_a_hand_is_heard_or_denied(self, provider: Provider) -> None:
        """With a period there is an answer, whatever it is; without one there is no hand to hear, and why is said."""
        said = await provider.heard(DEPLOYMENT)
        assert said.last_ms >= 0
        assert bool(said.why) == (said.last_ms == 0)
        assert provider.traits.hand_period_ms or said.last_ms == 0

    async def test_prices_are_told_or_denied(self, provider: Provider, make_request: MakeRequest) -> None:
        """With the trait there is one, above nothing, for each priced offering's type, place and market, and no two;
        without it, none."""
        await make_request()  # there are offerings
        told = await provider.prices()
        assert bool(told) == provider.traits.prices
        assert len({(one.type, one.place, one.market) for one in told}) == len(told)
        assert all(one.rate > 0 for one in told)
        for offer in await provider.offerings() if told else ():
            of_it = [one for one in told if (one.type, one.market) == (offer.type.name, offer.market)]
            assert offer.rate is None or any(offer.zone.startswith(one.place) for one in of_it)
