"""The sync of an agent: the hot path. Owns the order of its steps and when an answer is held back; knows no HTTP.

Results and running set go to the store first, what the agent says of itself to the fleet second, and the directive is
read last, so that it takes both into account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog
from msgspec.structs import replace

from cloud_dispatch.api.http import ClientGone
from cloud_dispatch.api.logs import LogStore
from cloud_dispatch.api.policy import policy_for
from cloud_dispatch.api.poll import Poll, Polls, Wake
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.sessions import Session, Sessions
from cloud_dispatch.api.translate import MOST_CLAIMS, ReplyOut, SyncIn, held_of, reply_to, results_of
from cloud_dispatch.domain.errors import InvalidInput, NotFound, StoreUnavailable
from cloud_dispatch.domain.ids import FencingToken, InstanceId
from cloud_dispatch.domain.task import Cause
from cloud_dispatch.ports.fleet import Directive, Heard
from cloud_dispatch.ports.store import ClaimResult, SyncCall, SyncDone
from cloud_dispatch.wire.messages import Policy

#: What an agent's state may be for it to be handed work.
_TAKES_WORK = frozenset({"idle", "busy"})
_STATES = _TAKES_WORK | {"draining", "drained", "failed"}
_NOTHING = SyncDone()
_NO_NEWS = Directive()
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
        self._lease_ms = services.policy.lease_ms
        self.polls = Polls(services.store)
        self.sessions = Sessions(services.store.instances)
        self._closing = False
        services.fleet.on_directive(self._directive_changed)

    async def answer(self, instance: InstanceId, request: SyncIn, departure: Departure) -> ReplyOut:
        """The reply to `request` of `instance`, as soon as there is something to say or its wait is over.

        ClientGone when the client left meanwhile; DispatchError as the store and the fleet raise them.
        """
        if request.state not in _STATES:
            known = ", ".join(sorted(_STATES))
            raise InvalidInput(f"{request.state[:40]!r} is no state", place="state", hint=f"one of: {known}")
        held, results = held_of(request), results_of(request)
        session = self.sessions.accept(instance, request.incarnation, request.seq)
        if session is None:
            return self._abandoned(request)
        directive = self._fleet.directive(instance)
        claiming = directive.claiming and not request.ending and request.state in _TAKES_WORK
        call = SyncCall(
            instance,
            session.next_order(),
            held,
            results,
            min(max(request.want, 0), MOST_CLAIMS),
            min(max(request.ahead, 0), MOST_CLAIMS),
            claiming,
        )
        seen = self.polls.arrivals
        try:
            done = await self._store.sync(call)
        except NotFound:
            await self._store.instance(instance)  # NotFound: another store's, whose agent waits to be adopted
            done = _NOTHING  # one that is gone: the fleet's directive says what becomes of it
        except StoreUnavailable as error:
            return await self._renewal_only(request, instance, error)
        for result in results:
            self._logs.notify(result.task)
        news = self._hear(instance, request, claimed=bool(done.claims), results=results)
        if news is not None:
            await self._written(news, request)
        policy = None if session.informed else self._policy(session, instance)
        directive = self._fleet.directive(instance)
        waits = request.wait_ms > 0 and not results and policy is None and session.hears(request)
        if waits and not self._has_news(request, done, directive, session):
            done = await self._hold(session, request, call, seen, departure)
            directive = self._fleet.directive(instance)
        session.hold = directive.hold
        return reply_to(request, done, directive, lease_ms=self._lease_ms, policy=policy)

    def close(self) -> None:
        """Answer every held sync now and hold none from here on."""
        self._closing = True
        self.polls.close()

    # -- steps
    def _hear(
        self, instance: InstanceId, request: SyncIn, *, claimed: bool, results: Sequence[ClaimResult] = ()
    ) -> Awaitable[None] | None:
        """Tell the fleet what the agent says of itself; what to wait for, if anything has to be written. An agent that
        just got work does not mean to end any more."""
        ended = [result.outcome.cause for result in results if result.outcome is not None]
        unstartable = ended.count(Cause.CANNOT_START)
        said = Heard(
            instance,
            request.incarnation,
            request.state,
            request.drain_token,
            request.ask_end and not claimed,
            request.ending,
            request.detail[:4096],
            unstartable,
            len(ended) - unstartable,
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
            log.warning("api.heard-not-stored", incarnation=request.incarnation, state=request.state)

    def _policy(self, session: Session, instance: InstanceId) -> Policy | None:
        """The policy for an agent that this process has not told it yet: the configuration may be another one now."""
        row = self._store.living(instance)
        session.informed = True
        return None if row is None else policy_for(row, self._services.policy, self._services.pools)

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
        self, session: Session, request: SyncIn, call: SyncCall, seen: int, departure: Departure
    ) -> SyncDone:
        """Wait for work, news, the end of the wait, a newer sync or the client's leaving; what the store did then."""
        row = self._store.living(call.instance)
        want = call.want if call.claiming else 0
        poll = Poll(call.instance, None if row is None else row.machine, want, call.ahead)
        wait_ms = min(request.wait_ms, self._services.policy.poll_ms)
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, poll.wake, Wake.EXPIRED)
        stay = departure(poll.leave)
        session.poll = poll
        self.polls.add(poll)
        if want and self.polls.arrivals != seen:
            poll.wake(Wake.WORK)
        try:
            return await self._wait(poll, session, call)
        finally:
            timer.cancel()
            stay()
            self.polls.remove(poll)
            if session.poll is poll:
                session.poll = None

    async def _wait(self, poll: Poll, session: Session, call: SyncCall) -> SyncDone:
        while True:
            wake = await poll.woken()
            if poll.left:
                raise ClientGone
            if wake not in (Wake.WORK, Wake.NEWS):
                return _NOTHING
            claiming = wake is Wake.WORK and self._fleet.directive(call.instance).claiming
            again = replace(call, order=session.next_order(), claiming=claiming)
            try:
                done = await self._store.sync(again)
            except (NotFound, StoreUnavailable):
                return _NOTHING  # the agent's next sync learns what is wrong
            if done.claims or done.kill or wake is Wake.NEWS:
                poll.offered = max(poll.offered - len(done.claims), 0)
                return done
            self.polls.looked(poll, 0)
            self.polls.add(poll)

    async def _renewal_only(self, request: SyncIn, instance: InstanceId, error: StoreUnavailable) -> ReplyOut:
        """The answer while the store can't commit: nothing is settled or handed out, but what the instance holds is
        renewed from memory, so that a full disk costs no running task."""
        log.error("api.sync-not-stored", instance=instance, error=str(error))
        if request.ending:
            raise error
        news = self._hear(instance, request, claimed=True)
        if news is not None:
            await self._written(news, request)
        await asyncio.sleep(_FULL_PAUSE_S)
        current = frozenset(self._store.leases_of(instance).values())
        kill = tuple(FencingToken(c.token) for c in request.held if c.token not in current)
        directive = self._fleet.directive(instance)
        return reply_to(request, SyncDone(kill=kill), directive, lease_ms=self._lease_ms)

    def _abandoned(self, request: SyncIn) -> ReplyOut:
        """The empty answer to a sync that is out of date: its agent does not listen any more."""
        return reply_to(request, _NOTHING, _NO_NEWS, lease_ms=self._lease_ms)

    def _directive_changed(self, instance: InstanceId) -> None:
        session = self.sessions.get(instance)
        if session is not None and session.poll is not None:
            session.poll.wake(Wake.NEWS)
