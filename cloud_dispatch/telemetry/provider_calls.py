"""Metrics of provider calls. Owns their counts: they are kept here and nowhere else. Knows the names of calls only.

Every call of every profile has a sample from the start (zero), so that a rate or an alert never meets a missing series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cloud_dispatch.provider.funnel import Call

#: Milliseconds: a cached read, a usual answer, a slow one, one that times out.
_BOUNDS_MS = (10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
_EDGES = (*(str(bound / 1000) for bound in _BOUNDS_MS), "+Inf")


@dataclass
class _Times:
    """How often a call took how long, a count for each bound and one beyond."""

    counts: list[int] = field(default_factory=lambda: [0] * len(_EDGES))
    total_ms: int = 0


class Meter:
    """The counts of one profile; what `Metered` calls."""

    def __init__(self) -> None:
        self.times = {call: _Times() for call in Call}
        self.errors: dict[tuple[Call, str, str], int] = {}

    def called(self, call: Call, took_ms: int, error: str, scope: str) -> None:
        times = self.times[call]
        times.counts[bisect_left(_BOUNDS_MS, took_ms)] += 1
        times.total_ms += took_ms
        if error:
            key = (call, error, scope)
            self.errors[key] = self.errors.get(key, 0) + 1


class ProviderCalls(Collector):
    """The counts of all profiles; `of` gives one profile's meter."""

    def __init__(self, profiles: Iterable[str]) -> None:
        self._meters = {profile: Meter() for profile in profiles}

    def of(self, profile: str) -> Meter:
        """Its meter; one that comes later counts from then."""
        return self._meters.setdefault(profile, Meter())

    def collect(self) -> Iterable[Metric]:
        seconds = HistogramMetricFamily(
            "cloud_dispatch_provider_call_seconds",
            "How long calls to a provider took, failed ones too; the count is the number of calls.",
            labels=["profile", "call"],
        )
        errors = CounterMetricFamily(
            "cloud_dispatch_provider_errors_total",
            "Calls to a provider that failed, by the error's class and by what its scope names.",
            labels=["profile", "call", "error", "scope"],
        )
        for profile, meter in self._meters.items():
            for call, times in meter.times.items():
                buckets = [(edge, float(count)) for edge, count in zip(_EDGES, accumulate(times.counts), strict=True)]
                seconds.add_metric([profile, call], buckets, times.total_ms / 1000)
            for (call, error, scope), count in meter.errors.items():
                errors.add_metric([profile, call, error, scope], count)
        yield seconds
        yield errors
