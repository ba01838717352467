"""The meter: every call is counted once, with its time and how it failed."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.provider.errors import CapacityUnavailable, ProviderError, Scope, Transient
from cloud_dispatch.provider.funnel import Call
from cloud_dispatch.provider.metered import Metered
from cloud_dispatch.telemetry.provider_calls import ProviderCalls
from tests.providers.memory import NAMED, MemoryCloud, MemoryProvider, now_ms

VIRTUAL_TIME = True


class Notebook:
    def __init__(self) -> None:
        self.lines: list[tuple[str, int, str, str]] = []

    def called(self, call: Call, took_ms: int, error: str, scope: str) -> None:
        self.lines.append((call, took_ms, error, scope))


async def test_calls_are_counted_with_their_time_and_error() -> None:
    """Success, each class of error with the level of its scope, and a caller who gave up."""
    cloud, notes = MemoryCloud(NAMED), Notebook()
    metered = Metered(MemoryProvider(cloud), notes, now_ms)
    cloud.delay("list", 250)
    await metered.list("d")
    cloud.fail("get", Transient)
    with pytest.raises(Transient):
        await metered.get(VmId("v"))
    cloud.delay("terminate", 1_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await metered.terminate(VmId("v"))
    assert notes.lines == [
        ("list", 250, "", ""), ("get", 0, "Transient", "account"), ("terminate", 100, "cancelled", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "level"),
    [
        (Scope(), "account"),
        (Scope(region="r", family="f"), "family+region"),
        (Scope(type="t", zone="z", market="spot"), "type+zone+market"),
    ],
)
async def test_a_scope_is_counted_by_its_fields_and_not_by_their_values(scope: Scope, level: str) -> None:
    """Types and zones are many: as labels they would make a series each."""

    class Full(MemoryProvider):
        async def terminate(self, vm: VmId) -> None:
            raise CapacityUnavailable("none", scope=scope)

    notes = Notebook()
    with pytest.raises(ProviderError):
        await Metered(Full(MemoryCloud(NAMED)), notes, now_ms).terminate(VmId("v"))
    assert notes.lines == [("terminate", 0, "CapacityUnavailable", level)]


def test_every_call_of_every_profile_has_a_sample_from_the_start() -> None:
    """An alert never meets a missing series; a failure is counted in both metrics."""
    registry, calls = CollectorRegistry(), ProviderCalls(["a", "b"])
    registry.register(calls)
    text = generate_latest(registry).decode()
    for profile in "ab":
        for call in Call:
            assert f'call_seconds_count{{call="{call}",profile="{profile}"}} 0.0' in text
    calls.of("a").called(Call.LAUNCH, 1_500, "QuotaExceeded", "family+region")
    text = generate_latest(registry).decode()
    assert 'call_seconds_bucket{call="launch",le="1.0",profile="a"} 0.0' in text
    assert 'call_seconds_bucket{call="launch",le="2.5",profile="a"} 1.0' in text
    assert 'call_seconds_bucket{call="launch",le="+Inf",profile="a"} 1.0' in text
    assert 'call_seconds_sum{call="launch",profile="a"} 1.5' in text
    assert 'errors_total{call="launch",error="QuotaExceeded",profile="a",scope="family+region"} 1.0' in text
