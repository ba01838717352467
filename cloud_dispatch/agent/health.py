"""The pool's health checks. Owns when each runs and when its failures condemn the instance; runs nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional  # noqa: UP035

from cloud_dispatch.agent.ending import NEVER_MS
from cloud_dispatch.wire.messages import HealthCheck

#: Until a check has passed, work waits for it: it is then repeated at least this often.
FIRST_INTERVAL_MS = 5_000
#: So many attempts in a row that failed by themselves may be the machine's fault.
DOUBTFUL = 3
_FAILED = ("exit-code", "signal", "cannot-start", "output-failed")


@dataclass
class _Check:
    check: HealthCheck
    next_ms: int
    running: bool = False
    passed: bool = False
    failures: int = 0
    early: bool = False  # what runs began before the instance was doubted


@dataclass
class Health:
    """All checks of the policy. `condemned` not empty: the instance is not to be trusted, and why. `failing`: so many
    attempts in a row have failed since one succeeded, or since the checks were made due for it."""

    checks: List[_Check] = field(default_factory=list)
    condemned: str = ""
    failing: int = 0

    def adopt(self, checks: List[HealthCheck], now_ms: int) -> None:
        """Take over the policy's checks; they keep their history where nothing changed."""
        wanted = [check for check in checks if check.argv]
        if [known.check for known in self.checks] != wanted:
            self.checks = [_Check(check, now_ms) for check in wanted]

    @property
    def ready(self) -> bool:
        """Whether every check has passed, also since it was doubted: before that the instance takes no work."""
        return not self.checks or all(known.passed for known in self.checks)

    def attempt_ended(self, cause: str, now_ms: int) -> None:
        """Doubt the instance where one attempt after the other fails: on a machine that has gone bad most take no time,
        and it would fail the whole queue before its next check."""
        if cause == "success":
            self.failing = 0
        elif cause in _FAILED:
            self.failing += 1
        if self.failing >= DOUBTFUL:
            self.failing = 0
            for known in self.checks:
                known.passed, known.next_ms, known.early = False, min(known.next_ms, now_ms), known.running

    def due(self, now_ms: int) -> List[int]:
        """The numbers of the checks to run now; they count as running from here on."""
        if not self.checks:
            return []
        numbers = [i for i, known in enumerate(self.checks) if not known.running and known.next_ms <= now_ms]
        for number in numbers:
            self.checks[number].running = True
        return numbers

    def next_ms(self, now_ms: int) -> int:
        """The next moment after `now_ms` at which a check is due."""
        moments = (known.next_ms for known in self.checks if not known.running and known.next_ms > now_ms)
        return min(moments, default=NEVER_MS)

    def checked(self, number: int, passed: Optional[bool], detail: str, now_ms: int) -> None:
        """Record how a check ended; one of a policy that was replaced meanwhile is ignored. `passed` None: there was no
        room to run it, which is tried again soon and says nothing of the instance."""
        if number >= len(self.checks) or not self.checks[number].running:
            return
        known = self.checks[number]
        early, known.running, known.early = known.early, False, False
        if passed and early:
            known.next_ms = now_ms  # it may have looked before what makes attempts fail: it is asked again
            return
        if passed is None:
            known.next_ms = now_ms + min(max(known.check.interval_ms, 100), FIRST_INTERVAL_MS)
            return
        known.failures = 0 if passed else known.failures + 1
        known.passed = known.passed or passed
        interval = max(known.check.interval_ms, 100)
        known.next_ms = now_ms + (interval if known.passed else min(interval, FIRST_INTERVAL_MS))
        if known.failures >= max(known.check.failures, 1) and not self.condemned:
            self.condemned = "health check %s failed %d times in a row: %s" % (
                " ".join(known.check.argv)[:200],
                known.failures,
                detail[:500],
            )
