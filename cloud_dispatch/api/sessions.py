"""Which sync of an instance is its newest. Owns the volatile state of every agent's conversation; knows no HTTP.

An agent process is an incarnation; within one, `seq` rises. A new incarnation supersedes the one before for good, and a
newer sync the one that still waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence

from cloud_dispatch.api.kinds import kind_of
from cloud_dispatch.api.poll import Poll, Wake
from cloud_dispatch.api.services import Terms
from cloud_dispatch.api.translate import MOST_CLAIMS, OrderOut, Sign, SyncIn, orders_of
from cloud_dispatch.domain.ids import FencingToken, InstanceId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Ended
from cloud_dispatch.ports.store import Claimed, ClaimResult

_SUCCESS, _CANCELLED = Cause.SUCCESS, Cause.CANCELLED
_RETIRED = 16
_FIRST_SWEEP = 4096
_MOST_KINDS = 2 * MOST_CLAIMS


class Session:
    """The conversation with one instance. `order` counts its calls to the store. `hold`: whether it was last told to
    hold. `terms`: those of which it was given its policy, None while it was given none of this process, `told` by the
    answer to which sync first; `bare`: that was made before anybody knew what its machine has. `failing`: all attempts
    failed that it brought last."""

    __slots__ = ("bare", "failing", "hold", "incarnation", "kinds", "order", "poll", "retired", "seq", "terms", "told")

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.seq = -1
        self.order = 0
        self.hold = False
        self.failing = False
        self.terms: Terms | None = None
        self.bare = False
        self.told = 0
        self.poll: Poll | None = None
        self.retired: deque[str] = deque(maxlen=_RETIRED)
        self.kinds: dict[FencingToken, str] = {}  # of the claims that it was handed by this process

    def took(self, claims: Sequence[Claimed], instance: InstanceId, sign: Sign) -> list[OrderOut]:
        """The orders for `claims`, which it is just being handed."""
        for claim in claims:
            self.kinds[claim.token] = kind_of(claim.spec)
        while len(self.kinds) > _MOST_KINDS:  # the oldest: nobody brings a result for them any more
            del self.kinds[next(iter(self.kinds))]
        return orders_of(claims, instance, sign)

    def ended(self, results: Sequence[ClaimResult]) -> tuple[Ended, ...]:
        """Of `results`, those of claims that ended."""
        kinds = [self.kinds.pop(result.token, "") for result in results]
        ended = tuple(
            [
                Ended(result.task, result.outcome.cause, kind)
                for result, kind in zip(results, kinds, strict=True)
                if result.outcome is not None
            ]
        )
        by_themselves = [one.cause for one in ended if one.cause is not _CANCELLED]
        if by_themselves:
            self.failing = _SUCCESS not in by_themselves
        return ended

    def next_order(self) -> int:
        self.order += 1
        return self.order

    def switch(self, incarnation: str) -> None:
        """From now on `incarnation` speaks for the instance, and the one before never again."""
        if incarnation == self.incarnation:
            return
        self.retired.append(self.incarnation)
        self.incarnation, self.seq = incarnation, -1
        self.hold, self.terms = False, None
        self.supersede()

    def tell(self, terms: Terms, *, bare: bool) -> None:
        """It is just being given its policy: for the first time, or again as that answer may be lost."""
        if self.terms is not terms or self.bare != bare:
            self.terms, self.bare, self.told = terms, bare, max(self.seq, 0)

    def heeds(self, request: SyncIn) -> bool:
        """Whether the agent has the policy that it was given last: it has used the answer that brought it first, or a
        later one, which all bring it until then. One of before does not say what it used."""
        return self.terms is not None and (request.heard < 0 or request.heard >= self.told)

    def hears(self, request: SyncIn) -> bool:
        """Whether `request` is still the newest sync."""
        return self.seq == request.seq and self.incarnation == request.incarnation

    def supersede(self) -> None:
        """End the poll that still waits: it may claim nothing any more."""
        if self.poll is not None:
            self.poll.wake(Wake.SUPERSEDED)
            self.poll = None


class Sessions:
    """All conversations. Those of instances that do not live any more are swept when there are many."""

    def __init__(self, living: Callable[[], Container[InstanceId]]) -> None:
        self._living = living
        self._sessions: dict[InstanceId, Session] = {}
        self._sweep_at = _FIRST_SWEEP

    def get(self, instance: InstanceId) -> Session | None:
        return self._sessions.get(instance)

    def registered(self, instance: InstanceId, incarnation: str, terms: Terms, *, bare: bool) -> None:
        """`incarnation` of `instance` is just being given its policy, by these terms."""
        session = self._open(instance, incarnation)
        if incarnation in session.retired:
            session.retired.remove(incarnation)
        session.switch(incarnation)
        session.tell(terms, bare=bare)

    def accept(self, instance: InstanceId, incarnation: str, seq: int) -> Session | None:
        """The session in which this sync is the newest, its predecessor superseded; None for a sync that is itself out
        of date and must change nothing."""
        session = self._open(instance, incarnation)
        if incarnation != session.incarnation:
            if incarnation in session.retired:
                return None
            session.switch(incarnation)
        elif seq <= session.seq:
            return None
        session.seq = seq
        if session.poll is not None:
            session.supersede()
        return session

    def _open(self, instance: InstanceId, incarnation: str) -> Session:
        session = self._sessions.get(instance)
        if session is None:
            if len(self._sessions) >= self._sweep_at:
                self._sweep()
            session = self._sessions[instance] = Session(incarnation)
        return session

    def _sweep(self) -> None:
        living = self._living()
        self._sessions = {name: session for name, session in self._sessions.items() if name in living}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._sessions))
