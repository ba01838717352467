"""The memory of refusals: scope, length, growth, forgetting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.resources import GIB
from cloud_dispatch.provider import errors
from cloud_dispatch.reconcile.failures import LONGEST_MS, FailureMemory
from tests.reconcile.examples import offering

DAY = 24 * 60 * 60_000
HOUR = 3_600_000


def test_capacity_blocks_just_the_type_zone_and_market_it_speaks_of() -> None:
    """Spot running out says nothing of on demand, nor of the next zone."""
    memory = FailureMemory()
    memory.refused(offering(), errors.CapacityUnavailable("none left"), 0)
    assert memory.covers(offering(), 1)
    assert not memory.covers(offering(zone="other"), 1)
    assert not memory.covers(offering(market=Market.SPOT), 1)
    assert not memory.covers(offering("u"), 1)


def test_what_was_remembered_while_the_clock_was_ahead_blocks_nothing() -> None:
    """Once it is right again: by it the block would hold for as long as the clock was ahead. Clocks may be two minutes
    apart."""
    memory = FailureMemory()
    memory.refused(offering(), errors.CapacityUnavailable("none left"), 86_400_000)
    assert memory.covers(offering(), 86_400_000 - 120_000)
    assert not memory.covers(offering(), 0)


def test_a_quota_blocks_its_family() -> None:
    """Every type of the family, in every zone, and no other family."""
    memory = FailureMemory()
    memory.refused(offering(), errors.QuotaExceeded("vcpus", scope=errors.Scope(family="f")), 0)
    assert memory.covers(offering("u", "other"), 1)
    assert not memory.covers(offering(family="g"), 1)


def test_a_quota_of_gpus_blocks_what_has_them() -> None:
    """Whatever type they come with; the next region and what has no GPU are as good as before."""
    memory, scope = FailureMemory(), errors.Scope(gpu="t4", region="r1")
    one = offering(region="r1")
    card = replace(one, type=replace(one.type, gpu_type="t4"))
    memory.refused(card, errors.QuotaExceeded("gpus", scope=scope), 0)
    assert memory.covers(replace(card, type=replace(card.type, name="u"), zone="other"), 1)
    assert not memory.covers(one, 1)
    assert not memory.covers(replace(card, region="r2"), 1)


def test_a_quota_of_the_larger_card_leaves_the_smaller_one_of_its_name() -> None:
    one = offering()
    small, large = (replace(one, type=replace(one.type, gpu_type="a100", gpu_memory=gib * GIB)) for gib in (40, 80))
    memory, scope = FailureMemory(), errors.Scope(gpu="a100", gpu_memory=80 * GIB)
    assert (str(scope), scope.level) == ("gpu=a100 gpu_memory=80GiB", "gpu+gpu_memory")
    memory.refused(large, errors.QuotaExceeded("gpus", scope=scope), 0)
    assert memory.covers(large, 1)
    assert not memory.covers(small, 1)


def test_an_error_of_a_region_blocks_that_region_only() -> None:
    """A quota is often a region's: the same family is free in the next one."""
    memory = FailureMemory()
    memory.refused(offering(region="r1"), errors.QuotaExceeded("vcpus", scope=errors.Scope(region="r1")), 0)
    assert memory.covers(offering("u", "other", region="r1"), 1)
    assert not memory.covers(offering(region="r2"), 1)


def test_blocks_end_and_grow_when_repeated_up_to_a_bound() -> None:
    """Endless retry at full speed is what peers are blamed for. Capacity comes back by itself: who waits for it and has
    nothing else waits for the next question too."""
    for error, first, longest in (
        (errors.CapacityUnavailable("none"), [180_000, 360_000, 720_000], 15 * 60_000),
        (errors.QuotaExceeded("none"), [300_000, 600_000, 1_200_000], LONGEST_MS),
    ):
        memory, now, lengths = FailureMemory(), 0, []
        for _ in range(12):
            blocked = memory.refused(offering(), error, now)
            lengths.append(blocked.until_ms - now)
            assert not memory.covers(offering(), blocked.until_ms)
            now = blocked.until_ms
        assert lengths[:3] == first
        assert lengths[3:] == sorted(lengths[3:])
        assert lengths[-1] == longest


def test_a_success_ends_the_doubling_of_its_own_kind() -> None:
    """Spot capacity that comes and goes is tried three minutes after it went, however often it has gone before."""
    memory, now = FailureMemory(), 0
    none = errors.CapacityUnavailable("none")
    for _ in range(5):
        now = memory.refused(offering(), none, now).until_ms
    memory.booted(offering())
    memory.launched(offering("other"))
    assert memory.refused(offering(), none, now).until_ms - now > 180_000
    memory.launched(offering())
    assert memory.covers(offering(), now + 1), "news of before the block say nothing against it"
    now += 60 * 60_000
    assert memory.refused(offering(), none, now).until_ms - now == 180_000


