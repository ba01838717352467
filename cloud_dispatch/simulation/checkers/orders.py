"""What is to end ends: a command at its run time's limit, and one whose task is cancelled.

Both are the agent's to do. Run times need nobody else: they count whatever the network and the dispatcher do. A
cancel has to reach the agent first, so that it counts from when nothing is broken any more.
"""

from __future__ import annotations

from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation.checkers.base import Checker, Process, View
from cloud_dispatch.simulation.facts import Commit
from cloud_dispatch.simulation.faults import FaultKind

#: For a signal's way, and an answer's.
_SLACK_MS = 2_000
_MILLION = 1_000_000
_CANCELLING = str(TaskState.CANCELLING)


class Orders(Checker):
    """By the processes that truly run, and the transactions in which tasks begin to be cancelled."""

    name = "orders"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        scenario = view.scenario
        #: On top: an agent that stands still ends nothing before its supervisor ends all.
        hung = (fault.ends_ms - fault.at_ms for fault in scenario.faults if fault.kind is FaultKind.AGENT_HANG)
        self._late_ms = max(hung, default=0) + _SLACK_MS
        self._grace_ms = scenario.agents.kill_grace_ms
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
        late = ran_ms > self._real_ms(process, limit_ms + self._grace_ms)
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
        told = {token: (task, since_ms) for task, (token, since_ms) in self._cancelled.items()}
        for process in list(self.view.processes.values()):
            if process.token not in told or process.unkillable:
                continue
            task, since_ms = told[process.token]
            waits_ms = self.view.now_ms - max(since_ms, healthy_ms)
            if waits_ms > self._real_ms(process, self._telling_ms + self._grace_ms):
                del self._cancelled[task]
                self.find(f"task {task} is cancelled since {since_ms} ms and runs on {process.vm.id}")

    def _real_ms(self, process: Process, told_ms: int) -> int:
        """How long `told_ms` by the clock of its VM are, and what may come on top."""
        return told_ms * _MILLION // (_MILLION + process.vm.drift_ppm) + self._late_ms + process.stood_ms

    def restored(self) -> None:
        """A cancel may be forgotten; what runs has its limit all the same."""
        self._cancelled.clear()
