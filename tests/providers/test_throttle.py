"""The throttle: the pace of a bucket, what it learns from refusals, who may wait and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_dispatch.domain.ids import BatchId, VmId
from cloud_dispatch.provider.errors import RateLimited
from cloud_dispatch.provider.funnel import Call
from cloud_dispatch.provider.spi import LaunchRequest, LaunchResult, Listing, Operation, Pace, Vm
from cloud_dispatch.provider.throttle import RECOVERY_MS, SLOWEST, Bucket, Throttled
from tests.providers.memory import NAMED, MemoryCloud, MemoryProvider

VIRTUAL_TIME = True


def turns(bucket: Bucket, now: int, count: int) -> list[int]:
    """When so many callers who come now have their turns."""
    return [now + bucket.take(now) for _ in range(count)]


def test_a_rested_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    """Ten a second, three at once: the fourth waits a tenth of a second, the fifth two."""
    assert turns(Bucket(10, 3), 5_000, 6) == [5_000, 5_000, 5_000, 5_100, 5_200, 5_300]


def test_a_used_bucket_fills_up_again() -> None:
    """After a rest of two intervals there are two turns at once again, and never more than the burst."""
    bucket = Bucket(10, 3)
    turns(bucket, 0, 3)
    assert turns(bucket, 200, 3) == [200, 200, 300]
    assert turns(bucket, 60_000, 4) == [60_000, 60_000, 60_000, 60_100]


@given(st.integers(1, 200), st.integers(1, 20), st.lists(st.integers(0, 400), min_size=1, max_size=60))
def test_no_window_holds_more_than_burst_and_rate(per_s: int, burst: int, gaps: list[int]) -> None:
    """Whenever callers come, between any two turns there are at most burst + rate x time turns."""
    bucket, now, given_at = Bucket(per_s, burst), 0, []
    for gap in gaps:
        now += gap
        given_at.append(now + bucket.take(now))
    assert given_at == sorted(given_at)
    for first, start in enumerate(given_at):
        for last in range(first, len(given_at)):
            assert last - first + 1 <= burst + (given_at[last] - start + 1) * per_s / 1000 + 1


def test_a_refusal_stops_the_bucket_for_as_long_as_the_provider_says() -> None:
    """Retry-After is obeyed to the millisecond, and there is no burst after it."""
    bucket = Bucket(10, 3)
    bucket.refused(0, 100, 5_000)
    assert turns(bucket, 100, 3) == [5_100, 5_300, 5_500]


def test_a_refusal_halves_the_rate_and_quiet_brings_it_back() -> None:
    """Half at once, all of it after the recovery, linearly."""
    bucket = Bucket(10, 1)
    bucket.refused(0, 0, 0)
    assert [bucket.rate(ms) for ms in (0, RECOVERY_MS // 4, RECOVERY_MS // 2, RECOVERY_MS)] == [
        5_000, 7_500, 10_000, 10_000,
    ]  # fmt: skip


def test_refusals_of_calls_that_were_under_way_together_count_once() -> None:
    """Ten calls sent at once and refused are one lesson; one sent after it is another."""
    bucket = Bucket(64, 1)
    for now in range(10):
        bucket.refused(0, now, 0)
    assert bucket.rate(9) // 1000 == 32
    bucket.refused(20, 30, 0)
    assert bucket.rate(30) // 1000 == 16


def test_a_bucket_never_stops_for_good() -> None:
    """However often it is refused, some of its rate is left."""
    bucket = Bucket(64, 1)
    for now in range(0, 1_000, 10):
        bucket.refused(now, now, 0)
    assert bucket.rate(1_000) >= 64_000 // SLOWEST


class Recording(MemoryProvider):
    """Says when its calls came, and refuses those that it is told to."""

    def __init__(self, per_s: int = 10, burst: int = 2) -> None:
        super().__init__(MemoryCloud(replace(NAMED, calls_per_s=per_s, call_burst=burst)))
        self.came: list[int] = []
        self.refuse: Callable[[int], int] = lambda ms: 0

    async def list(self, deployment: str) -> Listing:
        self.came.append(milliseconds())
        retry = self.refuse(milliseconds())
        if retry:
            raise RateLimited("slow down", retry_after_ms=retry)
        return Listing(())

    async def get(self, vm: VmId) -> Vm:
        await asyncio.sleep(3600)
        raise AssertionError


def milliseconds() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


async def test_calls_wait_for_their_turn() -> None:
    """Six at once at ten a second, two at once: the last is made after four tenths, and none is lost."""
    driver = Recording()
    throttled = Throttled(driver, milliseconds)
    await asyncio.gather(*(throttled.list("d") for _ in range(6)))
    assert [ms - driver.came[0] for ms in driver.came] == [0, 0, 100, 200, 300, 400]


async def test_each_call_has_a_bucket_of_its_own() -> None:
    """Listing a lot does not hold up an end: clouds count them apart."""
    throttled = Throttled(Recording(), milliseconds)
    lists = [asyncio.create_task(throttled.list("d")) for _ in range(6)]
    await asyncio.sleep(0)
    began = milliseconds()
    await throttled.terminate(VmId("v"))
    assert milliseconds() == began
    await asyncio.gather(*lists)


async def test_a_call_may_have_a_pace_of_its_own() -> None:
    """Where the traits state one for a kind of call it is kept, and the others go on at theirs."""
    driver = Recording(per_s=100, burst=100)
    driver.traits = replace(driver.traits, paces=(Pace("list", 2, 1),))
    throttled = Throttled(driver, milliseconds)
    await asyncio.gather(*(throttled.list("d") for _ in range(3)))
    assert [ms - driver.came[0] for ms in driver.came] == [0, 500, 1_000]
    began = milliseconds()
    await asyncio.gather(*(throttled.terminate(VmId("v")) for _ in range(50)))
    assert milliseconds() == began


async def test_who_would_wait_too_long_is_told_when_to_come_again() -> None:
    """The provider is not asked, and the time is that of the turn that would have been given."""
    driver = Recording(burst=1)
    throttled = Throttled(driver, milliseconds, max_wait_ms=250)
    results = await asyncio.gather(*(throttled.list("d") for _ in range(5)), return_exceptions=True)
    refused = [error for error in results if isinstance(error, RateLimited)]
    assert len(driver.came) == 3
    assert [error.retry_after_ms for error in refused] == [300, 300]


async def test_the_queue_is_bounded() -> None:
    """However patient, no more than so many wait; a turn that is free is not a wait."""
    driver = Recording(burst=1)
    throttled = Throttled(driver, milliseconds, max_waiting=2)
    results = await asyncio.gather(*(throttled.list("d") for _ in range(5)), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["Listing"] * 3 + ["RateLimited"] * 2


async def test_a_refusal_holds_back_those_who_wait() -> None:
    """Calls that were waiting when one was refused come after its Retry-After, at half the pace."""
    driver = Recording(burst=1)
    throttled = Throttled(driver, milliseconds)
    began = milliseconds()
    driver.refuse = lambda ms: 2_000 if ms == began else 0
    results = await asyncio.gather(*(throttled.list("d") for _ in range(4)), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["RateLimited", "Listing", "Listing", "Listing"]
    came = [ms - began for ms in driver.came]
    assert came[:2] == [0, 2_000]
    assert all(190 <= later - earlier <= 200 for earlier, later in pairwise(came[1:])), came


class PartlyRefusing(MemoryProvider):
    """Accepts a part of each launch, and says by the answer to one kind of call that the others were too many."""

    def __init__(self, told_by: Call) -> None:
        super().__init__(MemoryCloud(NAMED))
        self.told_by = told_by

    async def launch(self, request: LaunchRequest) -> LaunchResult:
        return self._answer(Call.LAUNCH)

    async def resume(self, operation: Operation) -> LaunchResult:
        return self._answer(Call.RESUME)

    def _answer(self, call: Call) -> LaunchResult:
        refusal = RateLimited("slow down", retry_after_ms=3_000) if call is self.told_by else None
        return LaunchResult((), refusal)


@pytest.mark.parametrize("told_by", [Call.LAUNCH, Call.RESUME])
async def test_a_launch_that_was_refused_in_part_holds_back_the_next_one(told_by: Call) -> None:
    """Its answer has the refusal as a shortfall; asking what became of the others waits for nothing."""
    driver = PartlyRefusing(told_by)
    throttled = Throttled(driver, milliseconds)
    request = LaunchRequest(BatchId("b"), 1, driver.sold()[0], {}, "", 0, ())
    began = milliseconds()
    await throttled.launch(request)
    for _ in range(3):
        await throttled.resume(Operation("t", BatchId("b"), ()))
    assert milliseconds() == began
    await throttled.launch(request)
    assert milliseconds() - began == 3_000


async def test_the_wait_of_who_gave_up_is_over() -> None:
    """A cancelled call no longer stands in the queue, and is never made."""
    driver = Recording(burst=1)
    throttled = Throttled(driver, milliseconds, max_waiting=1)
    await throttled.list("d")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await throttled.list("d")
    await throttled.list("d")
    assert len(driver.came) == 2