def test_a_machine_that_launches_well_and_boots_badly_is_tried_ever_less_until_one_registers() -> None:
    """Its launches succeed each time: they must not excuse its boots."""
    memory, now, lengths = FailureMemory(), 0, []
    for _ in range(4):
        memory.launched(offering())
        blocked = memory.boot_failed(offering(), "silent", now, 1_000)
        lengths.append(blocked.until_ms - now)
        now = blocked.until_ms + 1_000
    assert lengths == [30_000, 60_000, 120_000, 240_000]
    memory.booted(offering())
    assert memory.boot_failed(offering(), "silent", now, 1_000).until_ms - now == 30_000


def test_what_failed_last_is_not_counted_on_for_a_day_unless_it_succeeds() -> None:
    """A refusal until a launch, a failed boot until a registration; what says nothing of the offering, or is over with
    the call, is no reason."""
    none = errors.CapacityUnavailable("none")
    for fail, succeed, no_success in (
        (lambda memory: memory.refused(offering(), none, 0), FailureMemory.launched, FailureMemory.booted),
        (lambda memory: memory.boot_failed(offering(), "", 0, 0), FailureMemory.booted, FailureMemory.launched),
    ):
        memory = FailureMemory()
        until_ms = fail(memory).until_ms
        assert memory.failed(until_ms - 1) == ()
        no_success(memory, offering())
        succeed(memory, offering("other"))
        for now_ms in (until_ms, DAY - 1):
            assert [one.covers(offering()) for one in memory.failed(now_ms)] == [True]
            assert memory.blocked(now_ms) == ()
        assert memory.failed(DAY) == ()
        memory = FailureMemory()
        fail(memory)
        succeed(memory, offering())
        assert memory.failed(DAY - 1) == ()
    for error in (errors.RateLimited("", retry_after_ms=0), errors.Transient(""), errors.InDoubt("")):
        memory = FailureMemory()
        assert memory.failed(memory.refused(offering(), error, 0).until_ms) == ()
    memory.unproved(offering(), "", "", 0)
    assert memory.failed(60_000) == ()


def test_what_a_budget_refused_is_not_counted_on_for_an_hour_unless_the_limits_are_others() -> None:
    """It is tried again much sooner; a launch of the same for another pool, or in its place, says nothing of it."""
    memory = FailureMemory()
    memory.unaffordable(offering(), "", 0)
    memory.launched(offering())
    assert memory.blocked(60_000) == ()
    assert len(memory.failed(HOUR - 1)) == 1
    assert memory.failed(HOUR) == ()
    memory.unaffordable(offering(), "", HOUR)
    memory.forget_money()
    assert memory.failed(HOUR + 60_000) == ()


def test_what_failed_is_forgotten_after_a_day() -> None:
    """What it holds is bounded, and the doubling is not longer than it was."""
    memory = FailureMemory()
    for number in range(100):
        memory.refused(offering(f"type-{number}"), errors.CapacityUnavailable("none"), 0)
    assert memory.blocked(DAY) == ()
    assert memory._entries == {}


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


def test_boots_that_fail_again_and_again_are_tried_ever_more_seldom() -> None:
    """A boot takes minutes to fail: the memory of the last one outlasts it, or nothing would ever grow."""
    memory, now, lengths = FailureMemory(), 0, []
    for _ in range(12):
        now += 600_000
        assert not memory.covers(offering(), now)
        blocked = memory.boot_failed(offering(), "no word", now, took_ms=600_000)
        lengths.append(blocked.until_ms - now)
        now = blocked.until_ms
    assert lengths[:4] == [30_000, 60_000, 120_000, 240_000]
    assert lengths[-1] == LONGEST_MS


def test_a_boot_failure_is_forgiven_after_a_quiet_time() -> None:
    """A block's length and a boot's time later the next one starts small."""
    memory = FailureMemory()
    memory.boot_failed(offering(), "no word", 0, took_ms=600_000)
    assert memory.blocked(700_000) == ()
    assert memory.boot_failed(offering(), "no word", 700_000, took_ms=600_000).until_ms == 730_000


def test_failures_that_were_under_way_together_are_one() -> None:
    """Ten machines of one batch that do not boot, or ten launches refused at once, double nothing."""
    memory = FailureMemory()
    boots = [memory.boot_failed(offering(), "no word", 1_000 + i, took_ms=600_000) for i in range(10)]
    assert boots[-1].until_ms == 31_009
    refusals = [memory.refused(offering("u"), errors.CapacityUnavailable("none"), 1_000 + i) for i in range(10)]
    assert refusals[-1].until_ms == 181_009


@pytest.mark.parametrize("kind", [errors.CredentialsRejected, errors.InvalidRequest, errors.QuotaExceeded])
def test_what_an_operator_has_mended_is_asked_at_once(kind: type[errors.ProviderError]) -> None:
    """However often it was refused; what time alone mends blocks as long as it did."""
    memory, other = FailureMemory(), offering("u")
    memory.refused(other, errors.CapacityUnavailable("none left"), 0)
    for _ in range(3):
        memory.refused(offering(), kind("not so"), 0)
    memory.forget_mendable()
    assert not memory.covers(offering(), 1)
    assert memory.covers(other, 1)
    first = FailureMemory().refused(offering(), kind("not so"), 1)
    assert memory.refused(offering(), kind("not so"), 1).until_ms == first.until_ms, "it is a first one again"
