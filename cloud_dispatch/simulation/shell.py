"""The shell around the agent's real state machine on a simulated VM: virtual time, network and processes.

It decides nothing, as the real one: events go to the machine, and what the machine commands is done here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol

import msgspec

from cloud_dispatch.agent import events
from cloud_dispatch.agent.baggage import Carried, carried
from cloud_dispatch.agent.channel import Channel, Unreachable
from cloud_dispatch.agent.identity import Identity
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.agent.succession import Succession
from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.agent.transfers import ANSWER_S, ATTEMPTS, RETRY_FIRST_S, RETRY_MOST_S
from cloud_dispatch.agent.uploads import ChannelPool
from cloud_dispatch.agent.waiting import within
from cloud_dispatch.simulation.attempts import VirtualAttempt
from cloud_dispatch.simulation.conduct import FAILING, FLAKY
from cloud_dispatch.simulation.loop import Group, VirtualLoop
from cloud_dispatch.simulation.network import Exchange, Network
from cloud_dispatch.simulation.ports import Stream, TrueVm
from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import AGENT_PATH, SYNC_PATH, Program, Result, SyncReply, SyncRequest

_LOG_CHANNELS = 4
_FLAKY = 0.1
_encode = msgspec.json.Encoder().encode
_REPLY: msgspec.json.Decoder[SyncReply] = msgspec.json.Decoder(SyncReply)


class Body(Protocol):
    """The VM that an agent lives on: its clock, chance and network, and who watches its processes."""

    vm: TrueVm
    loop: VirtualLoop
    network: Network
    chance: Stream

    def now_ms(self) -> int:
        """The guest's own clock, which may drift."""

    def moment_of(self, guest_ms: int) -> int:
        """The virtual time at which the guest's clock shows `guest_ms`."""

    def wall_left_ms(self) -> int:
        """How far the first hard end is by the guest's wall clock."""

    def replaced(self, program: str, tasks: int) -> None:
        """The agent has become another program while so many tasks ran."""

    def hear(self, word: str) -> None:
        """The agent brings its supervisor a word for the guest timer."""

    def process_started(self, attempt: VirtualAttempt) -> None: ...

    def process_ended(self, attempt: VirtualAttempt) -> None: ...


@lru_cache(maxsize=4096)
def authorization(token: str) -> bytes:
    """The header of a token. An agent has one for a long time, and says it with each request."""
    return f"Bearer {token}".encode()


class VirtualChannel(Channel):
    """The agent's channel over the simulated network: the real one's promises, one request at a time."""

    def __init__(self, body: Body, group: Group, token: Callable[[], str]) -> None:
        self._body = body
        self._group = group
        self._token = token
        self._exchange: Exchange | None = None

    async def request(
        self, method: str, path: str, body: bytes, kind: str = "application/json", bearer: str = ""
    ) -> tuple[int, bytes]:
        self.close()
        answer: asyncio.Future[tuple[int, bytes]] = self._body.loop.create_future()

        def heard(status: int | None, said: bytes) -> None:
            if answer.done():
                return
            if status is None:
                answer.set_exception(Unreachable(said.decode()))
            else:
                answer.set_result((status, said))

        route, _, query = path.partition("?")
        said = authorization(bearer or self._token())
        exchange = self._exchange = self._body.network.send(
            self._body.vm, self._group.context, method, route, said, body, heard, query
        )
        try:
            return await answer
        finally:
            exchange.abandon()

    def close(self) -> None:
        if self._exchange is not None:
            self._exchange.abandon()
            self._exchange = None


