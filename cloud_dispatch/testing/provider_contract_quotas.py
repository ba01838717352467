"""Quotas: told where there are any, in their own unit, for what they bind, and with what is used of them."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.offering import InstanceType, Market
from cloud_dispatch.provider.spi import Provider, Quota, QuotaUnit
from cloud_dispatch.testing.provider_contract_base import Connect, ContractBase, Faults, MakeRequest

_ROOM_FOR = 3


def _takes(kind: InstanceType, unit: QuotaUnit) -> int:
    """What one VM of the type takes of a quota in this unit."""
    by = {QuotaUnit.INSTANCES: 1, QuotaUnit.VCPUS: kind.vcpus, QuotaUnit.GPUS: kind.capacity.gpus}
    return by[unit]


class QuotaContract(ContractBase):
    async def test_quotas_are_told_or_denied(self, provider: Provider, make_request: MakeRequest) -> None:
        """With the trait there are quotas whose use rises with a launch, where any of it is told; without it, none."""
        before = await provider.quotas()
        if not provider.traits.quotas:
            assert list(before) == []
            return
        assert len({(quota.name, quota.scope) for quota in before}) == len(before) > 0
        used = {(quota.name, quota.scope): quota.used for quota in before}
        await self.launched(provider, await make_request())
        await self.horizon(provider)
        after = await provider.quotas()
        told = [quota for quota in after if quota.used is not None]
        assert not told or any((quota.used or 0) > (used[quota.name, quota.scope] or 0) for quota in told)

    @pytest.mark.parametrize("market", list(Market), ids=str)
    async def test_a_launch_uses_the_quotas_that_speak_of_it(
        self, provider: Provider, make_request: MakeRequest, market: Market
    ) -> None:
        """By what it takes of each, in its unit: a VM, its vCPUs, its GPUs. One that speaks of it and counts something
        else may stay as it was, not all of them; one of another market, family or region does. (In an account that
        nobody else uses meanwhile.)"""
        if not provider.traits.quotas:
            pytest.skip("the driver tells no quotas")
        spot = market is Market.SPOT
        offering = await self.cheapest_spot(provider) if spot else await self.cheapest(provider)
        larger = [
            other
            for other in await provider.offerings()
            if other.market is market and other.rate is not None and other.type.vcpus > 1
        ]  # of which VMs and vCPUs can be told apart
        offering = min(larger, key=lambda other: (other.rate or 0, other.key), default=offering)
        before = {(quota.name, quota.scope): quota.used for quota in await provider.quotas()}
        await self.launched(provider, await make_request(offering=offering))
        await self.horizon(provider)
        told = [quota for quota in await provider.quotas() if quota.used is not None]
        rose = {quota: (quota.used or 0) - (before[quota.name, quota.scope] or 0) for quota in told}
        for quota, by in rose.items():
            takes = _takes(offering.type, quota.unit) if quota.scope.covers(offering) else 0
            assert by in (0, takes), f"{quota} rose by {by}, and the VM takes {takes}"
        covering = [quota for quota in told if quota.scope.covers(offering)]
        assert not covering or any(rose[quota] for quota in covering)

    async def test_a_limit_is_told_in_its_unit(
        self, provider: Provider, connect: Connect, faults: Faults, make_request: MakeRequest
    ) -> None:
        """Room for so many VMs of a type is told as so many times what one of them takes, by a quota that speaks of
        it."""
        if not provider.traits.quotas:
            pytest.skip("the driver tells no quotas")
        request = await make_request()
        faults.quota(_ROOM_FOR)
        limited = connect()
        try:
            told = [quota for quota in await limited.quotas() if quota.scope.covers(request.offering)]
        finally:
            await limited.close()
        assert told
        if any(quota.limit is None for quota in told):
            return
        kind = request.offering.type
        assert [quota for quota in told if _room(quota) == _ROOM_FOR * _takes(kind, quota.unit)], f"{told}"


def _room(quota: Quota) -> int:
    return (quota.limit or 0) - (quota.used or 0)
