"""P6: every action has a reason that can be replayed."""

from __future__ import annotations

import zlib

from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.plan import Plan
from cloud_dispatch.planner.replay import decode_plan, decode_snapshot
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.facts import Commit

_S = InstanceState
_ENDED = frozenset({_S.DRAINING, _S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE})


#: To replay a plan costs more than to make it: with more VMs than this only one in so many is.
_LARGE = 200
_ONE_IN = 20


class Plans(Checker):
    """P6: what is stored of a plan gives the same plan again, and rows say why they came and went."""

    name = "P6 plans"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._known: set[str] = set()
        self._plans = 0

    def committed(self, commit: Commit) -> None:
        for snapshot, stored in commit.plans:
            decided = decode_plan(stored)
            self._plans += 1
            if len(self.view.alive) <= _LARGE or self._plans % _ONE_IN == 0:
                self._replay(snapshot, decided)
            for action in decided.actions:
                if not action.reason:
                    self.find(f"an action without a reason: {action}")
        for instance in commit.instances:
            if instance.id not in self._known:
                self._known.add(instance.id)
                if not instance.reason:
                    self.find(f"instance {instance.id} came without a reason")
            if instance.state in _ENDED and not instance.cause:
                self.find(f"instance {instance.id} is {instance.state} without a cause")

    def _replay(self, snapshot: bytes, decided: Plan) -> None:
        again = plan(decode_snapshot(zlib.decompress(snapshot)))
        if again != decided:
            self.find(f"a plan with {len(decided.actions)} actions gives {len(again.actions)} others when replayed")
