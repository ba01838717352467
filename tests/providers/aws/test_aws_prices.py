"""What AWS asks: its price list, its spot prices, the embedded table, and what is not known."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch_aws import prices
from cloud_dispatch_aws.prices import Price
from tests.providers.aws.scenes import NOW_MS

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("dollars", "rate"),
    [
        ("0.0960000000", 96_000_000),
        ("1", 1_000_000_000),
        ("0.0000000001", 1),
        ("0.0312345678", 31_234_568),
        ("21.957642", 21_957_642_000),
    ],
)
def test_prices_are_exact_and_rounded_up(dollars: str, rate: int) -> None:
    """AWS writes ten digits, one more than a rate has: never less than what is asked."""
    assert prices.nano(dollars) == rate


@pytest.mark.parametrize("text", ["", "-1", "1e3", "0.1.2", "free", "1,0"])
def test_what_is_no_price_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        prices.nano(text)


def product(name: str, dollars: str, unit: str = "Hrs", currency: str = "USD") -> str:
    """A document as GetProducts gives it."""
    dimension = {"unit": unit, "pricePerUnit": {currency: dollars}, "description": "Linux on demand"}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name, "regionCode": "us-east-1"}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}, "Reserved": {"X": {}}},
        }
    )


def test_the_price_list_is_read() -> None:
    found = prices.of_price_list([product("m5.large", "0.0960000000"), product("c5.large", "0.0850000000")], NOW_MS)
    assert found == {"m5.large": Price(Rate(96_000_000), NOW_MS), "c5.large": Price(Rate(85_000_000), NOW_MS)}


@pytest.mark.parametrize(
    "documents",
    [
        [product("m5.large", "0.0960000000", unit="Quantity")],
        [product("m5.large", "0.6", currency="CNY")],
        [product("m5.large", "0.0000000000")],
        [product("m5.large", "0.096"), product("m5.large", "0.097")],
        [json.dumps({"product": {"attributes": {}}})],
        [product("m5.large", "contact us")],
    ],
    ids=["unit", "currency", "nothing", "two", "no type", "words"],
)
def test_what_is_not_clear_is_not_known(documents: list[str]) -> None:
    """Never a guess, and never an error: the other types have their prices."""
    assert prices.of_price_list([*documents, product("c5.large", "0.085")], NOW_MS) == {
        "c5.large": Price(Rate(85_000_000), NOW_MS)
    }


def test_the_newest_spot_price_counts_as_of_when_it_was_asked() -> None:
    """A spot price stands until it changes, however long ago that was."""
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)

    def row(zone: str, dollars: str, days: int) -> dict[str, Any]:
        return {
            "InstanceType": "m5.large", "AvailabilityZone": zone, "SpotPrice": dollars,
            "Timestamp": long_ago + timedelta(days),
        }  # fmt: skip

    rows = [row("a", "0.03", 1), row("a", "0.02", 3), row("a", "0.04", 2), row("b", "0.05", 0), row("c", "", 1)]
    assert prices.of_spot_history(rows, NOW_MS) == {
        ("m5.large", "a"): Price(Rate(20_000_000), NOW_MS),
        ("m5.large", "b"): Price(Rate(50_000_000), NOW_MS),
    }


def test_the_table_says_when_its_estimates_were_true_and_for_which_region() -> None:
    table = prices.embedded("us-east-1")
    assert table["m5.large"].rate == 96_000_000
    assert all(price.estimated and 0 < price.priced_ms < NOW_MS for price in table.values())
    assert prices.embedded("eu-west-1") == {}


def test_an_old_table_is_a_warning() -> None:
    table = list(prices.embedded("us-east-1").values())
    as_of = table[0].priced_ms
    assert prices.stale(table, as_of + 30 * DAY_MS) == ""
    assert "100d" in prices.stale(table, as_of + 100 * DAY_MS)
    assert prices.stale([Price(Rate(1), as_of)], as_of + 100 * DAY_MS) == ""


def test_disks_and_addresses_bill_beside_the_machine() -> None:
    """By the shortest month, where the region is not known by the dearest one: never too little."""
    plain = prices.of_extras("us-east-1", 30 * 2**30, public_address=False)
    assert plain == -(-30 * 80_000_000 // 672)
    assert prices.of_extras("us-east-1", 30 * 2**30, public_address=True) == plain + 5_000_000
    assert prices.of_extras("xx-north-9", 30 * 2**30, public_address=False) > plain
