"""When the agent ends. Owns its limits in time, tasks and want of work, and the bounded wait of its last words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from cloud_dispatch.wire.messages import Policy

#: Later than any moment that is waited for.
NEVER_MS = 1 << 62
#: The last message is tried for so long once nothing lives any more; then the VM ends without it.
LAST_WORDS_MS = 10_000


@dataclass(frozen=True)
class Reason:
    """Why to end: the `word` told to the dispatcher, the `cause` that running attempts end with, and what failed."""

    word: str
    cause: str = "instance-lost"
    failure: str = ""


@dataclass
class Ending:
    """An end that has begun and is not taken back. Nothing waits past `deadline_ms`."""

    word: str
    failure: str
    deadline_ms: int
    told: bool = False  # the dispatcher has heard the last message and settled every result
    quiet: bool = False  # nothing lives any more, or the rest can't be killed: the last message may go

    def settle(self, quiet: bool, now_ms: int) -> None:
        """Note that nothing is left to wait for but the dispatcher."""
        if quiet and not self.quiet:
            self.quiet = True
            self.deadline_ms = now_ms + LAST_WORDS_MS

    def over(self, now_ms: int) -> bool:
        return (self.quiet and self.told) or now_ms >= self.deadline_ms


@dataclass
class Life:
    """What the limits are counted from."""

    born_ms: int = 0
    heard_ms: int = 0
    idle_since_ms: int = 0
    empty_claims: int = 0
    taken: int = 0  # claims that were given to the shell
    taken_ms: Optional[int] = None  # when the provider takes the VM back, as it has said
    advised: bool = False  # the provider has said that it may well take the VM back
    full: str = ""  # the VM's disk has no room for others, and for what
    confirmed_ms: Optional[int] = None  # when the dispatcher heard that the present drain is complete
    timer_leave_ms: int = NEVER_MS  # when to go because the guest timer is about to end the VM

    def due_end(self, policy: Policy, holds: bool, condemned: str, now_ms: int) -> Optional[Reason]:
        """The reason to end now, asked or not."""
        if condemned:
            return Reason("health", failure=condemned)
        if policy.lifetime_ms and now_ms >= self.born_ms + policy.lifetime_ms:
            return Reason("lifetime", "preempted")
        if now_ms >= self.timer_leave_ms:
            return Reason("timer", "preempted")
        if self.taken_ms is not None and (not holds or now_ms >= self.leave_ms(policy)):
            return Reason("preempted", "preempted")
        if self.advised and not holds:
            return Reason("advised")
        if self.full and not holds:
            return Reason("health", failure=self.full)
        if policy.silence_ms and now_ms >= self.heard_ms + policy.silence_ms:
            return Reason("silence")
        if not holds and policy.max_tasks and self.taken >= policy.max_tasks:
            return Reason("max-tasks")
        if not holds and self.confirmed_ms is not None and now_ms >= self.confirmed_ms + policy.heartbeat_ms:
            return Reason("drained")
        return None

    def asks(self, policy: Policy, now_ms: int) -> str:
        """For an idle agent: why it asks the dispatcher whether it may end, or "". It only goes when told to."""
        if policy.idle_ms and now_ms >= self.idle_since_ms + policy.idle_ms:
            return "idle"
        if policy.empty_claims and self.empty_claims >= policy.empty_claims:
            return "empty-claims"
        return ""

    def next_ms(self, policy: Policy, now_ms: int) -> int:
        """The next moment after `now_ms` at which time alone may change any of the answers above."""
        following = self.timer_leave_ms if now_ms < self.timer_leave_ms else NEVER_MS
        if policy.lifetime_ms and now_ms < self.born_ms + policy.lifetime_ms < following:
            following = self.born_ms + policy.lifetime_ms
        if policy.silence_ms and now_ms < self.heard_ms + policy.silence_ms < following:
            following = self.heard_ms + policy.silence_ms
        if policy.idle_ms and now_ms < self.idle_since_ms + policy.idle_ms < following:
            following = self.idle_since_ms + policy.idle_ms
        if self.taken_ms is not None and now_ms < self.leave_ms(policy) < following:
            following = self.leave_ms(policy)
        if self.confirmed_ms is not None and now_ms < self.confirmed_ms + policy.heartbeat_ms < following:
            following = self.confirmed_ms + policy.heartbeat_ms
        return following

    def leave_ms(self, policy: Policy) -> int:
        """When to end what runs, so that it has its grace and the dispatcher hears of it before the VM is taken."""
        return (self.taken_ms or 0) - policy.kill_grace_ms - LAST_WORDS_MS
