"""The sync of an agent: the hot path. Owns the order of its steps and when an answer is held back; knows no HTTP.

Results and running set go to the store first, what the agent says of itself to the fleet second, and the directive is
read last, so that it takes both into account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from cloud_dispatch.api.http import ClientGone
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.policy import bare, policy_for
from cloud_dispatch.api.poll import Poll, Polls, Wake
from cloud_dispatch.api.services import Services, Terms
from cloud_dispatch.api.sessions import Session, Sessions
from cloud_dispatch.api.timer import Words
from cloud_dispatch.api.translate import MOST_CLAIMS, SyncIn, TimerIn, held_of, reply_to, results_of
from cloud_dispatch.domain.errors import InvalidInput, NotFound, StoreUnavailable
from cloud_dispatch.domain.ids import FencingToken, InstanceId
from cloud_dispatch.ports.fleet import Directive, Ended, Heard
from cloud_dispatch.ports.store import ClaimResult, SyncCall, SyncDone
from cloud_dispatch.spend import grant
from cloud_dispatch.wire.messages import Policy, Program

#: What an agent's state may be for it to be handed work.
_TAKES_WORK = frozenset({"idle", "busy"})
_STATES = _TAKES_WORK | {"draining", "drained", "failed"}
_NOTHING = SyncDone()
_NO_NEWS = Directive()
#: A member of an enum is found through its metaclass, ten times as slowly as a name.
_WORK, _NEWS, _EXPIRED = Wake.WORK, Wake.NEWS, Wake.EXPIRED
#: An agent whose results can't be stored now is answered after this long, so that it does not send them in a circle.
_FULL_PAUSE_S = 1.0

log = structlog.get_logger("cloud_dispatch.api")
#: Has what it is given called when the client has closed its connection, at once where it has; returns what takes that
#: back.
Departure = Callable[[Callable[[], object]], Callable[[], object]]


class SyncService:
    """Answers syncs; one for the whole dispatcher."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._fleet = services.fleet
        self._logs: LogStore = services.logs
        self._terms = services.terms
        #: What answers renew claims for.
        self.lease_ms = services.terms().policy.lease_ms
        self._poll_ms = services.terms().policy.poll_ms
        self._words = Words(services.tokens)
        self._sign = services.tokens.task
        self.polls = Polls(services.store)
        self.sessions = Sessions(services.store.instances)
        self._closing = False
        services.fleet.on_directive(self._directive_changed)

    async def answer(self, instance: InstanceId, request: SyncIn, departure: Departure, token: str = "") -> bytes:
        """The encoded reply to `request` of `instance`, as soon as there is something to say or its wait is over, with
        the next service token where there is one.

        ClientGone when the client left meanwhile; DispatchError as the store and the fleet raise them.
        """
        if request.state not in _STATES:
            known = ", ".join(sorted(_STATES))
            raise InvalidInput(f"{request.state[:40]!r} is no state", place="state", hint=f"one of: {known}")
        if request.timer is not None and not (request.timer.step_ms and request.timer.links):  # left out
            raise InvalidInput("a timer asks with its step_ms and links", place="timer", hint="the user data say them")
        results = results_of(request) if request.results else ()
        session = self.sessions.accept(instance, request.incarnation, request.seq)
        if session is None:
            return self._abandoned(request)
        claiming = self._fleet.directive(instance).claiming and not request.ending and request.state in _TAKES_WORK
        seen = self.polls.arrivals
        try:
            done = await self._store.sync(_call(session, instance, request, results, claiming=claiming))
        except NotFound:
            await self._store.instance(instance)  # NotFound: another store's, whose agent waits to be adopted
            done = _NOTHING  # one that is gone: the fleet's directive says what becomes of it
        except StoreUnavailable as error:
            return await self._renewal_only(request, instance, error, token)
        for result in results:
            self._logs.notify(result.task)
        ended = session.ended(results) if results else ()
        answered = request.heard >= 0 and session.heeds(request)
        news = self._hear(instance, request, claimed=bool(done.claims), ended=ended, answered=answered)
        if news is not None:
            await self._written(news, request)
        program = self._program(session, request)
        terms = self._terms()
        policy = None if self._knows(session, request, instance, terms) else self._policy(session, instance, terms)
        directive = self._fleet.directive(instance)
        said = bool(request.program) or request.heard >= 0  # else it may know: it is told by and by, and waits for work
        news_of_ours = policy is not None or (program is not None and said)
        waits = request.wait_ms > 0 and not results and not news_of_ours and session.hears(request)
        if waits and not self._has_news(request, done, directive, session):
            done = await self._hold(session, instance, request, seen, departure, claiming=claiming)
            directive = self._fleet.directive(instance)
        session.hold = directive.hold
        timer = "" if request.timer is None else self._word(instance, request.timer, directive)
        orders = session.took(done.claims, instance, self._sign) if done.claims else []
        return reply_to(
            request, done, directive, orders,
            lease_ms=self.lease_ms, policy=policy, timer=timer, token=token, program=program,
        )  # fmt: skip

    def close(self) -> None:
        """Answer every held sync now and hold none from here on."""
        self._closing = True
        self.polls.close()

    # -- steps
    def _hear(
        self,
        instance: InstanceId,
        request: SyncIn,
        *,
        claimed: bool,
        ended: tuple[Ended, ...] = (),
        answered: bool = False,
    ) -> Awaitable[None] | None:
        """Tell the fleet what the agent says of itself; what to wait for, if anything has to be written. An agent that
        just got work does not mean to end any more."""
        said = Heard(
            instance,
            request.incarnation,
            request.state,
            request.drain_token,
            request.ask_end and not claimed,
            _text(request.ending, 256),
            _text(request.detail, 4096),
            ended,
            answered,
        )
        try:
            return self._fleet.heard(said)
        except NotFound:
            return None

    async def _written(self, news: Awaitable[None], request: SyncIn) -> None:
        try:
            await news
        except NotFound:
            return
        except StoreUnavailable:
            if request.ending:  # its last word must not be lost
                raise
            log.debug("api.heard-not-stored", incarnation=request.incarnation, state=request.state)

    def _program(self, session: Session, request: SyncIn) -> Program | None:
        """The agent that this dispatcher has, for one that says that it is another, or that another dispatcher may have
        started. One of before, which does not say what it heard, is told in every answer: the first may be lost."""
        ours = self._services.agent.sha256
        other = ours != request.program and (bool(request.program) or request.heard < 0 or not session.heeds(request))
        return Program(ours) if ours and other else None

    def _policy(self, session: Session, instance: InstanceId, terms: Terms) -> Policy | None:
        """The policy for an agent that has not heard it of this process: the configuration may be another one now."""
        row = self._store.living(instance)
        session.tell(terms, bare=row is not None and bare(row))
        return None if row is None else policy_for(row, terms)

    def _knows(self, session: Session, request: SyncIn, instance: InstanceId, terms: Terms) -> bool:
        """Whether the agent has its policy by these terms, and by what is known now of its machine."""
        if session.terms is not terms or not session.heeds(request):
            return False
        row = self._store.living(instance) if session.bare else None
        return row is None or bare(row)

    def _has_news(self, request: SyncIn, done: SyncDone, directive: Directive, session: Session) -> bool:
        return bool(
            done.claims
            or done.kill
            or done.settled
            or directive.end
            or directive.drain_token > request.drain_token
            or directive.hold != session.hold
            or request.ending
            or self._closing
        )

    async def _hold(
        self,
        session: Session,
        instance: InstanceId,
        request: SyncIn,
        seen: int,
        departure: Departure,
        *,
        claiming: bool,
    ) -> SyncDone:
        """Wait for work, news, the end of the wait, a newer sync or the client's leaving; what the store did then."""
        hungry = claiming and request.want > 0
        poll = self._hungry(session, instance, request) if hungry else Poll(instance, None, 0, 0)
        wait_ms = min(request.wait_ms, self._poll_ms)
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, poll.wake, _EXPIRED)
        stay = departure(poll.leave)
        session.poll = poll
        self.polls.add(poll)
        if hungry and self.polls.arrivals != seen:
            poll.wake(_WORK)
        try:
            while True:
                wake = await poll.woken()
                if poll.left:
                    raise ClientGone
                if wake is not _WORK and wake is not _NEWS:
                    return _NOTHING
                done = await self._again(session, poll, request, working=wake is _WORK)
                if done is not None:
                    return done
        finally:
            timer.cancel()
            stay()
            self.polls.remove(poll)
            if session.poll is poll:
                session.poll = None

    def _hungry(self, session: Session, instance: InstanceId, request: SyncIn) -> Poll:
        """A poll that wants work."""
        row = self._store.living(instance)
        machine = None if row is None else row.machine
        return Poll(instance, machine, _bounded(request.want), _bounded(request.ahead), failing=session.failing)

    async def _again(self, session: Session, poll: Poll, request: SyncIn, *, working: bool) -> SyncDone | None:
        """Ask the store once more, as a held sync was woken; None when it was in vain and the poll waits on."""
        claiming = working and self._fleet.directive(poll.instance).claiming
        try:
            done = await self._store.sync(_call(session, poll.instance, request, (), claiming=claiming))
        except (NotFound, StoreUnavailable):
            return _NOTHING  # the agent's next sync learns what is wrong
        if done.claims or done.kill or not working:
            poll.offered = max(poll.offered - len(done.claims), 0)
            return done
        self.polls.looked(poll, 0)
        self.polls.add(poll)
        return None

    async def _renewal_only(self, request: SyncIn, instance: InstanceId, error: StoreUnavailable, token: str) -> bytes:
        """The answer while the store can't commit: nothing is settled or handed out, but what the instance holds is
        renewed from memory, so that a full disk costs no running task."""
        log.debug("api.sync-not-stored", instance=instance, error=str(error))
        if request.ending:
            raise error
        news = self._hear(instance, request, claimed=True)
        if news is not None:
            await self._written(news, request)
        await asyncio.sleep(_FULL_PAUSE_S)
        current = frozenset(self._store.leases_of(instance).values())
        kill = tuple(FencingToken(c.token) for c in request.held if c.token not in current)
        directive = self._fleet.directive(instance)
        timer = "" if request.timer is None else self._word(instance, request.timer, directive)
        return reply_to(request, SyncDone(kill=kill), directive, [], lease_ms=self.lease_ms, timer=timer, token=token)

    def _word(self, instance: InstanceId, ask: TimerIn, directive: Directive) -> str:
        """What lets the VM's timer run on, by the row that is committed; "" for one that shall end, as all do where an
        operator has said so."""
        row = self._store.living(instance)
        if row is None or directive.end or self._fleet.stopped().terminates:
            return ""
        terms = grant.Terms(ask.step_ms, ask.links)
        now, lease_ms = self._services.clock.now(), self._services.timer_lease_ms
        count = grant.words(row, terms, ask.age_ms, now, lease_ms)
        return self._words.word(row.batch, terms, count) if count else ""

    def _abandoned(self, request: SyncIn) -> bytes:
        """The empty answer to a sync that is out of date: its agent does not listen any more."""
        return reply_to(request, _NOTHING, _NO_NEWS, [], lease_ms=self.lease_ms)

    def _directive_changed(self, instance: InstanceId) -> None:
        session = self.sessions.get(instance)
        if session is not None and session.poll is not None:
            session.poll.wake(_NEWS)


def _call(
    session: Session, instance: InstanceId, request: SyncIn, results: tuple[ClaimResult, ...], *, claiming: bool
) -> SyncCall:
    """The next call of `session` to the store. It is made anew when a held sync is woken: few are, and a fleet of held
    syncs keeps nothing for it."""
    want, ahead = _bounded(request.want), _bounded(request.ahead)
    return SyncCall(instance, session.next_order(), held_of(request), results, want, ahead, claiming)


def _text(said: str, most: int) -> str:
    """`said` as every statestore can hold it."""
    return said[:most].replace("\0", "") if said else said


def _bounded(claims: int) -> int:
    return claims if 0 <= claims <= MOST_CLAIMS else min(max(claims, 0), MOST_CLAIMS)
