"""A reaper's sign of life as a text: what is written is read, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.sign import MOST, Sign, read, written

NOW = 1_700_000_000_000


def test_what_is_written_is_read() -> None:
    """Of one place in a text that a tag of Azure's has room for; of all of AWS's regions in one of its parameters."""
    text = written("lab", NOW, ["us-west-2", "us-east-1"])
    assert read(text) == Sign("lab", NOW, ("us-east-1", "us-west-2"))
    assert len(written("d" * 63, NOW, ["g" * 90])) <= 256
    assert len(written("d" * 63, NOW, [f"ap-southeast-{number}" for number in range(40)])) <= MOST < 4096


def test_what_would_not_fit_is_not_cut() -> None:
    with pytest.raises(ValueError, match="too many places"):
        written("lab", NOW, [f"region-{number}" for number in range(300)])


@pytest.mark.parametrize(
    "said",
    [
        [], "lab", 5, None, {}, {"deployment": "lab", "begun_ms": NOW},
        {"deployment": 5, "begun_ms": NOW, "places": []},
        {"deployment": "lab", "begun_ms": "soon", "places": []}, {"deployment": "lab", "begun_ms": True, "places": []},
        {"deployment": "lab", "begun_ms": 0, "places": []}, {"deployment": "lab", "begun_ms": NOW, "places": "here"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_damaged_is_none(said: object) -> None:
    """A hand is not taken for alive by a text that somebody else has put there."""
    assert read(json.dumps(said)) is None


@given(st.text())
def test_any_text_can_be_asked(text: str) -> None:
    assert read(text) is None or read(text) == read(text.strip())
