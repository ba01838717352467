"""What Google asks: types are put together of their parts, and what has a part that is not known has no price."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_dispatch.domain.money import parse_rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch_gcp import prices
from cloud_dispatch_gcp.prices import Made, Part, Rates
from tests.providers.gcp.scenes import NOW_MS, REGION

DAY = Market.ON_DEMAND


def sku(
    description: str, nanos: int, *, usage: str = "OnDemand", unit: str = "h", units: str = "0", **more: Any
) -> Any:
    tiers = more.pop(
        "tiers", [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}]
    )
    return {
        "description": description, "category": {"resourceFamily": "Compute", "usageType": usage},
        "serviceRegions": ["us-central1", "us-east1"],
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": tiers}}], **more,
    }  # fmt: skip


def part(kind: str, name: str, market: Market = DAY) -> Part:
    return Part(kind, name, REGION, market)


@pytest.mark.parametrize(
    ("description", "unit", "usage", "found"),
    [
        ("N2 Instance Core running in Americas", "h", "OnDemand", part("core", "n2")),
        ("N2 Instance Ram running in Americas", "GiBy.h", "OnDemand", part("ram", "n2")),
        ("N2D AMD Instance Core running in Americas", "h", "OnDemand", part("core", "n2d")),
        ("C4A Arm Instance Ram running in Iowa", "GiBy.h", "OnDemand", part("ram", "c4a")),
        ("N1 Predefined Instance Core running in Americas", "h", "OnDemand", part("core", "n1")),
        ("Custom Instance Core running in Americas", "h", "OnDemand", part("core", "n1 custom")),
        ("N2 Custom Instance Core running in Americas", "h", "OnDemand", part("core", "n2 custom")),
        ("Compute optimized Core running in Americas", "h", "OnDemand", part("core", "c2")),
        ("Nvidia L4 GPU running in Americas", "h", "OnDemand", part("gpu", "l4")),
        ("Nvidia Tesla T4 GPU running in Americas", "h", "OnDemand", part("gpu", "t4")),
        ("Nvidia Tesla A100 80GB GPU running in Americas", "h", "OnDemand", part("gpu", "a100-80gb")),
        ("Spot Preemptible N2 Instance Core running in Iowa", "h", "Preemptible", part("core", "n2", Market.SPOT)),
        ("Preemptible N2 Instance Core running in Iowa", "h", "Preemptible", part("core", "n2", Market.SPOT)),
        ("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Iowa", "h", "Preemptible",
         part("gpu", "t4", Market.SPOT)),
    ],
)  # fmt: skip
def test_parts_by_what_google_calls_them(description: str, unit: str, usage: str, found: Part) -> None:
    rates = prices.of_catalogue([sku(description, 7, unit=unit, usage=usage)], NOW_MS).rates
    assert rates[found] == 7
    assert len(rates) == 2, "one for each region"


@pytest.mark.parametrize(
    "wrong",
    [
        sku("Commitment v1: N2 Cpu in Americas for 1 Year", 7, usage="Commit1Yr"),
        sku("N2 Sole Tenancy Instance Core running in Americas", 7),
        sku("Sole Tenancy Premium for N2 Instance Core running in Americas", 7),
        sku("Reserved N2 Instance Core running in Americas", 7),
        sku("N2 Custom Extended Instance Ram running in Americas", 7, unit="GiBy.h"),
        sku("Spot Preemptible N2 Instance Core running in Americas", 7),
        sku("N2 Instance Core running in Americas", 7, usage="Preemptible"),
        sku("N2 Instance Core running in Americas", 7, unit="mo"),
        sku("N2 Instance Core running in Americas", 0),
        sku("N2 Instance Core running in Americas", 7, tiers=[]),
        sku("N2 Instance Core running in Americas", 7, tiers=[{}, {}]),
        sku("N2 Instance Core running in Americas", 7, pricingInfo=[]),
        {},
    ],
    ids=lambda one: str(one.get("description")),
)
def test_what_is_no_plain_hourly_price_is_left_out(wrong: Any) -> None:
    assert prices.of_catalogue([wrong], NOW_MS).rates == {}


def test_a_part_with_two_prices_has_none() -> None:
    name = "N2 Instance Core running in Americas"
    assert prices.of_catalogue([sku(name, 7), sku(name, 8)], NOW_MS).rates == {}
    assert len(prices.of_catalogue([sku(name, 7), sku(name, 7)], NOW_MS).rates) == 2


KNOWN = Rates(
    {
        part("core", "n2"): 31_611_000, part("ram", "n2"): 4_237_000, part("core", "e2"): 21_811_590,
        part("ram", "e2"): 2_923_530, part("core", "g2"): 24_988_000, part("ram", "g2"): 2_927_000,
        part("gpu", "l4"): 560_040_000, part("core", "n2 custom"): 33_191_000, part("ram", "n2 custom"): 4_449_000,
    },
    NOW_MS,
)  # fmt: skip


@pytest.mark.parametrize(
    ("made", "dollars"),
    [
        (Made("n2-standard-8", 8, 32_768), "0.388472"),
        (Made("e2-micro", 2, 1_024), "0.008376428"),
        (Made("e2-medium", 2, 4_096), "0.03350571"),
        (Made("g2-standard-4", 4, 16_384, "l4", 1), "0.706824"),
        (Made("n2-custom-4-10240", 4, 10_240), "0.177254"),
    ],
)
def test_a_type_costs_what_it_is_made_of(made: Made, dollars: str) -> None:
    """Google's own examples, to the nano-dollar: rounded up."""
    found = prices.price(made, REGION, DAY, KNOWN)
    assert found is not None
    assert (found.rate, found.priced_ms, found.estimated) == (parse_rate(dollars), NOW_MS, False)