class VirtualShell:
    """One incarnation of the agent. `over(reason)` is called once, when its machine says that it is done."""

    def __init__(
        self, body: Body, group: Group, identity: Identity, incarnation: str, over: Callable[[str], None],
        timer: Callable[[], GuestTimer | None] = lambda: None, program: Succession | None = None,
    ) -> None:  # fmt: skip
        self.identity = identity
        self.machine = Machine(incarnation, identity.policy, timer=timer(), program=program)
        self._incarnation = incarnation
        self._new_timer = timer
        self.hung = False
        self.log_limit = identity.policy.log_limit
        self.log_pool = ChannelPool(lambda: VirtualChannel(body, group, self._bearer), _LOG_CHANNELS)
        self.attempts: dict[int, VirtualAttempt] = {}  # whose process may live
        self._body = body
        self._group = group
        self._over = over
        self._dead = False
        self._events: deque[events.Event] = deque()
        self._busy = False
        self._exchange: Exchange | None = None
        self._timer: Any = None
        self._timer_ms = self._wake_ms = 0

    def begin(self, age_ms: int, wall_left_ms: int) -> None:
        """Serve from here on, `age_ms` after the VM's start and `wall_left_ms` before its first hard end."""
        self.feed(events.Boot(age_ms, wall_left_ms))

    def feed(self, event: events.Event) -> None:
        """Give `event` to the machine and do what it says; events that this causes come after."""
        if self._dead or self.hung:
            return
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        now = self._body.now_ms()  # no time passes until all is done
        try:
            while self._events and not self._dead:
                for command in self.machine.handle(self._events.popleft(), now):
                    _DOES[type(command)](self, command)
        finally:
            self._busy = False
        if not self._dead:
            self._arm(now)

    def die(self) -> None:
        """At once, with all processes, without a word."""
        self._dead = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:
            self._exchange.abandon()
        for attempt in list(self.attempts.values()):
            attempt.vanish()
        self._group.cancel()

    # -- time
    def _arm(self, now: int) -> None:
        """Have the machine called when it wants to be. A timer that rings before stays and is set anew then: most are
        moved on by the next answer, long before they ring."""
        wake = self.machine.wake_at(now)
        if wake is None:
            return
        self._wake_ms = wake
        if self._timer is not None:
            if now < self._timer_ms <= wake:
                return
            self._timer.cancel()
        self._set_timer()

    def _set_timer(self) -> None:
        self._timer_ms = self._wake_ms
        loop = self._body.loop
        moment = max(self._body.moment_of(self._wake_ms), loop.now_ms + 1)
        self._timer = loop.at_ms(moment, self._tick, context=self._group.context)

    def _tick(self) -> None:
        self._timer = None
        if self._body.now_ms() < self._wake_ms:
            self._set_timer()
        else:
            self.feed(events.Timer(self._body.chance.fraction()))

    # -- what the machine commands
    def _sync(self, command: events.Sync) -> None:
        if self._exchange is not None:
            self._exchange.abandon()
        request = command.request
        heard = partial(self._answered, request)
        said = authorization(self.identity.token)
        self._exchange = self._body.network.send(
            self._body.vm, self._group.context, "POST", SYNC_PATH, said, _encode(request), heard
        )

    def _answered(self, request: SyncRequest, status: int | None, body: bytes) -> None:
        if status is None or status >= 300:
            self.feed(events.Failed(request.seq, self._body.chance.fraction(), f"{status} {body[:200]!r}"))
        else:
            self.feed(events.Replied(request.seq, _REPLY.decode(body)))

    def _start(self, command: events.Start) -> None:
        attempt = self.attempts[command.order.token] = VirtualAttempt(command.order, self, command.gpus)
        attempt.begin()

    def _kill(self, command: events.Kill) -> None:
        attempt = self.attempts.get(command.token)
        if attempt is not None:
            attempt.signal(command.signal)

    def _prod(self, command: events.Prod) -> None:
        attempt = self.attempts.get(command.token)
        if attempt is not None:
            attempt.prod(command.signal)

    def _forget(self, command: events.Forget) -> None:
        """There is no folder to remove."""

    def _check_health(self, command: events.RunHealthCheck) -> None:
        """Simulated machines are healthy unless the command says otherwise."""
        name = command.check.argv[0]
        passed = name != FAILING and (name != FLAKY or self._body.chance.fraction() >= _FLAKY)
        self.after(10, self.feed, events.HealthChecked(command.index, passed, "" if passed else "exit code 1"))

    def _follow(self, command: events.PolicyChanged) -> None:
        self.identity.policy = command.policy
        self.log_limit = command.policy.log_limit

    def _bearer(self) -> str:
        return self.identity.token

    def _renew(self, command: events.TokenRenewed) -> None:
        self.identity.token = command.token

    def _pass_on(self, command: events.TimerWord) -> None:
        self._body.hear(command.word)

    def _bring(self, command: events.Bring) -> None:
        self.spawn(self._fetch(command.program))

    async def _fetch(self, program: Program) -> None:
        await asyncio.sleep(self._body.chance.fraction() * self.identity.policy.heartbeat_ms / 1000)
        status, body = await self.request("GET", f"{AGENT_PATH}?sha256={program.sha256}", b"")
        failure = "" if hashlib.sha256(body).hexdigest() == program.sha256 else f"HTTP {status}, or another agent"
        self.feed(events.Brought(program.sha256, failure, self._body.chance.fraction()))

    def _become(self, command: events.Become) -> None:
        """Another machine goes on with what this one wrote down; the processes do not notice."""
        running = self.machine.claims.running
        if any(token not in self.attempts or not self.attempts[token].alive for token in running) or self._events:
            self.feed(events.Hindered())
            return
        if self._exchange is not None:
            self._exchange.abandon()
        known = decode(Carried, encode(carried(self.machine)))
        timer = self._new_timer()
        policy = self.identity.policy
        self.machine = Machine(self._incarnation, policy, timer=timer, program=Succession(command.program.sha256))
        self.feed(events.Boot(self._body.now_ms(), self._body.wall_left_ms(), known))
        self._body.replaced(command.program.sha256, len(known.running))

    def _end(self, command: events.End) -> None:
        self.die()
        self._over(command.reason)

    # -- what attempts ask for
    @property
    def in_contact(self) -> bool:
        return self.machine.in_contact

    def after(self, milliseconds: int, callback: Callable[..., None], *args: Any) -> None:
        loop = self._body.loop
        loop.post(loop.now_ms + milliseconds, self._group.context, callback, *args)

    def spawn(self, work: Any) -> None:
        self._body.loop.begin(work, self._group)

    def started(self, attempt: VirtualAttempt) -> None:
        self._body.process_started(attempt)
        self.feed(events.Started(attempt.token))

    def exited(self, attempt: VirtualAttempt) -> None:
        self._body.process_ended(attempt)

    def vacated(self, attempt: VirtualAttempt) -> None:
        self.feed(events.Vacated(attempt.token))

    def ended(self, attempt: VirtualAttempt, result: Result) -> None:
        self.attempts.pop(attempt.token, None)
        self.feed(events.Ended(result))

    async def request(self, method: str, path: str, body: bytes, bearer: str = "") -> tuple[int, bytes]:
        """Tried again as the agent's transfers are: what gets no answer, and what fails at the dispatcher's side."""
        status, said = 503, b""
        for tried in range(ATTEMPTS):
            channel = VirtualChannel(self._body, self._group, self._bearer)
            try:
                status, said = await within(ANSWER_S, channel.request(method, path, body, bearer=bearer))
            except (Unreachable, TimeoutError):
                status, said = 503, b""
            if status < 500:
                break
            await asyncio.sleep(min(RETRY_FIRST_S * (1 << tried), RETRY_MOST_S))
        return status, said


_DOES: dict[type, Callable[[VirtualShell, Any], None]] = {
    events.Sync: VirtualShell._sync,
    events.Start: VirtualShell._start,
    events.Kill: VirtualShell._kill,
    events.Prod: VirtualShell._prod,
    events.Forget: VirtualShell._forget,
    events.RunHealthCheck: VirtualShell._check_health,
    events.PolicyChanged: VirtualShell._follow,
    events.TokenRenewed: VirtualShell._renew,
    events.TimerWord: VirtualShell._pass_on,
    events.Bring: VirtualShell._bring,
    events.Become: VirtualShell._become,
    events.End: VirtualShell._end,
}
