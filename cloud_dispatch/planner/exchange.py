"""Idle instances that make room under caps for others. Owns which of them, and that something can be launched then.

It is tried on the ledger that the plan leaves behind, from which what ends anyway is taken off. For what another cap, a
quota or too few vCPUs would still forbid nothing is ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cloud_dispatch.domain.ids import InstanceId, PoolName
from cloud_dispatch.planner.caps import Lack, Ledger, levels_of
from cloud_dispatch.planner.needs import Need
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.snapshot import Snapshot, Supply


class Exchange:
    """`idle` are those that may go, in this order, of each pool so many as it has in `surplus`; beyond that only who is
    too old for the tasks that get its place."""

    def __init__(
        self, snapshot: Snapshot, ledger: Ledger, pricing: Pricing, idle: Iterable[Supply], surplus: dict[PoolName, int]
    ) -> None:
        self._replaces = not snapshot.foreign  # where others hold places it is not known that one is enough
        self._ledger = ledger
        self._pricing = pricing
        self._idle: dict[InstanceId, Supply] = {supply.instance: supply for supply in idle}
        self._surplus = surplus
        of = {(s.pool, s.profile) for s in self._idle.values()}
        self._levels = {key: frozenset(levels_of(snapshot, *key)) for key in of}

    def makes_room(self, needs: Iterable[Need]) -> Iterator[tuple[Supply, Need]]:
        """Who goes, and for what, the most urgent of `needs` first."""
        for need in sorted(needs, key=lambda need: need.urgency):
            count = need.short
            while count > 0:
                kind = self._pricing.opens(need)
                if kind is not None:
                    taken = min(count, self._pricing.room(kind))
                    self._pricing.take(kind, self._pricing.offering(kind), taken)
                    count -= taken
                    continue
                found = self._enough(need, count)
                if not found:
                    break
                for supply in found:
                    del self._idle[supply.instance]
                    self._surplus[supply.pool] -= 1
                    yield supply, need

    def _enough(self, need: Need, count: int) -> Sequence[Supply]:
        """Whose end lets `count` instances be launched for `need`, or half of that, and so on; they are off the ledger.
        Nobody where none can be."""
        if not self._idle:
            return ()
        for kind in self._pricing.kept_out(need):
            many = 1
            found = self._lacking(need, self._ledger.lacks(kind.pool, kind.profile, kind.vcpus, many))
            while found and count > many:
                more = self._lacking(need, self._ledger.lacks(kind.pool, kind.profile, kind.vcpus, count))
                found, many, count = more or found, count if more else many, max(count // 2, 1)
            for supply in found:
                self._ledger.end(supply)
            if found and self._pricing.opens(need) is not None:
                return found
            for supply in found:
                self._ledger.end(supply, -1)
        return ()

    def _lacking(self, need: Need, lacks: Mapping[str, Lack]) -> list[Supply]:
        """Those that hold what is lacking, none of them in vain; nobody where they do not hold all of it."""
        found: list[Supply] = []
        left = {level: list(lack) for level, lack in lacks.items()}
        surplus, missing = dict(self._surplus), set(lacks)
        for supply in self._idle.values():
            if not missing:
                break
            levels = self._levels[supply.pool, supply.profile]
            if levels.isdisjoint(missing):
                continue
            if surplus[supply.pool] > 0 or (self._replaces and need.index in supply.declines):
                surplus[supply.pool] -= 1
                found.append(supply)
                for level in levels & left.keys():
                    left[level][0] -= 1
                    left[level][1] -= supply.vcpus
                    if max(left[level]) <= 0:
                        missing.discard(level)
        return [] if missing else [supply for supply in found if not self._spared(supply, left)]

    def _spared(self, supply: Supply, left: Mapping[str, list[int]]) -> bool:
        """Whether enough would come free without `supply`; then it is taken off what does."""
        levels = self._levels[supply.pool, supply.profile] & left.keys()
        if any(left[level][0] + 1 > 0 or left[level][1] + supply.vcpus > 0 for level in levels):
            return False
        for level in levels:
            left[level][0] += 1
            left[level][1] += supply.vcpus
        return True
