"""When a run is over, and what is left of it where it is not. Owns that judgement; looks at the truth and the store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cloud_dispatch.domain.task import TERMINAL, TaskState
from cloud_dispatch.spend.windows import Window

if TYPE_CHECKING:
    from cloud_dispatch.simulation.world import World

#: With limits set and no VM for so long, what still waits is not paid for.
_BROKE_MS = 600_000
_SHOWN = 5
#: Under this name it is found that a run did not come to its end.
PROGRESS = "progress"


class Finish:
    """Of one run."""

    def __init__(self, world: World) -> None:
        self._w = world
        self._quiet_ms = world.scenario.quiet_ms
        self._kept = {str(pool.name): pool.minimum for pool in world.scenario.pools}  # live on when all else is over
        self._empty_since_ms: int | None = None

    def near(self) -> bool:
        """Whether no more VMs live than pools keep: with more of them no run is over."""
        return len(self._w.alive) <= sum(self._kept.values())

    def reached(self) -> bool:
        """Whether all work that was submitted and all VMs, but for those that pools keep, have ended, and nothing is
        to go wrong."""
        world, store = self._w, self._w.store
        if store is None or world.now_ms < self._quiet_ms or world.troubles.waiting:
            return False
        counts = store.task_counts()
        total = sum(counts.values())
        ended = sum(counts.get(state, 0) for state in TERMINAL)
        works = ended + counts.get(TaskState.QUEUED, 0) != total
        lingering = self._lingering()
        # One machine that a pool keeps takes the place of another again and again, whatever there is to do.
        if works or not all(self._kept.get(pool) for pool in lingering):
            self._empty_since_ms = None
        if works or lingering:
            return False
        if ended != total and not self._out_of_money():
            return False
        return not any(account.leftovers() for account in world.accounts)

    def _lingering(self) -> list[str]:
        """The pools of which more VMs live, or have a row, than they keep. Asked twice a second, mostly of none."""
        world, store = self._w, self._w.store
        rows = store.instances().values() if store is not None else ()
        if not world.alive and not rows:
            return []
        living = Counter(vm.pool for vm in world.alive.values()) | Counter(str(row.pool) for row in rows)
        return [pool for pool, count in living.items() if count > self._kept.get(pool, 0)]

    def _out_of_money(self) -> bool:
        """Whether there are limits, and for so long nothing that works that the rest of the work is not paid for."""
        scenario, now = self._w.scenario, self._w.now_ms
        if scenario.awaits_limits and any(one.window is not Window.TOTAL for one in scenario.budgets):
            return False
        if self._empty_since_ms is None:
            self._empty_since_ms = now
        return bool(scenario.budgets) and now - self._empty_since_ms >= _BROKE_MS

    def left(self) -> str:
        """What has not ended, for people."""
        world, store = self._w, self._w.store
        counts = {str(k): v for k, v in store.task_counts().items() if v} if store is not None else "the store is down"
        rows = [f"{row.id} {row.state}" for row in store.instances().values()][:_SHOWN] if store is not None else []
        alive = [f"{vm.id} {vm.state}" for vm in world.alive.values()][:_SHOWN]
        return f"not over after {world.now_ms} ms: tasks {counts}, VMs {alive}, rows {rows}"
