"""The I/O around the agent's state machine. Owns the event loop's side of it: one conversation, processes, timers.

It decides nothing: every event goes to the machine, and what the machine commands is done here. An unexpected error
ends the agent, so that its supervisor cleans up and starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional  # noqa: UP035

from cloud_dispatch.agent import events
from cloud_dispatch.agent.adapters import Threads, fraction, now_ms, wall_ms
from cloud_dispatch.agent.attempt import Attempt
from cloud_dispatch.agent.channel import Channel, Endpoint, Unreachable
from cloud_dispatch.agent.checks import CheckRun
from cloud_dispatch.agent.folders import Folders
from cloud_dispatch.agent.identity import Config, Identity, explain_error, save_identity
from cloud_dispatch.agent.lookout import Lookout
from cloud_dispatch.agent.machine import Machine
from cloud_dispatch.agent.memory import KernelKills
from cloud_dispatch.agent.pace import beat_ms
from cloud_dispatch.agent.processes import Exit, Processes
from cloud_dispatch.agent.register import cpu_count
from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.agent.transfers import Depot
from cloud_dispatch.agent.uploads import ChannelPool
from cloud_dispatch.wire.codec import decode, encode
from cloud_dispatch.wire.messages import SYNC_PATH, Order, Result, SyncReply, SyncRequest

_LOG_CHANNELS = 4


class Shell:
    """One incarnation. `report` tells the supervisor: a sign of life, a lifetime, a word for its timer, the end.
    `words`: how many of these it has heard already."""

    def __init__(
        self, config: Config, identity: Identity, endpoint: Endpoint, incarnation: str, report: Callable[[str], None],
        words: int = 0,
    ) -> None:  # fmt: skip
        self.config = config
        self.identity = identity
        self.instance = identity.instance
        self.policy = identity.policy
        self.processes = Processes()
        self.kernel_kills = KernelKills()
        self.log_pool = ChannelPool(lambda: Channel(endpoint, identity.token), _LOG_CHANNELS)
        self.depot = Depot(config.url.rstrip("/"), identity.token, endpoint.tls, endpoint.fingerprint)
        self.base_env = {
            "PATH": config.path or os.environ.get("PATH") or os.defpath,
            "LANG": os.environ.get("LANG") or "C.UTF-8",
        }
        self.ended_reason = ""
        self._report = report
        timer = GuestTimer(config.timer, words) if config.timer.anchor else None
        self._machine = Machine(incarnation, identity.policy, cpu_count() * 1000, timer)
        self._channel = Channel(endpoint, identity.token)
        self._conversation: Optional[asyncio.Task[None]] = None
        self._attempts: Dict[int, Attempt] = {}  # until settled
        self._by_pid: Dict[int, Any] = {}  # attempts and health checks whose main process lives
        self._checks: Dict[int, CheckRun] = {}
        self._threads = Threads()
        self.folders = Folders(os.path.join(config.work_dir, "attempts"), self.in_thread)
        self._lookout = Lookout(self)
        self._events: Deque[events.Event] = deque()
        self._busy = False
        self._timer: Optional[asyncio.TimerHandle] = None
        self._timer_ms = 0
        self._vowed_ms = 0  # until when the supervisor waits for the next sign of life; 0: it has its own patience
        self._noticed = False
        self._over = asyncio.Event()
        self._crash: Optional[BaseException] = None
        self._does: Dict[type, Callable[[Any], None]] = {
            events.Sync: self._sync, events.Start: self._start, events.Kill: self._kill, events.Forget: self._forget,
            events.RunHealthCheck: self._check_health, events.PolicyChanged: self._follow,
            events.TimerWord: self._pass_on, events.End: self._end,
        }  # fmt: skip

    async def run(self, age_ms: int) -> str:
        """Serve until the end, `age_ms` after the VM's start; why it ended. Raises what went wrong unexpectedly."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.feed, events.Signalled("shutdown"))
        self._beat()
        self._follow(events.PolicyChanged(self.policy))
        self.feed(events.Boot(age_ms, self.config.timer.ends_ms - wall_ms()))
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

    def _beat(self) -> None:
        self._vow()
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
        except (Unreachable, ValueError) as error:
            self.feed(events.Failed(request.seq, fraction(), str(error)))
            return
        self.feed(events.Replied(request.seq, reply))

    # Attempts

    def _start(self, command: events.Start) -> None:
        order = command.order
        if not self._vowed_ms:
            self._vow()  # before anything runs that an agent which hangs at once would leave running
        attempt = self._attempts[order.token] = Attempt(order, self)
        attempt.begin()

    @property
    def in_contact(self) -> bool:
        """Whether the dispatcher answered the last request that is over."""
        return self._machine.in_contact

    def spill_path(self, order: Order) -> str:
        """Where an attempt's unsent log goes when it is too much for memory."""
        return os.path.join(self.config.work_dir, "attempts", "%d-%d.log" % (order.task, order.token))

    def _kill(self, command: events.Kill) -> None:
        attempt = self._attempts.get(command.token)
        if attempt is not None:
            attempt.signal(command.signal)

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

    # Health checks

    def _check_health(self, command: events.RunHealthCheck) -> None:
        run = CheckRun(command.index, command.check, self.processes, self.base_env, self._checked)
        if run.begin():
            self._by_pid[run.pid] = run

    def _checked(self, index: int, passed: bool, detail: str) -> None:
        self.feed(events.HealthChecked(index, passed, detail))

    # The policy and the end

    def _follow(self, command: events.PolicyChanged) -> None:
        self.policy = self.identity.policy = command.policy
        with contextlib.suppress(OSError):
            save_identity(self.config.work_dir, self.identity)
        self._report("lifetime %d" % command.policy.lifetime_ms)

    def _pass_on(self, command: events.TimerWord) -> None:
        self._report("timer %s" % command.word)

    def _end(self, command: events.End) -> None:
        self.ended_reason = command.reason
        self._over.set()

    def _close(self) -> None:
        if self._conversation is not None:
            self._conversation.cancel()
        for attempt in self._attempts.values():
            attempt.signal(signal.SIGKILL)
            attempt.log.close()
        self._channel.close()
        self.log_pool.close()
        self._threads.close()
        self.folders.clear()


def read_notice(path: str) -> Optional[int]:
    """The milliseconds that the file at `path` says are left, 0 where it can not be read; None where there is none."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            said = file.read(32).strip()
    except OSError:
        return None
    return int(said) if said.isdigit() else 0


def say(text: str) -> None:
    """A line for the VM's console."""
    sys.stderr.write("cloud-dispatch agent: %s\n" % text)
    sys.stderr.flush()
