"""Traces of spot prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.simulation.workload.items import SpotPrice
from cloud_dispatch.simulation.workload.spot import read_spot_prices


def read(tmp_path: Path, text: str) -> tuple[SpotPrice, ...]:
    path = tmp_path / "spot.csv"
    path.write_text(text)
    return read_spot_prices(path)


def test_prices_are_in_order_and_count_from_the_first(tmp_path: Path) -> None:
    """Rows may come in any order; columns too; a row said twice counts once."""
    found = read(tmp_path, "type,zone,time_m,price\nm5,a,3,0.04\nm5,b,2,0.05\nm5,a,3,0.04\n")
    assert found == (SpotPrice(0, "m5", "b", Rate(50_000_000)), SpotPrice(60_000, "m5", "a", Rate(40_000_000)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,type,zone\n", "spot.csv:1: expected the columns time"),
        ("time,time_s,type,zone,price\n", "spot.csv:1: expected the columns time"),
        ("time,type,zone,price\n1,m5,a\n", "spot.csv:2: expected 4 columns, got 3"),
        ("time,type,zone,price\nnoon,m5,a,1\n", "spot.csv:2: time: expected a number"),
        ("time,type,zone,price\n1,,a,1\n", "spot.csv:2: type: expected the name of an instance type"),
        ("time,type,zone,price\n1,m5,a,-1\n", "spot.csv:2: price: '-1' is not an amount of dollars"),
        ("time,type,zone,price\n1,m5,a,1\n1,m5,a,2\n", "spot.csv:3: expected one price of a type and zone"),
        ("time,type,zone,price\n", "spot.csv: expected at least one price"),
    ],
)
def test_bad_input_is_refused_whole_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    """File, line, column, and what was expected there."""
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, text)
    assert told in str(refused.value)
