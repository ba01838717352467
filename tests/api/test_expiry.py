"""What expires, and a clock that is set."""

from __future__ import annotations

from cloud_dispatch.api.expiry import Expiry
from cloud_dispatch.ports.clock import MOVED_MS

LIFE = 3_600_000


class SetClock:
    """`ahead_ms` of the time that passes."""

    def __init__(self) -> None:
        self.passed_ms, self.ahead_ms = 5_000, 1_000_000

    def now(self) -> int:
        return self.passed_ms + self.ahead_ms

    def monotonic(self) -> int:
        return self.passed_ms


def test_one_that_is_set_forward_goes_on_as_before_for_a_life() -> None:
    """Then what was dated by it has run out, and what came later is dated by the clock as it is."""
    clock = SetClock()
    expiry = Expiry(clock, LIFE)
    clock.ahead_ms += 2 * LIFE
    assert expiry.now() == 5_000 + 1_000_000
    clock.passed_ms += LIFE
    assert expiry.now() == clock.now() - 2 * LIFE
    clock.passed_ms += 1
    assert expiry.now() == clock.now()


def test_one_that_is_set_more_than_once_goes_by_the_earliest() -> None:
    clock = SetClock()
    expiry = Expiry(clock, LIFE)
    for _ in range(3):
        clock.ahead_ms += LIFE
        clock.passed_ms += LIFE // 4
        assert expiry.now() == clock.passed_ms + 1_000_000
    clock.passed_ms += LIFE // 2 + 1  # a life since the first time
    assert expiry.now() == clock.passed_ms + 1_000_000 + LIFE


def test_one_that_is_set_back_is_followed() -> None:
    clock = SetClock()
    expiry = Expiry(clock, LIFE)
    clock.ahead_ms -= LIFE
    assert expiry.now() == clock.now()
    clock.ahead_ms += LIFE
    assert expiry.now() == clock.now() - LIFE


def test_one_that_is_adjusted_is_followed() -> None:
    clock = SetClock()
    expiry = Expiry(clock, LIFE)
    for _ in range(10):
        clock.ahead_ms += MOVED_MS
        assert expiry.now() == clock.now()
