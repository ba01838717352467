"""The guest timer: until when this VM may live. Owns what counts as the dispatcher's word and when to ask for the next.

The supervisor holds one and ends the VM by it. The agent holds another, which only knows when to ask: it carries the
dispatcher's words, and can neither make one nor keep the supervisor from its clock. Pure: no I/O and no clock.
"""

from __future__ import annotations

from typing import Optional

from cloud_dispatch.agent.ending import LAST_WORDS_MS
from cloud_dispatch.wire.messages import Policy, TimerAsk
from cloud_dispatch.wire.timer import MOST_LINKS, TimerPlan, forward, read_link, read_word


class GuestTimer:
    """The timer of `plan`, whose first `words` are known to have been heard (by whoever had the timer before)."""

    def __init__(self, plan: TimerPlan, words: int = 0) -> None:
        """ValueError for a plan whose anchor is none."""
        anchor = read_link(plan.anchor)
        if anchor is None:
            raise ValueError("timer.anchor %r is not a sha256 in hex" % plan.anchor[:80])
        self.plan = plan
        self.words = max(words, 0)
        self._proved, self._link = 0, anchor

    def hear(self, text: str) -> bool:
        """Whether `text` is the dispatcher's word, and says more than was known; then the timer runs on by it."""
        word = read_word(text)
        if word is None or not self.words < word[0] <= min(self.plan.links, MOST_LINKS):
            return False
        count, link = word
        if forward(link, count - self._proved) != self._link:
            return False
        self.words = self._proved = count
        self._link = link
        return True

    @property
    def granted_ms(self) -> int:
        """Until which age the VM may live by the words that were heard, whatever any wall clock says."""
        return self.words * self.plan.step_ms

    def left_ms(self, age_ms: int, wall_left_ms: int) -> int:
        """How much time the VM has at `age_ms`, `wall_left_ms` before its first hard end by its wall clock. What the
        launch gave is bounded by that end: a boot may come late."""
        return max(min(self.plan.first_ms - age_ms, wall_left_ms), self.granted_ms - age_ms)


class Renewal:
    """When the agent asks for the next word. `until_ms`: when the timer ends, by the clock of the events.

    `asks_from_ms`: from when on a request that goes out shall ask, which is while less than half a lease is left, and
    not with every request: a sixteenth of a lease later again, or, where a hard end that is near lets less be granted,
    a quarter of what was left. `must_ms`: when a request has to go out, and be answered at once, because none has
    brought a word in time. Both are looked at with every event, and move with few.
    """

    def __init__(self, timer: GuestTimer) -> None:
        self.timer = timer
        self.born_ms = self.until_ms = 0
        self.asked_ms: Optional[int] = None  # when the last request went out that asks and was not lost
        self._lease_ms = max(timer.plan.lease_ms, 16)
        self._move()

    def _move(self) -> None:
        again_ms = 0
        if self.asked_ms is not None:
            left_ms = max(self.until_ms - self.asked_ms, self._lease_ms // 64)
            again_ms = self.asked_ms + min(self._lease_ms // 16, left_ms // 4)
        self.asks_from_ms = max(self.until_ms - self._lease_ms // 2 + 1, again_ms)
        self.must_ms = max(self.until_ms - self._lease_ms // 4, again_ms)

    def begin(self, now_ms: int, age_ms: int, wall_left_ms: int) -> None:
        """The VM was born `age_ms` ago and by its wall clock its first hard end comes in `wall_left_ms`."""
        self.born_ms = now_ms - age_ms
        self.until_ms = now_ms + self.timer.left_ms(age_ms, wall_left_ms)
        self._move()

    def heard(self, word: str) -> bool:
        """Whether `word` is one, and news."""
        news = self.timer.hear(word)
        if news:
            self.until_ms = max(self.until_ms, self.born_ms + self.timer.granted_ms)
            self._move()
        return news

    def leave_ms(self, policy: Policy) -> int:
        """When to end what runs, so that it has its grace and the dispatcher hears of it before the timer ends."""
        return self.until_ms - min(policy.kill_grace_ms + LAST_WORDS_MS, self._lease_ms // 8)

    def ask(self, now_ms: int) -> TimerAsk:
        """What goes with the request that is sent now."""
        self.asked_ms = now_ms
        self._move()
        plan = self.timer.plan
        return TimerAsk(now_ms - self.born_ms, plan.step_ms, plan.links)

    def lost(self) -> None:
        """The request that asked is not answered, or its answer is not used."""
        self.asked_ms = None
        self._move()
