"""Two markets that are never taken for each other: in what is offered, what it costs, and what is made."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.testing.provider_contract_base import DEPLOYMENT, ContractBase, MakeRequest
from cloud_dispatch.testing.provider_contract_truth import Truth

#: (type, place), market, rate
_Priced = tuple[tuple[str, str], Market, Rate]


class MarketContract(ContractBase):
    async def test_spot_is_cheaper_where_both_markets_have_a_price(self, provider: Provider) -> None:
        """Here or there a spot machine may cost as much as on demand, or more. Where not one costs less, one market's
        prices are told for the other's; so it is with what the price service says."""
        offered = await provider.offerings()
        offers = [
            ((one.type.name, one.zone), one.market, one.rate)
            for one in offered
            if one.rate  # what costs nothing costs it on both
        ]
        if not _pairs(offers):
            pytest.skip("no type has a price on both markets")
        told = [((one.type, one.place), one.market, one.rate) for one in await provider.prices()]
        for source, pairs in (("offerings", _pairs(offers)), ("prices", _pairs(told))):
            assert not pairs or any(spot < on_demand for on_demand, spot in pairs), f"{source}: no spot price is lower"

    @pytest.mark.parametrize("market", list(Market), ids=str)
    async def test_a_vm_is_of_the_market_asked_for(
        self, provider: Provider, truth: Truth, make_request: MakeRequest, market: Market
    ) -> None:
        """By the account's own books, and as listings and gets show it: what was taken for spot does not bill as on
        demand, and what shall stay is not taken back."""
        spot = market is Market.SPOT
        offering = await self.cheapest_spot(provider) if spot else await self.cheapest(provider)
        (vm,) = await self.launched(provider, await make_request(offering=offering))
        await self.horizon(provider)
        listed = [one for one in (await provider.list(DEPLOYMENT)).vms if one.id == vm.id]
        shown = [*listed, await provider.get(vm.id), vm]
        assert [one.spot for one in shown] == [spot] * 3
        assert await truth.market(vm.id) is market


def _pairs(priced: Iterable[_Priced]) -> list[tuple[Rate, Rate]]:
    """What each kind costs on demand and as spot, where both are known."""
    rates: dict[tuple[str, str], dict[Market, Rate]] = {}
    for kind, market, rate in priced:
        rates.setdefault(kind, {})[market] = rate
    return [(on[Market.ON_DEMAND], on[Market.SPOT]) for on in rates.values() if len(on) > 1]
