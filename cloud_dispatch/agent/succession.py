"""When the agent becomes another program: the one that the dispatcher has now. Owns that rule; brings and runs nothing.

At an idle moment nothing can be lost. Where none comes for long, the place is taken with tasks running: they are the
same process's children before and after, and what is known of them goes along as baggage, if the other takes it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Optional

from cloud_dispatch.agent import events
from cloud_dispatch.agent.claims import Claims
from cloud_dispatch.agent.ending import NEVER_MS
from cloud_dispatch.wire.messages import BAGGAGE, Program

#: Between two tries to become it, when the shell has something under way that can't be handed on.
AGAIN_MS = 1_000
#: A program that could not be had so often is not asked for again until the dispatcher names one anew.
MOST_TRIES = 5
_RETRY_FIRST_MS = 2_000
_RETRY_MOST_MS = 60_000


@dataclass
class Succession:
    """`own`: the sha256 of the program that runs, "" for one that can't be replaced. `spurned`: that of one that has
    been tried and did not live."""

    own: str = ""
    spurned: str = ""
    heir: Optional[Program] = None
    _brings: bool = field(default=False, repr=False)
    _here_ms: Optional[int] = field(default=None, repr=False)  # since when the heir is on the VM
    _tries: int = field(default=0, repr=False)
    _not_before_ms: int = field(default=0, repr=False)

    def named(self, program: Program) -> None:
        """The dispatcher says which agent it has now."""
        if self.heir is not None and self.heir.sha256 == program.sha256:
            return
        wanted = bool(self.own and program.sha256) and program.sha256 not in (self.own, self.spurned)
        able = tuple(program.python) <= sys.version_info[:2]
        self.heir = program if wanted and able else None
        self._brings, self._here_ms, self._tries, self._not_before_ms = False, None, 0, 0

    def brought(self, sha256: str, failure: str, fraction: float, now_ms: int) -> None:
        """The heir is on the VM, or could not be had."""
        if self.heir is None or self.heir.sha256 != sha256:
            return
        self._brings = False
        if not failure:
            self._here_ms, self._not_before_ms = now_ms, now_ms
            return
        pause = min(_RETRY_FIRST_MS << self._tries, _RETRY_MOST_MS)
        self._tries += 1
        self._not_before_ms = now_ms + int(pause * (0.5 + fraction / 2))
        if self._tries >= MOST_TRIES:
            self.heir = None

    def hindered(self, now_ms: int) -> None:
        """The shell has something under way that can't be handed on."""
        self._not_before_ms = now_ms + AGAIN_MS

    def failed(self) -> None:
        """The heir can't be run here."""
        if self.heir is not None:
            self.spurned, self.heir = self.heir.sha256, None

    def step(self, claims: Claims, patience_ms: int, now_ms: int) -> Optional[events.Command]:
        """What to do towards it now. An idle moment is waited for so long once the heir is here."""
        heir = self.heir
        if heir is None or self._brings or now_ms < self._not_before_ms:
            return None
        if self._here_ms is None:
            self._brings = True
            return events.Bring(heir)
        idle = not claims.holds and not claims.results
        patient = now_ms < self._here_ms + patience_ms or heir.baggage != BAGGAGE
        if idle or not (patient or _unsteady(claims)):
            return events.Become(heir, heir.baggage == BAGGAGE)
        return None

    def next_ms(self, patience_ms: int, now_ms: int) -> int:
        """The next moment after `now_ms` at which time alone brings a step about."""
        if self.heir is None or self._brings:
            return NEVER_MS
        moments = [self._not_before_ms]
        if self._here_ms is not None:
            moments.append(self._here_ms + patience_ms)
        return min((moment for moment in moments if moment > now_ms), default=NEVER_MS)


def _unsteady(claims: Claims) -> bool:
    """Whether an attempt does anything but run its command: it starts, ends, or brings away what it made."""
    return any(
        attempt.started_ms is None or attempt.vacant or bool(attempt.kill_cause) for attempt in claims.running.values()
    )
