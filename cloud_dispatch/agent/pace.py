"""When to speak to the dispatcher, and how much work to take ahead. Owns rhythm and backoff; knows no claims.

One request is outstanding at a time. A *patient* one waits for work and is abandoned when there is news.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Optional, Tuple  # noqa: UP035

from cloud_dispatch.wire.messages import Policy

#: Tasks whose median is shorter than this cost more in round trips than in work: claims are then taken ahead.
TINY_MS = 200
#: How many milliseconds of tiny work the agent keeps ahead.
AHEAD_MS = 250
#: Results of tiny tasks are gathered for so long while there is more work at hand.
GATHER_MS = 20
#: A start is told after so long, so that a tiny task is told by its result alone.
START_MS = 50
#: How long the dispatcher may take beyond the wait that it was allowed.
ANSWER_MS = 15_000
RETRY_FIRST_MS = 100
RETRY_MOST_MS = 5_000
#: The longest time between two signs of life to the supervisor.
BEAT_MOST_MS = 2_000
_LEAST_HISTORY = 4
#: What the dispatcher must hear of an agent at once: its state where notable, the drain's token, `ask_end`, `ending`.
Word = Tuple[str, int, bool, str]


@dataclass
class Outstanding:
    """A request on its way: when it was sent, how long the dispatcher may hold it, what it said, and when it counts as
    failed. `asks`: for a word of the guest timer."""

    seq: int
    sent_ms: int
    wait_ms: int
    want: int
    patient: bool
    said: Word
    ending: str
    results: int
    overdue_ms: int
    asks: bool = False


@dataclass
class Pace:
    """The rhythm of one incarnation."""

    runtimes: Deque[int] = field(default_factory=lambda: deque(maxlen=32))
    median_ms: Optional[int] = None  # of `runtimes`; None while too few have run to say
    failures: int = 0
    vacuous: int = 0  # answers in a row that came at once and brought nothing
    not_before_ms: int = 0
    retry_ms: Optional[int] = None  # after a failure: try again then even if there is no news

    def ran(self, ran_ms: int) -> None:
        self.runtimes.append(ran_ms)
        if len(self.runtimes) >= _LEAST_HISTORY:
            self.median_ms = sorted(self.runtimes)[len(self.runtimes) // 2]

    def ahead(self, policy: Policy, slots: int) -> int:
        """How many claims may wait on the VM: what `slots` tiny tasks at once get through in `AHEAD_MS`."""
        median = self.median_ms
        if median is None or median >= TINY_MS:
            return 0
        return max(min(policy.max_ahead, max(slots, 1) * AHEAD_MS // max(median, 1)), 0)

    def forget_runtimes(self) -> None:
        self.runtimes.clear()
        self.median_ms = None

    def failed(self, now_ms: int, fraction: float, lease_ms: int) -> None:
        """A request failed: the next one after a doubling pause, between half and all of it by `fraction`."""
        ceiling = min(RETRY_MOST_MS, max(lease_ms // 6, RETRY_FIRST_MS))
        pause = min(RETRY_FIRST_MS << min(self.failures, 16), ceiling)
        self.failures += 1
        self.retry_ms = self.not_before_ms = now_ms + int(pause * (0.5 + fraction / 2))

    def answered(self, now_ms: int, sent: Outstanding, brought: bool) -> None:
        """A request was answered. One that may wait and is sent back empty at once must not become a busy loop."""
        self.failures = 0
        self.retry_ms = None
        hasty = not brought and (sent.patient or sent.results > 0) and now_ms - sent.sent_ms < sent.wait_ms // 2
        self.vacuous = self.vacuous + 1 if hasty else 0
        pause = min(5 << self.vacuous, 1000) if self.vacuous > 1 else 0
        self.not_before_ms = now_ms + pause


def heartbeat_ms(policy: Policy) -> int:
    """The longest time between two requests: the policy's heartbeat, and never more than half a lease."""
    return max(min(policy.heartbeat_ms, policy.lease_ms // 2), 1)


def beat_ms(policy: Policy) -> int:
    """The time between two signs of life to the supervisor: a few a heartbeat, so that the supervisor ends what a hung
    agent runs within the heartbeat that the dispatcher waits beyond a lease."""
    return max(min(BEAT_MOST_MS, heartbeat_ms(policy) // 4), 50)


@dataclass(frozen=True)
class Tempo:
    """What a policy means for the rhythm, worked out once a policy.

    `idle_wait_ms`, `wait_ms`: how long a request may wait at the dispatcher, without claims and with some. An answer
    renews from when its request was sent, so with claims held two waits must fit in a lease, less what killing takes.
    `answer_ms`: what the dispatcher may take beyond that.
    """

    lease_ms: int
    heartbeat_ms: int
    idle_wait_ms: int
    wait_ms: int
    answer_ms: int


def tempo(policy: Policy) -> Tempo:
    return Tempo(
        policy.lease_ms,
        heartbeat_ms(policy),
        policy.poll_ms,
        max(min(policy.poll_ms, policy.lease_ms // 4), 1),
        min(ANSWER_MS, max(policy.lease_ms // 3, 1)),
    )
