"""The one conversation with the dispatcher. Owns which request is out, when the next is due, and what it carries.

It never uses the answer to a request that it abandoned: claims in such an answer were never held here, and the next
running set tells the dispatcher so. Decides nothing about tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, List, Optional  # noqa: UP035

from cloud_dispatch.agent.claims import Claims
from cloud_dispatch.agent.pace import (
    GATHER_MS,
    START_MS,
    TINY_MS,
    Outstanding,
    Pace,
    Tempo,
    Word,
)
from cloud_dispatch.agent.timer import Renewal
from cloud_dispatch.wire.messages import Result, SyncRequest, weight

#: Most results in one request; the rest follow in the next.
MOST_RESULTS = 256
#: Most that their manifests weigh together, one that weighs more left aside: the dispatcher takes no longer request.
MOST_WEIGHT = 8 << 20
#: With tasks longer than this a request may wait at the dispatcher even when no work is wanted, so that a cancel
#: arrives at once. Shorter ones end before it would, and each end would cost a connection.
LONG_MS = 1_000
#: A dispatcher that answers so many waiting requests at once does not hold them: then only heartbeats are sent.
_DEAF = 3


@dataclass
class Standing:
    """What the agent has to say of itself now. `want` includes `ahead`; `polls`: it has room that it wants filled."""

    state: str
    drain_token: int = 0
    want: int = 0
    ahead: int = 0
    polls: bool = False
    ask_end: bool = False
    ending: str = ""
    detail: str = ""

    @property
    def word(self) -> Word:
        """What the dispatcher must hear at once when it changes; idle and busy follow from the running set."""
        notable = self.state if self.state in ("draining", "drained", "failed") else ""
        return notable, self.drain_token, self.ask_end, self.ending


@dataclass
class Courier:
    """State of the conversation. Callers pass the claims and the policy's tempo, which it only reads."""

    incarnation: str
    renewal: Optional[Renewal] = None  # of the guest timer, where there is one
    program: str = ""  # the sha256 of this very program, told with the first word
    pace: Pace = field(default_factory=Pace)
    outstanding: Optional[Outstanding] = None
    seq: int = 0
    sent_ms: Optional[int] = None
    unsent_ms: Optional[int] = None  # since when a result waits that no request carried
    ended_ms: Dict[int, int] = field(default_factory=dict)  # by token, when that had ended whose result is not settled
    said: Optional[Word] = None
    heard: int = 0  # the request whose answer was the last to be used by this program
    patient_from_ms: int = 0  # a patient request before then would only be abandoned for the news of a start

    def starts(self, now_ms: int) -> None:
        """A claim is being started. Unless tasks are tiny, what waits for work or news waits for that start to be told:
        one request for both, instead of one that is abandoned (and its connection closed) for the other."""
        median = self.pace.median_ms
        if median is None or median >= TINY_MS:
            self.patient_from_ms = now_ms + START_MS

    def result_came(self, token: int, ended_ms: int, now_ms: int) -> None:
        self.ended_ms[token] = ended_ms
        if self.unsent_ms is None:
            self.unsent_ms = now_ms

    def settled(self, token: int) -> None:
        self.ended_ms.pop(token, None)

    def answered(self, seq: int, brought: bool, now_ms: int) -> Optional[Outstanding]:
        """The request that an answer is for, or None if that is not the newest: then the answer must not be used.
        `brought`: it says something new."""
        sent = self.outstanding
        if sent is None or sent.seq != seq:
            return None
        self.outstanding = None
        self.heard = seq
        self.pace.answered(now_ms, sent, brought)
        return sent

    def failed(self, seq: int, fraction: float, tempo: Tempo, now_ms: int) -> None:
        """No usable answer: everything that it carried is news again, after a pause."""
        sent = self.outstanding
        if sent is None or sent.seq != seq:
            return
        self.outstanding = None
        self.said = None
        self._lose_ask(sent)
        if sent.results:
            self.unsent_ms = now_ms
        self.pace.failed(now_ms, fraction, tempo.lease_ms)

    @property
    def awaits(self) -> bool:
        """Whether the outstanding request must be answered, or fail, before the next one."""
        return self.outstanding is not None and not self.outstanding.patient

    def due_ms(self, standing: Standing, claims: Claims, tempo: Tempo, now_ms: int) -> Optional[int]:
        """When the next request is due, an outstanding patient one abandoned; None if an answer comes before. In the
        past or present means now. Not to be asked while the outstanding one `awaits` its answer."""
        due = self._news_ms(standing, claims, now_ms)
        if due is None or due > now_ms:  # otherwise nothing makes it due sooner
            if self.outstanding is None:
                due = _earliest(due, self._next_ms(standing, claims, tempo, now_ms))
            elif standing.polls and not self.outstanding.want:
                due = now_ms
            elif due is None:
                return None
        return max(due, self.pace.not_before_ms)

    def _next_ms(self, standing: Standing, claims: Claims, tempo: Tempo, now_ms: int) -> int:
        """When a request is due without any news, as none is on its way."""
        if self.sent_ms is None:
            due = now_ms
        elif standing.polls or self._listens(standing, claims, tempo):
            due = max(now_ms, self.patient_from_ms) if claims.untold else now_ms
        else:
            due = self.sent_ms + tempo.heartbeat_ms
        return due if self.pace.retry_ms is None else min(due, self.pace.retry_ms)

    def _news_ms(self, standing: Standing, claims: Claims, now_ms: int) -> Optional[int]:
        due: Optional[int] = None
        if standing.word != self.said:
            return now_ms
        if self.renewal is not None and not standing.ending:
            due = self.renewal.must_ms
        if self.unsent_ms is not None:
            more = bool(claims.waiting) and bool(claims.running)
            due = _earliest(due, self.unsent_ms + (GATHER_MS if more else 0))
        for attempt in claims.untold.values():
            if attempt.started_ms is not None:
                due = _earliest(due, attempt.started_ms + START_MS)
        return due

    def compose(self, standing: Standing, claims: Claims, tempo: Tempo, now_ms: int) -> SyncRequest:
        """The next request; it is the outstanding one from here on."""
        self.seq += 1
        results = self._results(claims, now_ms) if claims.results else []
        wait_ms = self._wait_ms(standing, claims, tempo)
        if self.outstanding is not None:
            self._lose_ask(self.outstanding)
        renewal, ask = self.renewal, None
        if renewal is not None and not standing.ending and now_ms >= renewal.asks_from_ms:
            wait_ms = 0 if now_ms >= renewal.must_ms else wait_ms
            ask = renewal.ask(now_ms)
        request = SyncRequest(
            self.incarnation, self.seq, standing.state, claims.held(now_ms), results, standing.want, standing.ahead,
            wait_ms, standing.drain_token, standing.ask_end, standing.ending, standing.detail, timer=ask,
            program="" if self.heard else self.program, heard=self.heard,
        )  # fmt: skip
        claims.starts_told()
        self.said = word = standing.word
        self.outstanding = Outstanding(
            self.seq, now_ms, wait_ms, standing.want, wait_ms > 0 and not results, word, standing.ending,
            len(results), now_ms + wait_ms + tempo.answer_ms, ask is not None,
        )  # fmt: skip
        self.sent_ms = now_ms
        self.unsent_ms = now_ms if len(claims.results) > len(results) else None
        return request

    def _results(self, claims: Claims, now_ms: int) -> List[Result]:
        """Those that the next request carries, each with how long ago it came about."""
        fitting = _fitting(list(claims.results.values())[:MOST_RESULTS])
        return [replace(result, ago_ms=max(now_ms - self.ended_ms[result.token], 0)) for result in fitting]

    def _lose_ask(self, sent: Outstanding) -> None:
        if sent.asks and self.renewal is not None:
            self.renewal.lost()

    def _listens(self, standing: Standing, claims: Claims, tempo: Tempo) -> bool:
        """Whether a request may wait at the dispatcher for news, with no work wanted."""
        return self.pace.vacuous < _DEAF and self._wait_ms(standing, claims, tempo) > 0

    def _wait_ms(self, standing: Standing, claims: Claims, tempo: Tempo) -> int:
        if standing.ending:
            return 0
        if not claims.holds:
            return tempo.idle_wait_ms
        if standing.polls:
            return tempo.wait_ms
        median = self.pace.median_ms
        return tempo.heartbeat_ms if not claims.waiting and (median is None or median >= LONG_MS) else 0


def _fitting(results: List[Result]) -> List[Result]:
    """The first of `results` that fit into a request; one at least."""
    left = MOST_WEIGHT
    for number, result in enumerate(results):
        if result.outputs:
            left -= sum(weight(file.path, file.url) for file in result.outputs)
            if left < 0:
                return results[: max(number, 1)]
    return results


def _earliest(one: Optional[int], other: int) -> int:
    return other if one is None or other < one else one
