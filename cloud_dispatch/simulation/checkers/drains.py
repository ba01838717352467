"""No work after a drain or a hold, and an instance that is gone stays gone."""

from __future__ import annotations

from cloud_dispatch.domain.instance import Behaviour, Instance, InstanceState
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit

_S = InstanceState
#: No claim may be handed to an instance in one of these states.
_CLOSED = frozenset({_S.DRAINING, _S.DRAINED, _S.FAILED, _S.LOST, _S.TERMINATING, _S.GONE})


class Drains(Checker):
    """A drain that was begun hands out nothing, nor does a hold; a drain that was confirmed leaves nothing running."""

    name = "drain"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._states: dict[str, InstanceState] = {}
        self._held: set[str] = set()  # by an operator
        self._by_vm: dict[str, str] = {}
        self._tokens: dict[int, int] = {}

    def committed(self, commit: Commit) -> None:
        # What a transaction does to claims was decided before it changed any instance, or after it resumed one.
        before: dict[str, InstanceState | None] = {i.id: self._states.get(i.id) for i in commit.instances}
        newly_held = {i.id for i in commit.instances if i.behaviour is Behaviour.HOLD} - self._held
        for instance in commit.instances:
            self._changed(instance.id, instance.state, instance.vm)
            self._behaves(instance)
        for live in commit.live:
            if live.instance is None or live.token is None or self._tokens.get(live.task) == live.token:
                continue
            self._tokens[live.task] = live.token
            now = self._states.get(live.instance)
            if now in _CLOSED and before.get(live.instance, now) in _CLOSED:
                self.find(f"task {live.task} was handed to instance {live.instance}, which is {now}")
            if live.instance in self._held - newly_held:
                self.find(f"task {live.task} was handed to instance {live.instance}, which is held")

    def _behaves(self, instance: Instance) -> None:
        if instance.behaviour is Behaviour.HOLD:
            self._held.add(instance.id)
        else:
            self._held.discard(instance.id)

    def _changed(self, instance: str, state: InstanceState, vm: str) -> None:
        was = self._states.get(instance)
        if was is _S.GONE and state is not _S.GONE:
            self.find(f"instance {instance} was gone and is {state}")
        self._states[instance] = state
        if vm:
            self._by_vm[vm] = instance
        if state is _S.DRAINED and was is not _S.DRAINED:
            running = [p for p in self.view.processes.values() if p.vm.id == vm and not p.unkillable]
            if running:
                self.find(f"instance {instance} is drained, and task {running[0].task} still runs on it")

    def process_started(self, process: Process) -> None:
        instance = self._by_vm.get(process.vm.id)
        if instance is not None and self._states.get(instance) is _S.DRAINED:
            self.find(f"task {process.task} starts on instance {instance}, which is drained")

    def restored(self) -> None:
        self._states.clear()
        self._held.clear()
        self._tokens.clear()
