"""Metrics for Prometheus. Owns their names, and reads their values from memory when asked; nothing is kept twice.

Every state has a sample from the start (zero), so that a rate or an alert never meets a missing series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Store

#: How many of each, asked for as the metrics are.
Counts = Callable[[], Mapping[str, int]]


class _StoreCollector(Collector):
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._started_ms = clock.monotonic()

    def collect(self) -> Iterable[Metric]:
        tasks = GaugeMetricFamily("cloud_dispatch_tasks", "Tasks by state.", labels=["state"])
        counts = self._store.task_counts()
        for task_state in TaskState:
            tasks.add_metric([str(task_state)], counts.get(task_state, 0))
        yield tasks
        rows = list(self._store.instances().values())
        instances = GaugeMetricFamily(
            "cloud_dispatch_instances", "Instances that are not gone, by state.", labels=["state"]
        )
        for state in InstanceState:
            if state is not InstanceState.GONE:
                instances.add_metric([str(state)], sum(row.state is state for row in rows))
        yield instances
        rate = GaugeMetricFamily("cloud_dispatch_rate_dollars_per_hour", "What the instances that live cost an hour.")
        rate.add_metric([], sum(row.rate or 0 for row in rows) / 1e9)
        yield rate
        shapes = GaugeMetricFamily("cloud_dispatch_waiting_shapes", "Distinct shapes with waiting tasks.")
        shapes.add_metric([], len(self._store.waiting()))
        yield shapes
        uptime = CounterMetricFamily("cloud_dispatch_uptime_seconds", "Since the dispatcher started.")
        uptime.add_metric([], (self._clock.monotonic() - self._started_ms) / 1000)
        yield uptime


class _HeldBackCollector(Collector):
    """What nothing is launched for. `unserved`: tasks by obstacle; `missing`: instances by pool."""

    def __init__(self, unserved: Counts, missing: Counts, stop: Callable[[], Stop]) -> None:
        self._unserved = unserved
        self._missing = missing
        self._stop = stop

    def collect(self) -> Iterable[Metric]:
        unserved = GaugeMetricFamily(
            "cloud_dispatch_tasks_unserved",
            "Waiting tasks for which nothing is launched, under each obstacle that stands in their way.",
            labels=["obstacle"],
        )
        for obstacle, count in self._unserved().items():
            unserved.add_metric([obstacle], count)
        yield unserved
        missing = GaugeMetricFamily(
            "cloud_dispatch_instances_missing",
            "Instances that a pool's minimum or a target wants beyond those there are, with nothing launched for them.",
            labels=["pool"],
        )
        for pool, count in self._missing().items():
            missing.add_metric([pool], count)
        yield missing
        stopped = GaugeMetricFamily(
            "cloud_dispatch_stopped", "1 for the level of what is stopped in the deployment, else 0.", labels=["level"]
        )
        for level in StopLevel:
            if level is not StopLevel.NOTHING:
                stopped.add_metric([str(level)], int(self._stop().level is level))
        yield stopped


class _BudgetCollector(Collector):
    """How the spending limits stand, each in its present window."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterable[Metric]:
        dollars = GaugeMetricFamily(
            "cloud_dispatch_budget_dollars",
            "Of a spending limit in its present window: the limit, what was spent, what everything may still bill.",
            labels=["budget", "part"],
        )
        standing = self._store.standing()
        for budget, span in standing.present():
            parts = {
                "limit": budget.limit,
                "spent": standing.spent(budget, span),
                "committed": standing.committed(budget, span),
            }
            for part, micro in parts.items():
                dollars.add_metric([budget.name, part], micro / 1e6)
        yield dollars


class Tripped(Collector):
    """Breakers that are not closed. `count`: by kind."""

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._count = count

    def collect(self) -> Iterable[Metric]:
        tripped = GaugeMetricFamily(
            "cloud_dispatch_breakers_open",
            "Templates that are not launched, with an image in a zone, because they failed too often; or tried again.",
            labels=["kind"],
        )
        for kind, count in self._count().items():
            tripped.add_metric([kind], count)
        yield tripped


class Configured(Collector):
    """Whether the configuration is the one that was asked for. `refused`: why not, "" where it is."""

    def __init__(self, refused: Callable[[], str]) -> None:
        self._refused = refused

    def collect(self) -> Iterable[Metric]:
        refused = GaugeMetricFamily(
            "cloud_dispatch_configuration_refused",
            "1 while the configuration that was to be read last was refused and the one of before holds, else 0.",
        )
        refused.add_metric([], int(bool(self._refused())))
        yield refused


class Reapers(Collector):
    """Whether the hands that keep hard ends are alive. `doubted`: by profile, for those whose signs are looked for."""

    def __init__(self, doubted: Callable[[], Mapping[str, bool]]) -> None:
        self._doubted = doubted

    def collect(self) -> Iterable[Metric]:
        silent = GaugeMetricFamily(
            "cloud_dispatch_reaper_silent",
            "1 while the reaper of a profile leaves no sign of life, or nobody can tell, else 0.",
            labels=["profile"],
        )
        for profile, doubted in self._doubted().items():
            silent.add_metric([profile], int(doubted))
        yield silent


class Connections(Collector):
    """Connections to the dispatcher. `counts`: by whose they are, how many there are and how many were cut off."""

    def __init__(self, counts: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        counts = self._counts()
        there = GaugeMetricFamily(
            "cloud_dispatch_connections",
            "Connections to the dispatcher: of callers that have shown a good token, and of strangers.",
            labels=["of"],
        )
        cut = CounterMetricFamily(
            "cloud_dispatch_connections_cut_off",
            "Connections that were cut off because there were too many of their kind.",
            labels=["of"],
        )
        for kind, (number, number_cut) in counts.items():
            there.add_metric([kind], number)
            cut.add_metric([kind], number_cut)
        yield from (there, cut)


class LastBackup(Collector):
    """When the state was copied for the last time. `last_ms`: 0 for never."""

    def __init__(self, last_ms: Callable[[], int]) -> None:
        self._last_ms = last_ms

    def collect(self) -> Iterable[Metric]:
        last = GaugeMetricFamily(
            "cloud_dispatch_last_backup_timestamp_seconds",
            "When the state was copied to where it is configured for the last time; 0: never.",
        )
        last.add_metric([], self._last_ms() / 1000)
        yield last


class CertificateEnd(Collector):
    """When the certificate that is shown ends, in milliseconds."""

    def __init__(self, ends_ms: Callable[[], int]) -> None:
        self._ends_ms = ends_ms

    def collect(self) -> Iterable[Metric]:
        end = GaugeMetricFamily(
            "cloud_dispatch_certificate_expiry_timestamp_seconds",
            "When the certificate that the dispatcher shows ends; none without TLS.",
        )
        end.add_metric([], self._ends_ms() / 1000)
        yield end


class Metrics:
    """The registry of one dispatcher: what its store and its plans say, and what `others` have counted."""

    def __init__(
        self, store: Store, clock: Clock, unserved: Counts, missing: Counts, stop: Callable[[], Stop],
        others: Iterable[Collector] = (),
    ) -> None:  # fmt: skip
        self._registry = CollectorRegistry()
        own = (_StoreCollector(store, clock), _HeldBackCollector(unserved, missing, stop), _BudgetCollector(store))
        for collector in (*own, *others):
            self._registry.register(collector)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self._registry)
