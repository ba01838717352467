"""How long something is, in words for people."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.durations import about, parse_duration


@pytest.mark.parametrize(
    ("exact", "said"),
    [
        ("0s", "0s"), ("999ms", "0s"), ("119s", "119s"), ("2m", "2m"), ("119m59s", "119m"), ("2h", "2h"),
        ("47h59m", "47h"), ("2d", "2d"), ("14399m", "9d"), ("400d", "400d"),
    ],
)  # fmt: skip
def test_a_duration_is_told_in_the_largest_unit_of_which_there_are_two(exact: str, said: str) -> None:
    assert about(parse_duration(exact)) == said
    assert parse_duration(said) <= parse_duration(exact)


def test_what_is_before_its_time_is_none() -> None:
    assert about(-5) == "0s"
