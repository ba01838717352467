"""Targets as a source of demand: numbers of instances that pools shall have. Owns schedules and expiry.

A pool's targets come from the configuration (a fixed number, and a schedule) and from requests over REST. Each is
handed on under its own name; the planner takes the highest, together with the pool's minimum. All of them may drain
when they are lowered. Must not know what the pools hold now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.planner.snapshot import TargetItem
from cloud_dispatch.ports.store import Target

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """`target` instances on `days` (0 is Monday) from `from_minute` until before `to_minute`, minutes after midnight on
    the clocks of `timezone`. A window whose end is not after its start goes over midnight and belongs to the day on
    which it began. ValueError for days, minutes or a target out of range and for an unknown time zone."""

    target: int
    days: frozenset[int] = frozenset(range(7))
    from_minute: int = 0
    to_minute: int = _DAY_MINUTES
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.days <= frozenset(range(7)) or not self.days:
            raise ValueError(f"days must be among 0 (Monday) to 6, at least one, got {sorted(self.days)}")
        for minute in (self.from_minute, self.to_minute):
            if not 0 <= minute <= _DAY_MINUTES:
                raise ValueError(f"minutes after midnight must be 0 to {_DAY_MINUTES}, got {minute}")
        if self.target < 0:
            raise ValueError(f"target must not be negative, got {self.target}")
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"unknown time zone {self.timezone!r} (expected e.g. UTC, Europe/Berlin)") from error

    def holds(self, now: int) -> bool:
        """Whether the rule is in force at `now` (ms since the epoch)."""
        local = datetime.fromtimestamp(now / 1000, ZoneInfo(self.timezone))
        minute = local.hour * 60 + local.minute
        today = local.weekday()
        if self.from_minute < self.to_minute:
            return today in self.days and self.from_minute <= minute < self.to_minute
        yesterday = (local.date() - timedelta(days=1)).weekday()
        return (today in self.days and minute >= self.from_minute) or (
            yesterday in self.days and minute < self.to_minute
        )

    def describe(self) -> str:
        """`mon,tue 08:00-18:00 UTC`."""
        days = "daily" if len(self.days) == len(_DAYS) else ",".join(_DAYS[day] for day in sorted(self.days))
        return f"{days} {_clock(self.from_minute)}-{_clock(self.to_minute)} {self.timezone}"


@dataclass(frozen=True, slots=True)
class PoolTargets:
    """What the configuration says that a pool shall have: always `target` (0: nothing), and more by its schedule."""

    pool: PoolName
    target: int = 0
    schedule: tuple[ScheduleRule, ...] = ()


class RequestedTargets(Protocol):
    """The part of the store that this source asks."""

    def targets(self) -> Sequence[Target]: ...


class Targets:
    """All targets of all pools: of the configuration, of its schedules, and requested over REST."""

    name = "targets"

    def __init__(self, configured: Sequence[PoolTargets], store: RequestedTargets) -> None:
        self._configured = tuple(configured)
        self._store = store

    def follow(self, configured: Sequence[PoolTargets]) -> None:
        """From now on the configuration says this."""
        self._configured = tuple(configured)

    def demand(self, now: int) -> tuple[TargetItem, ...]:
        return (
            *configured(self._configured),
            *scheduled(self._configured, now),
            *requested(self._store.targets(), now),
        )


def configured(pools: Sequence[PoolTargets]) -> tuple[TargetItem, ...]:
    """The fixed targets of the configuration."""
    return tuple(TargetItem(pool.pool, pool.target, "configuration") for pool in pools if pool.target > 0)


def scheduled(pools: Sequence[PoolTargets], now: int) -> tuple[TargetItem, ...]:
    """The targets whose window holds at `now` (ms), in the order of the configuration."""
    return tuple(
        TargetItem(pool.pool, rule.target, f"schedule {rule.describe()}")
        for pool in pools
        for rule in pool.schedule
        if rule.target > 0 and rule.holds(now)
    )


def requested(targets: Sequence[Target], now: int) -> tuple[TargetItem, ...]:
    """The requested targets that have not expired at `now` (ms), in order of pool and source."""
    alive = (t for t in targets if t.count > 0 and (t.expires_ms is None or now < t.expires_ms))
    return tuple(TargetItem(t.pool, t.count, t.source) for t in sorted(alive, key=lambda t: (t.pool, t.source)))


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
