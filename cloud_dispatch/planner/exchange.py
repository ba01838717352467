"""Instances that make room under caps for others. Owns which of them, and that something can be launched then.

Those that idle come first, then those whose turn it is to take no more work (`turns`). It is tried on the ledger that
the plan leaves behind, from which what ends anyway is taken off. For what another cap, a quota or too few vCPUs would
still forbid nothing is ended; nor is anything with work for what failed when it was last tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from cloud_dispatch.domain.ids import InstanceId, PoolName, ProfileName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.planner.bins import Bin, sweep
from cloud_dispatch.planner.caps import Lack, Ledger, levels_of
from cloud_dispatch.planner.catalogue import Kind
from cloud_dispatch.planner.needs import Need
from cloud_dispatch.planner.pricing import Pricing
from cloud_dispatch.planner.snapshot import Snapshot, Supply
from cloud_dispatch.planner.turns import Turns


class Exchange:
    """`idle` are those that may go, in this order, then whose turn it is; of each pool so many as it has in `surplus`,
    beyond that only who idles and is too old for the tasks that get its place."""

    def __init__(
        self, snapshot: Snapshot, ledger: Ledger, pricing: Pricing, idle: Sequence[Supply],
        surplus: dict[PoolName, int], turns: Turns,
    ) -> None:  # fmt: skip
        self._snapshot = snapshot
        self._replaces = not snapshot.foreign  # where others hold places it is not known that one is enough
        self._ledger = ledger
        self._pricing = pricing
        self._idle = idle
        self._surplus = surplus
        self._turns = turns
        self._leaving: set[InstanceId] = set()
        self._levels: dict[tuple[PoolName, ProfileName], frozenset[str]] = {}

    def makes_room(self, needs: Iterable[Need]) -> Iterator[tuple[Supply, Need]]:
        """Who goes, and for what, the most urgent of `needs` first, for what finds no room on what comes for others."""
        coming: list[Bin] = []
        before: list[Need] = []
        for need in sorted(needs, key=lambda need: need.urgency):
            left, count = need.left, 0
            sweep(need, coming)
            short = -(-need.short * need.left // left)
            for working, most in chain([((), short)], self._turns.of(need, short, coming)):
                while count < most and need.left:
                    kind = self._pricing.opens(need)
                    if kind is not None:
                        taken, offering = min(most - count, self._pricing.room(kind)), self._pricing.offering(kind)
                        self._pricing.take(kind, offering, taken)
                        coming.append(self._pricing.bin(kind, offering, taken))
                        sweep(need, coming)
                        count += taken
                        continue
                    found = self._enough(need, most - count, working, before)
                    if not found:
                        break
                    for supply in found:
                        self._leaving.add(supply.instance)
                        self._surplus[supply.pool] -= 1
                        yield supply, need
            if count < short and need.left:
                before.append(need)

    def _enough(self, need: Need, count: int, working: Sequence[Supply], before: Sequence[Need]) -> Sequence[Supply]:
        """Whose end lets `count` instances be launched for `need`, or half of that, and so on: of those that idle, or
        of `working` each by itself; they are off the ledger. Nobody where none can be, or where what comes `before` it,
        and is still short of some, would have their places."""
        exist = [supply for supply in working or self._idle if supply.instance not in self._leaving]
        for kind in self._pricing.kept_out(need) if exist else ():
            many, lacks = 1, self._ledger.lacks(kind.pool, kind.profile, kind.vcpus, 1)
            able = [s for s in exist if self._is_enough(s, kind, lacks)] if working else exist
            found = self._lacking(need, lacks, able)
            while found and count > many:
                more = self._lacking(need, self._ledger.lacks(kind.pool, kind.profile, kind.vcpus, count), able)
                found, many, count = more or found, count if more else many, max(count // 2, 1)
            for supply in found:
                self._ledger.end(supply)
            opened = self._pricing.opens(need, surely=bool(working)) if found else None
            if opened is not None and not any(self._pricing.opens(other) for other in before):
                return found
            for supply in found:
                self._ledger.end(supply, -1)
        return ()

    def _is_enough(self, supply: Supply, kind: Kind, lacks: Mapping[str, Lack]) -> bool:
        """Whether the place of `supply` alone is enough for one of `kind`: of several with work one ends before the
        others, and what is smaller takes its place."""
        return lacks.keys() <= self._levels_of(supply) and all(
            instances <= 1 and (not vcpus or max(vcpus, kind.vcpus) <= supply.vcpus)
            for instances, vcpus in lacks.values()
        )

    def _lacking(self, need: Need, lacks: Mapping[str, Lack], able: Iterable[Supply]) -> list[Supply]:
        """Those that hold what is lacking, none of them in vain; nobody where they do not hold all of it."""
        found: list[Supply] = []
        left = {level: list(lack) for level, lack in lacks.items()}
        surplus, missing = dict(self._surplus), set(lacks)
        for supply in able:
            if not missing:
                break
            levels = self._levels_of(supply)
            if levels.isdisjoint(missing):
                continue
            replaces = self._replaces and supply.state is InstanceState.IDLE and need.index in supply.declines
            if surplus[supply.pool] > 0 or replaces:
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
        levels = self._levels_of(supply) & left.keys()
        if any(left[level][0] + 1 > 0 or left[level][1] + supply.vcpus > 0 for level in levels):
            return False
        for level in levels:
            left[level][0] += 1
            left[level][1] += supply.vcpus
        return True

    def _levels_of(self, supply: Supply) -> frozenset[str]:
        key = (supply.pool, supply.profile)
        found = self._levels.get(key)
        if found is None:
            found = self._levels[key] = frozenset(levels_of(self._snapshot, *key))
        return found
