"""Whose turn it is under a cap. Owns which instances with work take no more of it, so that others get their places.

Work that keeps coming would keep all of them, and what none of them can run would wait for as long as it comes. So one
goes for tasks of a higher priority than all that waits for it. Among equals it goes for tasks that nothing which exists
can run, once they have waited for longer than what waits for it, and than what waits there shall, as long as it has
been rented itself: with a long queue of tasks that take turns all have waited for that, and one would go with each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from cloud_dispatch.domain.ids import PoolName
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Pool
from cloud_dispatch.planner.bins import Bin, Host
from cloud_dispatch.planner.needs import Need
from cloud_dispatch.planner.placement import Capacity
from cloud_dispatch.planner.snapshot import Snapshot, Supply
from cloud_dispatch.planner.wanted import Wanted

_BY_PRIORITY = "all that waits and could run on it has a lower priority"
_BY_AGE = "nothing that exists can run them, and they have waited for longer than what could run on it"


class Turns:
    """The turns of `needs`, which are placed."""

    def __init__(
        self, snapshot: Snapshot, pools: Mapping[PoolName, Pool], targets: Mapping[PoolName, Wanted],
        capacity: Capacity, needs: Sequence[Need],
    ) -> None:  # fmt: skip
        self._snapshot, self._pools, self._targets, self._capacity = snapshot, pools, targets, capacity
        self._waiting = [need for need in needs if need.item.count > need.starting]
        self._known: dict[tuple[Need, Host], str] = {}

    def any(self, needs: Iterable[Need]) -> bool:
        """Whether it is the turn of any of `needs` anywhere."""
        return any(True for need in needs for _ in self.of(need, need.short, ()))

    def of(self, need: Need, short: int, coming: Iterable[Bin]) -> Iterator[tuple[Sequence[Supply], int]]:
        """Who takes no more work for tasks of `need`, the soonest free first, and for how many instances at most: for
        the `short` that caps keep out where it goes first by its priority, for one where by its age, and nothing of
        what is `coming` can run it; that is read again for the second."""
        if any(other.item.priority < need.item.priority for other in self._waiting):
            if first := self._whose_turn(need, (_BY_PRIORITY,)):
                yield first, short
        if not self._capacity.can_run(need) and not any(group.host.can(need) for group in coming):
            if both := [s for s in self._whose_turn(need, (_BY_PRIORITY, _BY_AGE)) if self._goes(s, need)]:
                yield both, 1

    def _goes(self, supply: Supply, need: Need) -> bool:
        """By age none that was rented a short while ago."""
        rented_ms = self._snapshot.now_ms - supply.intended_ms
        return self.why(supply, need) == _BY_PRIORITY or rented_ms >= self._pools[supply.pool].target_drain_ms

    def _whose_turn(self, need: Need, reasons: Collection[str]) -> Sequence[Supply]:
        hosts = {host for host, one in self._hosts.items() if self.why(one, need) in reasons}
        return [s for s in self._able if self._host(s) in hosts] if hosts else ()

    def why(self, supply: Supply, need: Need) -> str:
        """Why it is the turn of `need` on `supply`; "" where it is not."""
        host = self._host(supply)
        known = self._known.get((need, host))
        if known is None:
            known = self._known[need, host] = self._why(host, self._pools[supply.pool], need)
        return known

    def _host(self, supply: Supply) -> Host:
        return self._capacity.host(supply.machine, supply.declines)

    def _why(self, host: Host, pool: Pool, need: Need) -> str:
        if host.can(need):
            return ""
        rivals = [other for other in self._waiting if other is not need and host.can(other)]
        highest = max((other.item.priority for other in rivals), default=need.item.priority)
        if highest < need.item.priority:
            return _BY_PRIORITY
        longest = need.waited_ms(self._snapshot.now_ms) >= pool.target_drain_ms and all(
            need.urgency < other.urgency for other in rivals
        )
        return _BY_AGE if longest else ""

    @cached_property
    def _able(self) -> Sequence[Supply]:
        """Those at work that are free soon, or with the end of their one task: what takes nothing more, and goes on for
        long, would stand empty for as long."""
        able = [supply for alike in self._snapshot.alike if self._is_able(alike[0]) for supply in alike]
        return sorted(able, key=lambda s: (s.stays.tasks, s.free_ms, -(s.rate or 0), s.instance))

    @cached_property
    def _hosts(self) -> Mapping[Host, Supply]:
        """What these are to tasks, with one that is so: they are few."""
        return {self._host(supply): supply for supply in self._able}

    def _is_able(self, one: Supply) -> bool:
        return (
            one.state is InstanceState.BUSY
            and self._snapshot.may_end(one)
            and self._targets[one.pool].may_drain
            and (not one.stays.tasks or one.load.tasks == 1)
        )
