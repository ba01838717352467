"""P6: every action has a reason that can be replayed."""

from __future__ import annotations

import zlib

from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Drain, Plan, Terminate
from cloud_dispatch.planner.replay import decode_plan, decode_snapshot
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.checkers.ends import AT_ONCE
from cloud_dispatch.simulation.facts import Commit

_S = InstanceState
_ENDED = frozenset({_S.DRAINING, _S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE})
#: Causes of drains that planners alone have, and states from which they alone end instances, but for `AT_ONCE`.
_BY_PLAN = frozenset({"idle", "surplus", "turn", "oversized", "overpriced", "stale", "behaviour"})
_OVER = frozenset({_S.DRAINED, _S.FAILED, _S.LOST})

#: To replay a plan costs more than to make it: with more VMs than this only one in so many is.
_LARGE = 200
_ONE_IN = 20


class Plans(Checker):
    """P6: what is stored of a plan gives the same plan again, rows say why they came and went, and what planners alone
    decide is in a plan that was stored before."""

    name = "P6 plans"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._known: set[str] = set()
        self._plans = 0
        self._states: dict[str, InstanceState] = {}
        self._drains: set[str] = set()  # whose drain a stored plan has
        self._ends: set[str] = set()  # and whose end

    def committed(self, commit: Commit) -> None:
        for snapshot, stored in commit.plans:
            decided = decode_plan(stored)
            self._plans += 1
            if len(self.view.alive) <= _LARGE or self._plans % _ONE_IN == 0:
                self._replay(snapshot, decided)
            for action in decided.actions:
                if not action.reason:
                    self.find(f"an action without a reason: {action}")
                if isinstance(action, Drain):
                    self._drains.add(action.instance)
                elif isinstance(action, Terminate):
                    self._ends.add(action.instance)
        for instance in commit.instances:
            if instance.id not in self._known:
                self._known.add(instance.id)
                if not instance.reason:
                    self.find(f"instance {instance.id} came without a reason")
            if instance.state in _ENDED and not instance.cause:
                self.find(f"instance {instance.id} is {instance.state} without a cause")
            self._is_planned(instance)

    def _is_planned(self, instance: Instance) -> None:
        """What leads to a drain or an end by itself was planned, and the plan is there."""
        was, now = self._states.get(instance.id), instance.state
        self._states[instance.id] = now
        if was is None or was is now:
            return
        drains = now is _S.DRAINING and instance.cause in _BY_PLAN and instance.id not in self._drains
        ends = now is _S.TERMINATING and was in _OVER and instance.cause not in AT_ONCE
        if drains or (ends and instance.id not in self._ends):
            self.find(f"instance {instance.id} is {now} ({instance.cause}) and no plan says so")

    def restored(self) -> None:
        """Rows are as they were before: how they came to that was looked at then."""
        self._states.clear()

    def _replay(self, snapshot: bytes, decided: Plan) -> None:
        again = plan(decode_snapshot(zlib.decompress(snapshot)))
        if again != decided:
            self.find(f"a plan with {len(decided.actions)} actions gives {len(again.actions)} others when replayed")
