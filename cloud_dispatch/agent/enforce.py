"""Ends attempts that must not go on. Owns the steps of a kill, run times, and the end of leases (promise P1).

A kill is SIGTERM (where the VM goes: the signal that the task wants), then SIGKILL after the grace and never later than
the lease's end, then the finding that something can't be killed. What only brings its outputs or log away is not
signalled: it gets the grace to finish. A log alone may go on past the lease's end: nothing lives, and what it touches
is the attempt's own. What has no process can't withstand SIGKILL, however long its transfer takes to notice.
"""

from __future__ import annotations

import signal
from typing import List, Optional  # noqa: UP035

from cloud_dispatch.agent import events
from cloud_dispatch.agent.claims import Attempt, Claims
from cloud_dispatch.agent.ending import NEVER_MS, Ending
from cloud_dispatch.wire.messages import Policy

#: After SIGKILL something of an attempt may live for so long before the instance is given up.
UNKILLABLE_MS = 10_000
#: Causes that blame the instance: a claim whose command never started is then handed back and costs no attempt.
BLAMELESS = frozenset({"preempted", "instance-lost"})


class Enforcer:
    """Acts on the attempts of `claims` by appending to `out`. `lease_end_ms` is that of every claim held."""

    def __init__(self, claims: Claims, out: List[events.Command]) -> None:
        self._claims = claims
        self._out = out
        self.lease_end_ms = 0
        self._term_at_ms = 0  # when what still runs must begin to end, so that it has by the lease's end

    def renew(self, lease_end_ms: int, policy: Policy) -> None:
        """The lease of every claim held ends then; each answer says so anew, one that brings another policy too."""
        self.lease_end_ms = lease_end_ms
        self._term_at_ms = lease_end_ms - min(policy.kill_grace_ms, policy.lease_ms // 4)

    def kill(self, attempt: Attempt, cause: str, kill_at: int) -> None:
        """Begin to end `attempt`, SIGKILL at `kill_at`; a kill under way keeps its cause and can only get faster."""
        kill_at = min(kill_at, self.lease_end_ms)
        if attempt.kill_cause:
            if attempt.kill_at is not None:
                attempt.kill_at = min(attempt.kill_at, kill_at)
            return
        warned = cause == "preempted" and self.warn(attempt)
        attempt.kill_cause = cause
        attempt.killed_vacant = attempt.vacant
        attempt.kill_at = kill_at
        self._claims.bounded.add(attempt.order.token)
        if not (attempt.vacant or warned):
            self._out.append(events.Kill(attempt.order.token, signal.SIGTERM))

    def warn(self, attempt: Attempt) -> bool:
        """Whether the command of `attempt` knows that its VM goes, and has until then: it wanted to be told, and is."""
        number = getattr(signal, attempt.order.spec.checkpoint_signal or "-", 0)
        if not number or attempt.started_ms is None or attempt.vacant or attempt.kill_cause:
            return False
        if not attempt.warned:
            attempt.warned = True
            self._out.append(events.Prod(attempt.order.token, number))
        return True

    def kill_all(self, cause: str, kill_at: int, warned_at: int) -> None:
        """Begin to end everything; what was warned before may take until `warned_at`."""
        for attempt in self._claims.running.values():
            self.kill(attempt, cause, warned_at if attempt.warned else kill_at)

    def enforce(self, policy: Policy, now_ms: int) -> Optional[Attempt]:
        """Do what is due. Returns an attempt that proved unkillable, once each."""
        lost = now_ms >= self._term_at_ms
        if not lost and not self._claims.bounded:
            return None
        stuck = None
        for attempt in self._claims.running.values():
            if lost and not _log_alone(attempt):
                self.kill(attempt, "instance-lost", self.lease_end_ms)
            elif attempt.order.spec.max_runtime_ms and now_ms >= (self._runtime_end(attempt) or now_ms + 1):
                self.kill(attempt, "timeout", now_ms + policy.kill_grace_ms)
            if attempt.kill_cause and self._follows(attempt, now_ms):
                stuck = attempt
        return stuck

    def _follows(self, attempt: Attempt, now_ms: int) -> bool:
        """What follows on SIGTERM, if that is due: SIGKILL, then the finding, returned once, that it does not help."""
        if attempt.kill_at is not None and now_ms >= attempt.kill_at:
            attempt.kill_at = None
            attempt.stuck_at = now_ms + UNKILLABLE_MS
            self._out.append(events.Kill(attempt.order.token, signal.SIGKILL))
        if attempt.stuck_at is not None and now_ms >= attempt.stuck_at:
            attempt.stuck_at = None
            attempt.stuck = _may_live(attempt)
            return attempt.stuck
        return False

    def next_ms(self, now_ms: int) -> int:
        """The next moment after `now_ms` at which `enforce` has something to do."""
        running = self._claims.running
        if not running and not self._claims.waiting:
            return NEVER_MS
        following = self.lease_end_ms if self.lease_end_ms > now_ms else NEVER_MS
        spared = bool(running)
        if self._claims.bounded:
            spared = any(not attempt.kill_cause for attempt in running.values())
            for attempt in running.values():
                moment = self._step_ms(attempt)
                if moment is not None and now_ms < moment < following:
                    following = moment
        if spared and now_ms < self._term_at_ms < following:
            following = self._term_at_ms
        return following

    def _step_ms(self, attempt: Attempt) -> Optional[int]:
        """When the next step against `attempt` is due, other than for the lease."""
        if not attempt.kill_cause:
            return self._runtime_end(attempt)
        return attempt.stuck_at if attempt.kill_at is None else attempt.kill_at

    def _runtime_end(self, attempt: Attempt) -> Optional[int]:
        limit = attempt.order.spec.max_runtime_ms
        if not limit or attempt.started_ms is None or attempt.vacant:
            return None
        return attempt.started_ms + limit


def _may_live(attempt: Attempt) -> bool:
    """Whether there is a process that may withstand SIGKILL: what only brings its files ends by being given up."""
    return attempt.started_ms is not None and not attempt.vacant


def _log_alone(attempt: Attempt) -> bool:
    """Whether only a log is left of `attempt`; outputs may go where those of a later attempt do."""
    return attempt.vacant and not attempt.order.spec.outputs


def final_cause(attempt: Attempt, cause: str) -> str:
    """The cause to report, given that the shell saw `cause`: what the agent killed it for beats how it died."""
    killed = attempt.kill_cause
    if not killed:
        return "preempted" if attempt.warned and cause not in ("success", "output-failed") else cause
    if attempt.started_ms is None and killed in BLAMELESS:
        return "released"
    if attempt.killed_vacant and killed != "cancelled" and cause != "cancelled":
        return cause  # it had ended by itself and its outputs and log were brought away in time
    return killed


def killed_by(cause: str, end: Optional[Ending]) -> str:
    """What took the instance from an attempt that was killed for `cause`; `end` is the agent's own, where it has begun.
    Of causes that are the attempt's own there is nothing to add."""
    if cause not in BLAMELESS:
        return ""
    if end is not None:
        return "its agent ends: %s" % (end.failure or end.word)
    if cause == "preempted":
        return "the provider takes the VM back"
    return "its lease ran out: its agent has not heard from the dispatcher"
