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


def day_ms(*day: int) -> int:
    return int(datetime(*day, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type, misc]


def test_the_table_is_an_estimate_with_a_date() -> None:
    """Whatever it has, it says since when; and it has nothing of spot, which changes from day to day."""
    for region in ("us-central1", "us-east1", "europe-west4", "asia-northeast1"):
        rates = prices.embedded(region)
        assert rates.estimated
        assert {one.market for one in rates.rates} == {DAY}
        assert set(rates.dates) == set(rates.rates)
    assert prices.embedded("mars-north1").rates == {}


@pytest.mark.parametrize(
    ("made", "region", "dollars", "since"),
    [
        # the newer of two records
        (Made("e2-standard-2", 2, 8_192), "us-central1", "0.06701142", (2026, 9, 25)),
        (Made("e2-standard-2", 2, 8_192), "us-west1", "0.06701142", (2025, 3, 2)),
        # what others have recorded of whole machine types at the same time
        (Made("e2-highcpu-2", 2, 2_048), "europe-west6", "0.06921942", (2025, 3, 2)),
        (Made("e2-highcpu-2", 2, 2_048), "australia-southeast1", "0.07019646", (2025, 3, 2)),
        (Made("a2-highgpu-2g", 24, 174_080, "a100", 2), "us-east1", "7.34677", (2025, 3, 6)),
        (Made("a2-highgpu-2g", 24, 174_080, "a100", 2), "europe-west4", "7.495944", (2025, 3, 6)),
        (Made("n1-standard-4", 4, 15_360), "asia-southeast1", "0.234386", (2025, 3, 2)),
        (Made("n2d-standard-2", 2, 8_192), "us-east1", "0.084492", (2025, 3, 2)),
        (Made("c2-standard-4", 4, 16_384), "us-east1", "0.208808", (2025, 3, 2)),
    ],
)  # fmt: skip
def test_the_table_has_the_usual_families_and_regions(
    made: Made, region: str, dollars: str, since: tuple[int, int, int]
) -> None:
    found = prices.price(made, region, DAY, prices.embedded(region))
    assert found is not None
    assert (found.rate, found.priced_ms) == (parse_rate(dollars), day_ms(*since))


def test_a_price_is_as_old_as_the_oldest_of_its_parts() -> None:
    known = Rates({**KNOWN.rates}, NOW_MS, dates={part("ram", "n2"): NOW_MS - 7})
    found = prices.price(Made("n2-standard-2", 2, 8_192), REGION, DAY, known)
    assert found is not None
    assert found.priced_ms == NOW_MS - 7


def test_what_its_records_contradict_themselves_in_is_not_in_the_table() -> None:
    """A core of one region and memory of another."""
    assert prices.price(Made("c2-standard-4", 4, 16_384), "us-east4", DAY, prices.embedded("us-east4")) is None
    assert prices.price(Made("n2-standard-2", 2, 8_192), "us-west4", DAY, prices.embedded("us-west4")) is None


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
