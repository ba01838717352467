"""P1 on the VM: what runs of a task that was given to another attempt, or has ended, is itself ended within a lease.

Whatever becomes of the agent, the network or the dispatcher: a lease ends by the VM's own clock.
"""

from __future__ import annotations

from cloud_dispatch.agent.enforce import UNKILLABLE_MS
from cloud_dispatch.domain.ids import VmId
from cloud_dispatch.simulation.checkers.base import Checker, View
from cloud_dispatch.simulation.facts import Commit

_SLACK_MS = 10_000


class Strays(Checker):
    """Counts from the transaction that took the task from an attempt whose command still runs."""

    name = "P1 strays"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._current: dict[int, int | None] = {}  # the token of the attempt that has the task
        self._since: dict[tuple[VmId, int], int] = {}
        self._restored_ms = -1
        timing, agents = view.scenario.timing, view.scenario.agents
        #: The lease with what a clock may drift, two of the supervisor's waits, the kill; on top, while nothing moves.
        lease_ms = timing.lease_ms * 6 // 5
        self.bound_ms = lease_ms + 2 * timing.heartbeat_ms + agents.kill_grace_ms + UNKILLABLE_MS + _SLACK_MS

    def committed(self, commit: Commit) -> None:
        for live in commit.live:
            self._current[live.task] = live.token
        for task, _ in commit.ended:
            self._current[task] = None

    def restored(self) -> None:
        """A backup does not know what it gave away later."""
        self._current.clear()
        self._restored_ms = self.view.now_ms

    def look(self) -> None:
        now, before, current = self.view.now_ms, self._since, self._current
        self._since = {}
        for key, process in self.view.processes.items():
            token = process.token
            if current.get(process.task, token) == token:  # it has the task, or nothing is known of that
                continue
            if process.unkillable or process.started_ms <= self._restored_ms:
                continue
            since = self._since[key] = before.get(key, now)
            if now - since > self.bound_ms + process.stood_ms:
                self.find(
                    f"task {process.task} still runs under token {process.token} on {process.vm.id}, {now - since} ms "
                    "after it was taken from that attempt"
                )