@pytest.mark.parametrize(
    "made",
    [
        Made("c3-standard-4", 4, 16_384),
        Made("n2-standard-2", 2, 8_192, "t4", 1),
        Made("n2-standard-2", 2, 8_192, extras=True),
        Made("n2-custom-2-65536-ext", 2, 65_536),
        Made("f1-micro", 1, 614),
    ],
    ids=lambda one: one.name,
)
def test_what_has_an_unknown_part_has_no_price(made: Made) -> None:
    assert prices.price(made, REGION, DAY, KNOWN) is None
    assert prices.price(Made("n2-standard-2", 2, 8_192), REGION, Market.SPOT, KNOWN) is None
    assert prices.price(Made("n2-standard-2", 2, 8_192), "europe-west4", DAY, KNOWN) is None


def test_the_table_is_an_estimate_with_a_date() -> None:
    """Whatever it has, it says since when; and it has nothing of spot, which changes from day to day."""
    for region in ("us-central1", "us-east1"):
        rates = prices.embedded(region)
        assert rates.estimated
        assert rates.priced_ms >= int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000
        found = prices.price(Made("e2-standard-2", 2, 8_192), region, DAY, rates)
        assert found is not None
        assert found.rate == 2 * 21_811_590 + 8 * 2_923_530
        assert {one.market for one in rates.rates} == {DAY}
    assert prices.embedded("mars-north1").rates == {}


def test_what_comes_with_a_vm_costs_too() -> None:
    """30 GiB at ten cents a month and an address; elsewhere more; local disks by their size."""
    plain = prices.of_extras("us-central1", "pd-balanced", 30 * GIB, 0, public_address=True)
    assert plain == -(-3_000_000_000 // 672) + 5_000_000
    assert prices.of_extras("europe-west1", "pd-balanced", 30 * GIB, 0, public_address=True) > plain
    assert prices.of_extras("us-central1", "pd-balanced", 30 * GIB, 1, public_address=False) > 30_000_000


@pytest.mark.parametrize("wrong", ["", "x", "1.x", "-1"])
def test_what_is_no_price_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="no price"):
        prices.nano(wrong)
