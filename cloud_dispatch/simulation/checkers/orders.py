"""What is to end ends: a command at its run time's limit, and one whose task is cancelled.

Both are the agent's to do. Run times need nobody else: they count whatever the network and the dispatcher do. A
cancel has to reach the agent first, so that it counts from when nothing is broken any more.
"""

from __future__ import annotations

from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.faults import FaultKind

#: Of what a guest's clock says to be so long; no scenario's drifts more.
_DRIFT = 0.02
#: For a signal's way, and an answer's.
_SLACK_MS = 2_000
_CANCELLING = str(TaskState.CANCELLING)


class Orders(Checker):
    """By the processes that truly run, and the transactions in which tasks begin to be cancelled."""

    name = "orders"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        scenario = view.scenario
        #: An agent that stands still ends nothing before its supervisor ends all.
        hung = (fault.ends_ms - fault.at_ms for fault in scenario.faults if fault.kind is FaultKind.AGENT_HANG)
        self._killing_ms = scenario.agents.kill_grace_ms + max(hung, default=0) + _SLACK_MS
        #: Longer than the answer that is under way, and the next one.
        self._telling_ms = 2 * max(scenario.timing.heartbeat_ms, scenario.timing.poll_ms)
        self._limited: dict[int, Process] = {}  # by token, what runs and has a limit
        self._cancelled: dict[int, tuple[int, int]] = {}  # by task: the token, and since when

    def process_started(self, process: Process) -> None:
        if process.max_runtime_ms and not process.unkillable:
            self._limited[process.token] = process

    def process_ended(self, process: Process) -> None:
        if self._limited.pop(process.token, None) is not None:
            self._judge(process)

    def _judge(self, process: Process) -> bool:
        """Whether it has run for too long, which is told."""
        ran_ms, limit_ms = self.view.now_ms - process.started_ms, process.max_runtime_ms
        late = ran_ms > limit_ms * (1 + _DRIFT) + self._killing_ms
        if late:
            self.find(f"task {process.task} ran for {ran_ms} ms on {process.vm.id}, it may for {limit_ms}")
        return late

    def committed(self, commit: Commit) -> None:
        for live in commit.live:
            if live.state == _CANCELLING and live.token is not None:
                self._cancelled.setdefault(live.task, (live.token, self.view.now_ms))
            elif live.task in self._cancelled:
                del self._cancelled[live.task]
        for task, _ in commit.ended:
            self._cancelled.pop(task, None)

    def look(self) -> None:
        for process in list(self._limited.values()):
            if self._judge(process):
                del self._limited[process.token]
        healthy_ms = self.view.healthy_since_ms
        if healthy_ms is not None and self._cancelled:
            self._look_at_cancelled(healthy_ms)

    def _look_at_cancelled(self, healthy_ms: int) -> None:
        late = {
            token: task
            for task, (token, since_ms) in self._cancelled.items()
            if self.view.now_ms - max(since_ms, healthy_ms) > self._telling_ms + self._killing_ms
        }
        for process in self.view.processes.values() if late else ():
            if process.token in late and not process.unkillable:
                task = late[process.token]
                self.find(
                    f"task {task} is cancelled since {self._cancelled.pop(task)[1]} ms and runs on {process.vm.id}"
                )

    def restored(self) -> None:
        """A cancel may be forgotten; what runs has its limit all the same."""
        self._cancelled.clear()
