"""What is left of a life, and what is better begun elsewhere."""

from __future__ import annotations

import pytest

from cloud_dispatch.domain.remaining import Remaining


@pytest.mark.parametrize(
    ("left_ms", "work_ms", "late"),
    [
        (100, 100, False),
        (100, 101, True),
        (0, 1, True),
        (-50, 1, True),
        (-50, 0, False),  # nobody knows
        (100, 900, True),
        (100, 901, False),  # nor could another one
    ],
)
def test_too_short_is_what_another_could_do(left_ms: int, work_ms: int, late: bool) -> None:
    assert Remaining(left_ms, 900).is_too_short_for(work_ms) is late


def test_what_is_done_is_not_left() -> None:
    assert Remaining(100, 900).after(30) == Remaining(70, 900)
