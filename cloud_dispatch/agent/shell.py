"""The I/O around the agent's state machine. Owns the event loop's side of it: one conversation, processes, timers.

It decides nothing: every event goes to the machine, and what the machine commands is done here. An unexpected error
ends the agent, so that its supervisor cleans up and starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from dataclasses import replace
from typing import Any, Callable, Deque, Dict, Optional, Tuple  # noqa: UP035

from cloud_dispatch.agent import events, handover
from cloud_dispatch.agent.adapters import Carriers, Threads, fraction, now_ms, say, wall_ms
from cloud_dispatch.agent.attempt import Attempt
from cloud_dispatch.agent.baggage import Baggage, carried
from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable
from cloud_dispatch.agent.checks import CheckRun
from cloud_dispatch.agent.claims import most_claims
from cloud_dispatch.agent.depot import Depot
from cloud_dispatch.agent.folders import Folders, free_room
from cloud_dispatch.agent.identity import explain_error, save_identity
from cloud_dispatch.agent.lookout import Lookout
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.agent.memory import KernelKills
from cloud_dispatch.agent.pace import beat_ms
from cloud_dispatch.agent.privileges import berths
from cloud_dispatch.agent.processes import Exit, OwnProcesses, Processes
from cloud_dispatch.agent.register import cpu_count
from cloud_dispatch.agent.succession import Succession
from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.agent.trust import published
from cloud_dispatch.agent.uploads import ChannelPool
from cloud_dispatch.agent.waiting import within
from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import AGENT_PATH, SYNC_PATH, Order, Program, Result, SyncReply, SyncRequest

_LOG_CHANNELS = 4
#: How long the dispatcher may take to give away its agent.
_PROGRAM_S = 60.0


class Shell:
    """One incarnation, or what another program goes on with. `report` tells the supervisor: a sign of life, a lifetime,
    a word for its timer, the end."""

    def __init__(self, baggage: Baggage, endpoint: Endpoint, report: Callable[[str], None]) -> None:
        self._baggage = baggage
        self._endpoint = endpoint
        self.config = config = baggage.config
        self.identity = identity = baggage.identity
        self.instance = identity.instance
        self.policy = identity.policy
        self.kernel_kills = KernelKills()
        self.log_pool = ChannelPool(lambda: Channel(endpoint, self._bearer), _LOG_CHANNELS)
        self.carriers = Carriers()
        self.depot = Depot(config.url.rstrip("/"), self._bearer, endpoint.tls, endpoint.fingerprint)
        self.base_env = {
            "PATH": config.path or os.environ.get("PATH") or os.defpath,
            "LANG": os.environ.get("LANG") or "C.UTF-8",
        }
        self.room_at_first = baggage.room or free_room(config.work_dir)
        self.ca_file = ""  # what tasks know the dispatcher by
        self.ended_reason = ""
        self._report = report
        self._guest_timer = GuestTimer(config.timer, baggage.words) if config.timer.anchor else None
        own = handover.own_sha256()
        program = Succession(own, handover.spurned(config.work_dir, own))
        most = most_claims(berths(config.task_uids) if baggage.warden >= 0 else 0)
        self._machine = Machine(
            baggage.incarnation, identity.policy, cpu_count() * 1000, self._guest_timer, program, most
        )  # fmt: skip
        self._proved = False
        self._channel = Channel(endpoint, self._bearer)
        self._conversation: Optional[asyncio.Task[None]] = None
        self._attempts: Dict[int, Attempt] = {}  # until settled
        self._by_pid: Dict[int, Any] = {}  # attempts and health checks whose main process lives
        self._threads = Threads()
        self.processes: Processes
        self.folders: Folders
        self.processes, self.folders = self._quarters()
        self._lookout = Lookout(self)
        self._events: Deque[events.Event] = deque()
        self._busy = False
        self._timer: Optional[asyncio.TimerHandle] = None
        self._timer_ms = 0
        self._vowed_ms = 0  # until when the supervisor waits for the next sign of life; 0: it has its own patience
        self._noticed = False
        self._watch: Optional[asyncio.Task[None]] = None  # for notices
        self._over = asyncio.Event()
        self._crash: Optional[BaseException] = None
        self._does: Dict[type, Callable[[Any], None]] = {
            events.Sync: self._sync, events.Start: self._start, events.Kill: self._kill, events.Prod: self._prod,
            events.Forget: self._forget,
            events.RunHealthCheck: self._check_health, events.PolicyChanged: self._follow,
            events.TokenRenewed: self._renew, events.TimerWord: self._pass_on, events.Bring: self._bring,
            events.Become: self._become, events.End: self._end,
        }  # fmt: skip

    def _quarters(self) -> Tuple[Processes, Folders]:
        """Who runs attempts and where: the agent itself, or its supervisor as users of their own."""
        folder = os.path.join(self.config.work_dir, "attempts")
        known = self._baggage.machine
        running = [attempt.order for attempt in known.running] if known is not None else []
        kept = [_spill_name(order) for order in running] + [moved.folder for moved in self._baggage.attempts]
        if self._baggage.warden < 0:
            return OwnProcesses(), Folders(folder, self.in_thread, kept)
        from cloud_dispatch.agent.tenant import lodge

        return lodge(self._baggage.warden, self._baggage.lodging, folder, self.in_thread, kept)

    async def run(self) -> str:
        """Serve until the end; why it ended. Raises what went wrong unexpectedly. `folders` are to be cleared then."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.feed, events.Signalled("shutdown"))
        self._take_over()
        self._beat()
        self._follow(events.PolicyChanged(self.policy))
        if self.config.notices:
            from cloud_dispatch.agent.notices import Notices  # only spot VMs have any

            self._watch = loop.create_task(Notices(self.config, self.feed, say).run())
            self._watch.add_done_callback(self.check)
        age_ms = now_ms() - self._baggage.born_ms
        self.feed(events.Boot(age_ms, self.config.timer.ends_ms - wall_ms(), self._baggage.machine))
        self._reap()
        handover.let_signals_in()
        await self._over.wait()
        self._close()
        if self._crash is not None:
            raise self._crash
        return self.ended_reason

    def feed(self, event: events.Event) -> None:
        """Give `event` to the machine and do what it says; events that this causes come after."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for command in self._machine.handle(self._events.popleft(), now_ms()):
                    self._does[type(command)](command)
        except Exception as error:
            self.fail(error)
            return
        finally:
            self._busy = False
        self._arm()

    def fail(self, error: BaseException) -> None:
        """Something that must not happen: end this incarnation without a word."""
        self._crash = self._crash or error
        self._over.set()

    def check(self, task: asyncio.Task[Any]) -> None:
        """For background tasks: an exception that nobody handled ends the incarnation."""
        if not task.cancelled() and task.exception() is not None:
            self.fail(task.exception() or RuntimeError("a background task failed"))

    # Time

    def _arm(self) -> None:
        now = now_ms()
        wake = self._machine.wake_at(now)
        if wake is None or (self._timer is not None and now < self._timer_ms <= wake):
            return  # an early timer does no harm, moving it costs more
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = wake
        self._timer = asyncio.get_running_loop().call_later(max(wake - now, 0) / 1000 + 0.0005, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(events.Timer(fraction()))

    def _catch_up(self) -> None:
        """Do what is due by now, and wait anew for what is next: the loop's clock stands still while the VM is
        suspended, that of leases does not."""
        if self._timer is not None:
            self._timer.cancel()
            self._tick()

    def _beat(self) -> None:
        self._catch_up()
        self._vow()  # after it: a lease that ended meanwhile has been acted on
        self.kernel_kills.look()
        self._look_for_notice()
        asyncio.get_running_loop().call_later(beat_ms(self.policy) / 1000, self._beat)

    def _look_for_notice(self) -> None:
        """Whether whoever asks the cloud has written that the VM is taken back; once."""
        if not self._noticed and self.config.notice_file:
            left_ms = read_notice(self.config.notice_file)
            if left_ms is not None:
                self._noticed = True
                self.feed(events.Noticed(left_ms))

    def _vow(self) -> None:
        """A sign of life, and until when the next one must come."""
        self._vowed_ms = self._machine.answers_by(now_ms()) or 0
        self._report("beat %d" % self._vowed_ms)

    # The conversation

    def _sync(self, command: events.Sync) -> None:
        if self._conversation is not None and not self._conversation.done():
            self._conversation.cancel()  # which closes the connection
        self._conversation = asyncio.get_running_loop().create_task(self._converse(command.request))
        self._conversation.add_done_callback(self.check)

    async def _converse(self, request: SyncRequest) -> None:
        try:
            status, body = await self._channel.request("POST", SYNC_PATH, encode(request))
            if status >= 300:
                raise Unreachable(explain_error(status, body))
            reply = decode(SyncReply, body)
            if reply.seq != request.seq:  # what stands between may answer as well, with JSON that says nothing
                raise Unreachable("that is no answer to sync %d" % request.seq)
        except (Unreachable, ValueError) as error:
            self.feed(events.Failed(request.seq, fraction(), str(error)))
            return
        if not self._proved:
            self._proved = True
            handover.proved(self.config.work_dir)
        self.feed(events.Replied(request.seq, reply))

    # Attempts

    def _start(self, command: events.Start) -> None:
        order = command.order
        if not self._vowed_ms:
            self._vow()  # before anything runs that an agent which hangs at once would leave running
        attempt = self._attempts[order.token] = Attempt(order, self, command.gpus)
        attempt.begin()

    @property
    def in_contact(self) -> bool:
        """Whether the dispatcher answered the last request that is over."""
        return self._machine.in_contact

    def spill_path(self, order: Order) -> str:
        """Where an attempt's unsent log goes when it is too much for memory."""
        return self.folders.spill_path(_spill_name(order))

    def _kill(self, command: events.Kill) -> None:
        attempt = self._attempts.get(command.token)
        if attempt is not None:
            attempt.signal(command.signal)

    def _prod(self, command: events.Prod) -> None:
        attempt = self._attempts.get(command.token)
        if attempt is not None:
            attempt.prod(command.signal)

    def _forget(self, command: events.Forget) -> None:
        attempt = self._attempts.pop(command.token, None)
        if attempt is not None:
            attempt.discard()

    def started(self, attempt: Attempt) -> None:
        assert attempt.pid is not None
        self._by_pid[attempt.pid] = attempt
        self._lookout.watch(attempt)
        self.feed(events.Started(attempt.token))

    def vacated(self, attempt: Attempt) -> None:
        self.feed(events.Vacated(attempt.token))

    def filled(self, why: str) -> None:
        self.feed(events.Filled(why))

    def ended(self, attempt: Attempt, result: Result) -> None:
        self.feed(events.Ended(result))

    def stuck(self, attempt: Attempt) -> None:
        self.feed(events.Stuck(attempt.token))

    def in_thread(self, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run blocking file work beside the loop; the number of threads is bounded."""
        return self._threads.run(work, *args)

    def _reap(self) -> None:
        for end in self.processes.reap():
            self._exited(end)

    def _exited(self, end: Exit) -> None:
        owner = self._by_pid.pop(end.pid, None)
        if owner is None:
            return  # an orphan
        if isinstance(owner, Attempt):
            self._lookout.unwatch(owner)
        try:
            owner.exited(end)
        except Exception as error:
            self.fail(error)

    # Another program

    def _bring(self, command: events.Bring) -> None:
        asyncio.get_running_loop().create_task(self._fetch(command.program)).add_done_callback(self.check)

    async def _fetch(self, program: Program) -> None:
        """A fleet is told at once: its agents come one after another."""
        await asyncio.sleep(fraction() * self.policy.heartbeat_ms / 1000)
        channel = Channel(self._endpoint, self._bearer)
        failure = ""
        try:
            asking = channel.request("GET", "%s?sha256=%s" % (AGENT_PATH, program.sha256), b"")
            status, body = await within(_PROGRAM_S, asking)
            if status >= 300:
                raise Unreachable(explain_error(status, body))
            handover.keep(self.config.work_dir, program, body)
        except (Unreachable, asyncio.TimeoutError, ValueError, OSError) as error:
            failure = str(error) or "no answer"
            say("the dispatcher's agent could not be had: %s" % failure)
        finally:
            channel.close()
        self.feed(events.Brought(program.sha256, failure, fraction()))

    def _become(self, command: events.Become) -> None:
        """Where all goes well this does not return."""
        known = carried(self._machine)
        running = [self._attempts.get(attempt.order.token) for attempt in known.running]
        still = [attempt for attempt in running if attempt is not None and attempt.at_rest]
        if len(still) < len(running) or len(self._by_pid) > len(still) or self._events:
            self.feed(events.Hindered())
            return
        for attempt in self._attempts.values():
            if attempt not in still:
                attempt.discard()  # its result is among those that are handed on
        self._vow()
        say("%s takes over, %d tasks run" % (command.program.sha256[:16], len(still)))
        words = 0 if self._guest_timer is None else self._guest_timer.words
        moved = [attempt.pack() for attempt in still]
        handed = replace(
            self._baggage, words=words, room=self.room_at_first, machine=known if command.carries else None,
            attempts=moved,
        )  # fmt: skip
        try:
            handover.become(self.config.work_dir, command.program, handed)
        except OSError as error:
            say("it can't be run: %s" % error)
            self.feed(events.Hindered(str(error)))

    def _take_over(self) -> None:
        """Go on with the attempts of the program whose place this one has taken."""
        known = self._baggage.machine
        orders = {attempt.order.token: attempt.order for attempt in known.running} if known is not None else {}
        for moved in self._baggage.attempts:
            attempt = self._attempts[moved.token] = Attempt(orders[moved.token], self)
            attempt.take_over(moved)
            self._by_pid[moved.pid] = attempt
            self._lookout.watch(attempt)

    # Health checks

    def _check_health(self, command: events.RunHealthCheck) -> None:
        beside = bool(self._attempts)
        run = CheckRun(command.index, command.check, self.processes, self.base_env, beside, self._checked)
        if run.begin():
            self._by_pid[run.pid] = run

    def _checked(self, index: int, passed: Optional[bool], detail: str) -> None:
        self.feed(events.HealthChecked(index, passed, detail))

    # The policy and the end

    def _follow(self, command: events.PolicyChanged) -> None:
        self.policy = self.identity.policy = command.policy
        with contextlib.suppress(OSError):
            save_identity(self.config.work_dir, self.identity)
        with contextlib.suppress(OSError):  # then tasks have to do without
            self.ca_file = published(self.config, command.policy.ca)
        self._report("lifetime %d" % command.policy.lifetime_ms)

    def _bearer(self) -> str:
        return self.identity.token

    def _renew(self, command: events.TokenRenewed) -> None:
        self.identity.token = command.token
        with contextlib.suppress(OSError):  # the next one comes in time
            save_identity(self.config.work_dir, self.identity)

    def _pass_on(self, command: events.TimerWord) -> None:
        self._report("timer %s" % command.word)

    def _end(self, command: events.End) -> None:
        self.ended_reason = command.reason
        self._over.set()

    def _close(self) -> None:
        for task in (self._conversation, self._watch):
            if task is not None:
                task.cancel()
        for attempt in self._attempts.values():
            attempt.signal(signal.SIGKILL)
            attempt.log.close()
        self._channel.close()
        self.log_pool.close()
        self._threads.close()


def _spill_name(order: Order) -> str:
    return "%d-%d.log" % (order.task, order.token)


def read_notice(path: str) -> Optional[int]:
    """The milliseconds that the file at `path` says are left, 0 where it can not be read; None where there is none."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            said = file.read(32).strip()
    except OSError:
        return None
    return int(said) if said.isdigit() else 0
