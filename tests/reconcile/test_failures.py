"""The memory of refusals: scope, length, growth, forgetting."""

from __future__ import annotations

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.provider import errors
from cloud_dispatch.reconcile.failures import LONGEST_MS, FailureMemory
from tests.reconcile.examples import offering


def test_capacity_blocks_just_the_type_zone_and_market_it_speaks_of() -> None:
    """Spot running out says nothing of on demand, nor of the next zone."""
    memory = FailureMemory()
    memory.refused(offering(), errors.CapacityUnavailable("none left"), 0)
    assert memory.covers(offering(), 1)
    assert not memory.covers(offering(zone="other"), 1)
    assert not memory.covers(offering(market=Market.SPOT), 1)
    assert not memory.covers(offering("u"), 1)


def test_a_quota_blocks_its_family() -> None:
    """Every type of the family, in every zone, and no other family."""
    memory = FailureMemory()
    memory.refused(offering(), errors.QuotaExceeded("vcpus", scope=errors.Scope(family="f")), 0)
    assert memory.covers(offering("u", "other"), 1)
    assert not memory.covers(offering(family="g"), 1)


def test_an_error_of_a_region_blocks_that_region_only() -> None:
    """A quota is often a region's: the same family is free in the next one."""
    memory = FailureMemory()
    memory.refused(offering(region="r1"), errors.QuotaExceeded("vcpus", scope=errors.Scope(region="r1")), 0)
    assert memory.covers(offering("u", "other", region="r1"), 1)
    assert not memory.covers(offering(region="r2"), 1)


def test_blocks_end_and_grow_when_repeated_up_to_a_bound() -> None:
    """Endless retry at full speed is what peers are blamed for."""
    memory, now, lengths = FailureMemory(), 0, []
    for _ in range(12):
        blocked = memory.refused(offering(), errors.CapacityUnavailable("none"), now)
        lengths.append(blocked.until_ms - now)
        assert not memory.covers(offering(), blocked.until_ms)
        now = blocked.until_ms
    assert lengths[:3] == [180_000, 360_000, 720_000]
    assert lengths[-1] == LONGEST_MS


def test_a_long_quiet_time_is_forgiven() -> None:
    """After a block's own length without trouble the next one starts small."""
    memory = FailureMemory()
    first = memory.refused(offering(), errors.CapacityUnavailable("none"), 0)
    later = first.until_ms * 3
    assert memory.blocked(later) == ()
    assert memory.refused(offering(), errors.CapacityUnavailable("none"), later).until_ms - later == first.until_ms


def test_a_rate_limit_blocks_the_profile_for_as_long_as_the_provider_says() -> None:
    """Retry-After is obeyed."""
    memory = FailureMemory()
    blocked = memory.refused(offering(), errors.RateLimited("slow down", retry_after_ms=42_000), 0)
    assert blocked.until_ms == 42_000
    assert memory.covers(offering("u", "other"), 1)
