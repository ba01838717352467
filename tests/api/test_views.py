"""How an instance's life is told: pure arithmetic."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.api.views import Usage, busy_ms, usage_of, usage_table
from cloud_dispatch.domain.ids import BatchId, InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import Resources
from cloud_dispatch.domain.shape import Machine

HOUR = 3_600_000
ROW = Instance(
    InstanceId("b1-0"), BatchId("b1"), PoolName("p"), ProfileName("l"), "t", "z", Market.SPOT, Machine(Resources()), 1,
    Rate(1_000_000_000), InstanceState.IDLE, 0, 9 * HOUR, HOUR, launched_ms=1000, registered_ms=3000, minimum_ms=60_000,
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_busy_time_is_the_union_of_the_intervals(intervals: list[tuple[int, int]]) -> None:
    """Counted moment by moment it comes to the same."""
    assert busy_ms(intervals) == len({t for start, end in intervals for t in range(start, end)})


def test_life_is_boot_work_and_idle() -> None:
    """The three parts sum to the time since launch; the minimum is billed at least."""
    assert usage_of(ROW, 500, 5000) == Usage(2000, 500, 1500, Amount(16_667))


def test_an_instance_that_never_registered_only_booted() -> None:
    """All of its life is boot time, up to its end."""
    failed = replace(ROW, registered_ms=None, ended_ms=HOUR + 1000)
    assert usage_of(failed, 0, 9 * HOUR) == Usage(HOUR, 0, 0, Amount(1_000_000))


def test_what_was_never_launched_costs_nothing() -> None:
    """A refused slot has no life."""
    refused = replace(ROW, launched_ms=None)
    assert usage_of(refused, 0, HOUR) == Usage()
    assert usage_table([(refused, Usage())]) == []


def test_an_unknown_price_is_no_price() -> None:
    """The cost is unknown then, not zero; the times are known."""
    assert usage_of(replace(ROW, rate=None), 0, 5000).cost is None


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.none() | st.integers(0, 10_000), st.integers(0, 20_000))
def test_parts_never_exceed_the_whole(now: int, launched: int, registered: int | None, work: int) -> None:
    """However clocks of cloud and dispatcher disagree, no part is negative and none is counted twice."""
    usage = usage_of(replace(ROW, launched_ms=launched, registered_ms=registered), work, now)
    assert min(usage.boot_ms, usage.work_ms, usage.idle_ms) >= 0
    assert usage.boot_ms + usage.work_ms + usage.idle_ms == max(now - launched, 0)
