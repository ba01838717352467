"""Instances that the configuration no longer wants. Owns why, and when that has to be asked again."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Pool


class Stale:
    """The answer for each pool, profile and type; the same until a profile offers other types, or pools are others."""

    def __init__(self) -> None:
        self._pools: Mapping[PoolName, Pool] = {}
        self._seen: dict[ProfileName, tuple[Offering, ...]] = {}
        self._types: dict[ProfileName, frozenset[str]] = {}
        self._known: dict[tuple[str, str, str], str] = {}
        #: Another number for other answers.
        self.edition = 0

    def configured(self, pools: Mapping[PoolName, Pool]) -> None:
        """Now there are these pools."""
        if pools is not self._pools:
            self._pools = pools
            self._forget()

    def offered(self, profile: ProfileName, offerings: tuple[Offering, ...]) -> None:
        """Now `profile` offers these."""
        if offerings is self._seen.get(profile):
            return
        self._seen[profile] = offerings
        types = frozenset(offering.type.name for offering in offerings)
        if types != self._types.get(profile):
            self._types[profile] = types
            self._forget()

    def of(self, row: Instance) -> str:
        """Why `row` is wanted no more, "" while it is."""
        key = (row.pool, row.profile, row.type)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(row)
        return known

    def _forget(self) -> None:
        self._known.clear()
        self.edition += 1

    def _find(self, row: Instance) -> str:
        pool = self._pools.get(row.pool)
        if pool is None:
            return f"pool {row.pool} left the configuration"
        if row.profile not in pool.profiles:
            return f"profile {row.profile} left pool {pool.name}"
        if not pool.types.admits(row.type):
            return f"type {row.type} is no longer allowed in pool {pool.name}"
        offered = self._types.get(row.profile)
        if offered and row.type not in offered:
            return f"type {row.type} is no longer offered by profile {row.profile}"
        return ""
