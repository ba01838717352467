"""Where a driver looks, as its traits say it: a dispatcher keeps a profile with VMs from being moved by this alone."""

from __future__ import annotations

import pytest

from cloud_dispatch.provider.spi import Provider, Traits
from cloud_dispatch.testing.provider_contract_base import Connect, ContractBase, Elsewhere, MakeRequest


class PlaceContract(ContractBase):
    async def test_a_place_is_the_same_whoever_says_it(self, connect: Connect) -> None:
        """Two drivers of the same settings, before anything was asked and after: a start compares what it is told with
        what another process has noted. Each part of it has a name of its own, and says something."""
        one, other = connect(), connect()
        try:
            told = _where(other.traits)
            assert _where(one.traits) == told
            await one.offerings()
            assert _where(one.traits) == told
        finally:
            await one.close()
            await other.close()
        place, zones = told
        names = [name for name, _ in place]
        assert len(set(names)) == len(names)
        assert all((*names, *(value for _, value in place), *zones))

    async def test_zones_hold_all_that_is_offered(self, provider: Provider) -> None:
        """A VM in another zone than those would never be listed."""
        zones = provider.traits.zones
        outside = {one.zone for one in await provider.offerings() if zones and not one.zone.startswith(zones)}
        assert outside == set()

    async def test_another_place_is_told_apart(
        self, provider: Provider, elsewhere: Elsewhere, make_request: MakeRequest
    ) -> None:
        """By a part that both name and that differs, or by zones that do not hold the VM: what a driver does not list
        it must not seem to list, or the VM is taken for lost."""
        others = list(elsewhere())
        if not others:
            pytest.skip("there is no other place: give a fixture `elsewhere`")
        (vm,) = await self.launched(provider, await make_request())
        try:
            assert vm.id in await self.known(provider)
            for other in others:
                assert vm.id not in await self.known(other)
                here, there = dict(provider.traits.place), dict(other.traits.place)
                differ = any(here[name] != there[name] for name in here.keys() & there.keys())
                zones = other.traits.zones
                assert differ or (zones and not vm.zone.startswith(zones)), f"{there} seems to be where {here} is"
        finally:
            for other in others:
                await other.close()


def _where(traits: Traits) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    return traits.place, traits.zones
