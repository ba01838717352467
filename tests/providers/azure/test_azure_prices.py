"""Azure's Retail Prices, the embedded table, disks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch_azure import prices
from tests.providers.azure.scenes import NOW_MS, REGION, SIZE


def item(price: str = "0.115", **more: Any) -> str:
    """As the API tells it; the price is written as it stands there, since JSON's numbers are no decimals to Python."""
    said = {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "armRegionName": REGION, "location": "EU West",
        "effectiveStartDate": "2021-11-01T00:00:00Z", "meterName": "D2s v5",
        "productName": "Virtual Machines Dsv5 Series", "skuName": "D2s v5", "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour", "type": "Consumption",
        "isPrimaryMeterRegion": True, "armSkuName": SIZE, **more,
    }  # fmt: skip
    return json.dumps(said)[:-1] + f', "retailPrice": {price}, "unitPrice": {price}}}'


def page(*items: str) -> str:
    return f'{{"Items": [{", ".join(items)}], "NextPageLink": null}}'


def read(*items: str) -> dict[tuple[str, Market], int]:
    return {key: one.rate for key, one in prices.of_list([page(*items)], REGION, NOW_MS).items()}


SPOT = {"skuName": "D2s v5 Spot", "meterName": "D2s v5 Spot"}


def test_spot_and_on_demand_are_told_apart() -> None:
    found = read(item(), item("0.0213671", **SPOT))
    assert found == {(SIZE, Market.ON_DEMAND): 115_000_000, (SIZE, Market.SPOT): 21_367_100}


@pytest.mark.parametrize(
    "more",
    [
        {"productName": "Virtual Machines Dsv5 Series Windows"},
        {"skuName": "D2s v5 Low Priority"},
        {"type": "Reservation"},
        {"type": "DevTestConsumption"},
        {"unitOfMeasure": "1/Month"},
        {"currencyCode": "EUR"},
        {"armRegionName": "northeurope"},
        {"productName": "Dsv5 Series Dedicated Host"},
        {"productName": "Virtual Machines Dsv5 Series Cloud Services"},
        {"armSkuName": ""},
        {"effectiveStartDate": "2099-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_what_is_no_price_of_a_linux_vm_now(more: dict[str, Any]) -> None:
    assert read(item(**more)) == {}
    assert read(item(), item("9", **more)) == {(SIZE, Market.ON_DEMAND): 115_000_000}


def test_the_price_that_began_last_counts_and_two_at_once_are_none() -> None:
    later = {"effectiveStartDate": "2025-01-01T00:00:00Z"}
    assert read(item(), item("0.12", **later)) == {(SIZE, Market.ON_DEMAND): 120_000_000}
    assert read(item(), item("0.12")) == {}
    assert read(item(), item()) == {(SIZE, Market.ON_DEMAND): 115_000_000}


def test_by_meters_that_are_not_primary_nothing_is_billed() -> None:
    """A cheaper one that began later is no price, nor does one that began together leave the price in doubt; alone it
    is all that is told."""
    other = {"isPrimaryMeterRegion": False}
    later = {"effectiveStartDate": "2025-01-01T00:00:00Z", **other}
    listed = {(SIZE, Market.ON_DEMAND): 115_000_000}
    assert read(item(), item("0.09", **later)) == read(item("0.09", **later), item()) == listed
    assert read(item(), item("0.09", **other)) == listed
    assert read(item(**other)) == listed


@pytest.mark.parametrize("price", ["0", "-1", "null", '"?"', "1e400"])
def test_a_price_that_can_not_be_read_is_unknown(price: str) -> None:
    assert read(item(price)) == {}


def test_decimals_are_exact() -> None:
    assert prices.nano("0.1") == 100_000_000
    assert prices.nano("9e-05") == 90_000
    assert prices.nano("0.0000000001") == 1
    for wrong in ("", "x", "nan", "inf", "-1"):
        with pytest.raises(ValueError):
            prices.nano(wrong)


def test_the_query_is_of_the_region_and_of_prices_that_anybody_pays() -> None:
    said = prices.query("eastus")
    assert "armRegionName eq 'eastus'" in said["$filter"]
    assert "priceType eq 'Consumption'" in said["$filter"]
    assert said["currencyCode"] == "USD"


def test_the_table_says_how_old_it_is() -> None:
    """A region that it has nothing of has no prices: nothing is guessed."""
    found = prices.embedded("eastus")
    assert found["Standard_D2s_v5"].rate == 96_000_000
    assert all(one.estimated and one.priced_ms and one.rate for one in found.values())
    assert prices.embedded("westeurope") == {}
    born = found["Standard_D2s_v5"].priced_ms
    assert prices.stale(found.values(), born) == ""
    assert "90d" in prices.stale(found.values(), born + 90 * 86_400_000)


def test_a_disk_costs_what_its_tier_does() -> None:
    """33 GiB are billed as 64; elsewhere than where the figures are from it may be twice as much."""
    one = prices.of_extras("eastus", "StandardSSD_LRS", [33 * GIB], public_address=False)
    assert one == -(-4_800_000_000 // 672)
    two = prices.of_extras("eastus", "StandardSSD_LRS", [33 * GIB, 1], public_address=True)
    assert two == -(-5_100_000_000 // 672) + 5_000_000
    assert prices.of_extras("westeurope", "StandardSSD_LRS", [33 * GIB], public_address=False) == -(
        -9_600_000_000 // 672
    )
    assert prices.of_extras("eastus", "StandardSSD_LRS", [], public_address=False) == 0
