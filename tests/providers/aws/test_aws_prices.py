"""What AWS asks: its price list, its spot prices, the embedded table, and what is not known."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from cloud_dispatch.domain.money import Rate
from cloud_dispatch_aws import prices
from cloud_dispatch_aws.prices import Price
from cloud_dispatch_aws.settings import DEFAULT_TYPES
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


def product(name: str, dollars: str, unit: str = "Hrs", currency: str = "USD", **attributes: str) -> str:
    """A document as GetProducts gives it."""
    dimension = {"unit": unit, "pricePerUnit": {currency: dollars}, "description": "Linux on demand"}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name, "regionCode": "us-east-1", **attributes}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}, "Reserved": {"X": {}}},
        }
    )


def test_the_price_list_is_read() -> None:
    found = prices.of_price_list([product("m5.large", "0.0960000000"), product("c5.large", "0.0850000000")], NOW_MS)
    assert found == {"m5.large": Price(Rate(96_000_000), NOW_MS), "c5.large": Price(Rate(85_000_000), NOW_MS)}


def test_what_runs_in_a_block_of_capacity_is_no_price_of_its_type() -> None:
    """It is listed as on demand at nothing, beside what the type costs anybody: the large GPU machines are."""
    block = product("p5.48xlarge", "0.0000000000", marketoption="CapacityBlock")
    anybodys = product("p5.48xlarge", "55.0400000000", marketoption="OnDemand")
    assert prices.of_price_list([anybodys, block], NOW_MS) == {"p5.48xlarge": Price(Rate(55_040_000_000), NOW_MS)}
    assert prices.of_price_list([block], NOW_MS) == {}


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
    assert prices.embedded("xx-north-9") == {}


def test_the_newer_of_two_records_counts() -> None:
    """A type that only the older one has keeps that one's date."""
    table = prices.embedded("us-east-1")
    assert table["m5.large"].priced_ms > table["m6i.large"].priced_ms


@pytest.mark.parametrize("region", ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1"])
def test_the_large_regions_have_the_default_families(region: str) -> None:
    table = prices.embedded(region)
    wanted = {one for one in DEFAULT_TYPES if (one, region) != ("g6.*", "eu-west-1")}
    assert wanted <= {f"{name.partition('.')[0]}.*" for name in table}


#: In parts of an xlarge. Machines with GPUs and whole hosts have prices of their own; so has the smallest Graviton, by
#: AWS's rounding.
SIZES = {"nano": Fraction(1, 32), "micro": Fraction(1, 16), "small": Fraction(1, 8), "medium": Fraction(1, 4)}


def parts(size: str) -> Fraction | None:
    if size in SIZES:
        return SIZES[size]
    number = size.removesuffix("large")
    if number == size or number == "":
        return Fraction(1, 2) if number == "" else None
    return Fraction(number.removesuffix("x") or 1)


@pytest.mark.parametrize("region", ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1"])
def test_within_a_family_twice_the_machine_has_twice_the_price(region: str) -> None:
    """But for the last digit that AWS writes: so a figure of another tenancy or a slip of the copy stands out."""
    families: dict[str, list[tuple[str, Fraction]]] = {}
    for name, price in prices.embedded(region).items():
        family, _, size = name.partition(".")
        share = parts(size)
        if share is not None and family[0] in "cmrt":
            families.setdefault(family, []).append((name, Fraction(price.rate) / share))
    assert families
    for found in families.values():
        largest = found[-1][1]
        assert [name for name, unit in found if abs(unit - largest) > largest / 300] == []


def test_other_regions_ask_about_what_the_first_one_asks() -> None:
    """For every type that both have; those of graphics cards differ most."""
    first = prices.embedded("us-east-1")
    for region in ("us-east-2", "us-west-2", "eu-west-1", "eu-central-1"):
        table = prices.embedded(region)
        assert set(table) <= set(first)
        most = 101 if region.startswith("us-") else 126
        assert [name for name, one in table.items() if not 99 <= one.rate * 100 // first[name].rate <= most] == []


def test_an_old_table_is_a_warning() -> None:
    table = list(prices.embedded("us-east-1").values())
    as_of = min(price.priced_ms for price in table)
    assert prices.stale(table, as_of + 30 * DAY_MS) == ""
    assert "100d" in prices.stale(table, as_of + 100 * DAY_MS)
    assert prices.stale([Price(Rate(1), as_of)], as_of + 100 * DAY_MS) == ""


def test_disks_and_addresses_bill_beside_the_machine() -> None:
    """By the shortest month, where the region is not known by the dearest one: never too little."""
    plain = prices.of_extras("us-east-1", 30 * 2**30, public_address=False)
    assert plain == -(-30 * 80_000_000 // 672)
    assert prices.of_extras("us-east-1", 30 * 2**30, public_address=True) == plain + 5_000_000
    assert prices.of_extras("xx-north-9", 30 * 2**30, public_address=False) > plain


def test_the_dearest_disk_is_the_dearest_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the text of it."""
    monkeypatch.setattr(prices, "_GP3", {"a": "0.9", "b": "10.0"})
    assert prices.of_extras("xx-north-9", 2**30, public_address=False) == -(-10_000_000_000 // 672)
