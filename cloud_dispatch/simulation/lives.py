"""How long VMs live beside how long their work takes, as a scenario says it. Owns the truth by which checkers judge
whether work could be finished somewhere; what the dispatcher makes of it is its own.
"""

from __future__ import annotations

from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.simulation.clock import EPOCH_MS
from cloud_dispatch.simulation.clouds.settings import Cloud
from cloud_dispatch.simulation.scenario import Scenario

#: For clocks that are wrong, and for what is said before an end.
_SLACK_MS = 180_000


class Lives:
    """By pool how long a VM lives, and by shape how long its work takes: as it says, or as it does."""

    def __init__(self, scenario: Scenario) -> None:
        self._begins_ms = EPOCH_MS + scenario.begins_ms
        self._leave_ms = scenario.pace.drain_ms + _SLACK_MS
        self._lifetimes = {pool.name: pool.end.lifetime_ms for pool in scenario.pools}
        #: Where an end can't be moved on, the one that a VM has is its last word.
        self._fixed = frozenset(a.profile for a in scenario.accounts if a.settings.cloud is Cloud.GCE)
        self._longest: dict[str, int] = {}
        for work in scenario.work:
            longest_ms = max(work.expected_ms, work.conduct.run_ms, self._longest.get(work.shape.key, 0))
            self._longest[work.shape.key] = longest_ms

    def may_be_too_short(self, row: Instance, shape: Shape, now_ms: int) -> bool:
        """Whether so little may be left of an instance's life, `now_ms` into the run, that it is given none of such
        work."""
        ends_ms = row.intended_ms + self._lifetimes.get(row.pool, 0)
        if row.profile in self._fixed:
            ends_ms = min(ends_ms, row.ends_ms)
        return self._begins_ms + now_ms + self._longest.get(shape.key, 0) + self._leave_ms > ends_ms
