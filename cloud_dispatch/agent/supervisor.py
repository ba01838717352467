"""The root of the VM's compute service. Owns the agent's process: starts it, watches it, cleans up, ends the VM.

It holds the lifetime limit and the guest timer itself, so that an agent that hangs, dies or was replaced can't keep the
VM. It speaks to nobody and needs no network and no secret: the agent brings it the dispatcher's words, which the agent
can't make. Standard library and no event loop, so that little can go wrong in it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from typing import List, Optional, Set  # noqa: UP035

from cloud_dispatch.agent.adapters import now_ms, pause, wall_ms
from cloud_dispatch.agent.forked import fork
from cloud_dispatch.agent.identity import Config, ConfigError, load_config
from cloud_dispatch.agent.pace import BEAT_MOST_MS
from cloud_dispatch.agent.privileges import Unseparated
from cloud_dispatch.agent.processes import become_subreaper, kill_each, reap, tree
from cloud_dispatch.agent.separation import Separation, separate
from cloud_dispatch.agent.timer import GuestTimer
from cloud_dispatch.agent.warden import Warden

#: An agent that dies is started again so often.
MOST_RESTARTS = 3
#: How long past its lifetime the agent may take to end by itself.
LIFETIME_GRACE_MS = 60_000
#: How long the agent may take to end after the operating system told it to.
SHUTDOWN_MS = 45_000
_SWEEP_MS = 10_000
#: How long of that the children may take who kill by uid.
_KILLERS_MS = 1_000
_END_COMMAND_TRIES = 3
_END_COMMAND_S = 60
_LOOK_MS = 1_000
#: Whoever did not look for so long was not running, and nor was the agent: the VM was suspended, say.
_STALL_MS = 3_000
#: How long the agent may take after that to show a sign of life: its timers stood still, and have to come to their end.
_WAKE_MS = 2 * BEAT_MOST_MS
#: Of a number of milliseconds in an agent's report.
_MOST_DIGITS = 15
#: What the boot script says: when the VM's life began (the first number of /proc/uptime), and which process holds the
#: timer until the supervisor does.
BORN_VARIABLE = "CLOUD_DISPATCH_BORN"
EARLY_TIMER_VARIABLE = "CLOUD_DISPATCH_EARLY_TIMER"


def supervise(path: str) -> int:
    """Run the compute service configured at `path` to its end. Exit code 0, or 2 for a bad configuration."""
    try:
        config = load_config(path)
        os.makedirs(config.work_dir, mode=0o700, exist_ok=True)
        become_subreaper()
        separation = separate(config, os.environ)
    except Unseparated as error:
        _say("configuration %s: %s" % (path, error))
        return 2
    except (ConfigError, OSError) as error:
        _say(str(error))
        return 2
    supervisor = Supervisor(config, os.path.abspath(path), _born_ms(os.environ.pop(BORN_VARIABLE, "")), separation)
    _relieve(os.environ.pop(EARLY_TIMER_VARIABLE, ""))
    reason = supervisor.run()
    _say("over: %s" % reason)
    if separation is not None:
        separation.clear()
    run_end_command(config.end_command)
    return 0


class Supervisor:
    """Keeps one agent running until it says that it is done, may not be started again, or the VM's time is up, which
    began at `born_ms`. With a `separation` the agent is another user, and may have tasks run as yet others."""

    def __init__(self, config: Config, path: str, born_ms: int, separation: Optional[Separation] = None) -> None:
        self._separation = separation
        self._warden: Optional[Warden] = None
        self._path = path
        self._hang_ms = config.hang_ms
        self._lifetime_ms = config.lifetime_ms
        self._born_ms = born_ms
        self._timer = GuestTimer(config.timer) if config.timer.anchor else None
        self._shutdown_ms: Optional[int] = None
        self._child: Optional[int] = None
        self._starts = 0
        self._status: Optional[int] = None
        self._ended = ""
        self._spoke = False  # the agent that runs has shown a sign of life
        self._beat_ms = 0
        self._until_ms = 0
        self._looked_ms = 0
        self._woke_ms = 0  # when a stall was noticed, the first since the last sign of life; 0: there was none
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)

    def run(self) -> str:
        """Until all is over; why."""
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._shut_down())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake up
        for restart in range(MOST_RESTARTS + 1):
            why = self._run_agent()
            clean = self._sweep()
            if self._ended:
                return self._ended
            _say(why)
            mute = not self._spoke  # one that spoke could use it: that is another program's complaint, see `handover`
            if mute and self._status is not None and os.WIFEXITED(self._status) and os.WEXITSTATUS(self._status) == 2:
                return "the agent can't use its configuration"
            if self._shutdown_ms is not None or self._time_is_up():
                return why
            if not clean:
                return "%s; what it left behind can't be killed" % why
            pause(min(0.2 * (1 << restart), 5))
        return "the agent failed %d times" % (MOST_RESTARTS + 1)

    def _run_agent(self) -> str:
        """Start the agent and watch it until its process is gone; what happened to it."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self._status = None
        try:
            child = self._start_agent(writing)
        except (OSError, subprocess.SubprocessError) as error:
            os.close(reading)
            return "the agent could not be started: %s" % error
        finally:
            os.close(writing)
        self._child, self._until_ms, self._spoke = child, 0, False
        self._beat_ms = self._looked_ms = now_ms()
        self._woke_ms = 0
        if self._shutdown_ms is not None:
            self._forward()
        why = ""
        unread = b""
        while self._alive():
            ready = self._wait_for_news(reading)
            if reading in ready:
                piece = os.read(reading, 65_536)
                unread = self._hear(unread + piece)
                if not piece:
                    pause(0.01)  # the agent closed it: it is about to be gone, or is no use any more
            self._reap()
            if self._alive():
                why = why or self._verdict()
                if why:
                    kill_each([child], signal.SIGKILL)
        self._hear(unread + _rest(reading))
        os.close(reading)
        self._child = None
        return why or "the agent died (wait status %s)" % self._status

    def _start_agent(self, writing: int) -> int:
        """The pid of a new agent, which reports to `writing`."""
        known = [str(writing), str(self._born_ms), self._words()]
        separation, self._starts = self._separation, self._starts + 1
        if separation is None and self._starts == 1:
            return fork_agent([self._path, *known], keeping={writing})
        if separation is None:
            command, given = [*own_command(), "--agent", self._path, *known], [writing]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=given, start_new_session=True)
        else:
            config = separation.config_descriptor()
            command, given = [*own_command(separation.python), "--agent", str(config), *known], [writing, config]
            if separation.users.last >= separation.users.first:
                self._warden = Warden(separation.users, separation.work_dir)
                command += [str(self._warden.line.fileno()), self._warden.attempts]
                given.append(self._warden.line.fileno())
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=given, start_new_session=True,
                preexec_fn=separation.step_down, cwd=separation.config.work_dir,
            )  # fmt: skip
            os.close(config)
            if self._warden is not None:
                self._warden.serves(child.pid)
        child.returncode = 0  # reaped by `reap`
        return child.pid

    def _wait_for_news(self, reading: int) -> List[int]:
        """Until the agent reports, something ended or it is time to look; what is ready. The warden has served then."""
        warden = self._warden
        asked = [] if warden is None or warden.deaf else [warden.socket.fileno()]
        wait_s = self._look_s()
        if warden is not None:
            again_ms = warden.tidy()
            wait_s = wait_s if again_ms is None else min(wait_s, again_ms / 1000)
        ready, _, _ = select.select([self._wake_read.fileno(), reading, *asked], [], [], wait_s)
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
        if warden is not None and asked and asked[0] in ready:
            warden.serve()
        return ready

    def _hear(self, text: bytes) -> bytes:
        """Act on whole lines of the agent's report; the rest."""
        *lines, rest = text.split(b"\n")
        said = ""
        for line in lines:
            word, _, value = line.decode("ascii", "replace").partition(" ")
            self._beat_ms, self._woke_ms, self._spoke = now_ms(), 0, True
            if word == "beat":
                self._until_ms = _milliseconds(value) or 0
            elif word == "lifetime":
                told_ms = _milliseconds(value)
                self._lifetime_ms = self._lifetime_ms if told_ms is None else told_ms
            elif word == "timer":
                said = value
            elif word == "end":
                self._ended = value or "done"
        if said and self._timer is not None:
            self._timer.hear(said)  # of several the last: it says all, and to look at a false one takes time
        return rest[:4096]

    def _alive(self) -> bool:
        return self._status is None

    def _reap(self) -> None:
        for end in reap()[0]:
            if end.pid == self._child:
                self._status = end.status
            elif self._warden is not None:
                self._warden.reaped(end)

    def _verdict(self) -> str:
        """Why the agent must be killed now, or ""."""
        now = now_ms()
        if now > self._looked_ms + _STALL_MS and not self._woke_ms:  # once: nobody hangs on by stalls
            self._woke_ms = now
        self._looked_ms = now
        if now >= self._patient_ms():
            if now > self._beat_ms + self._hang_ms:
                return "the agent hung: no sign of life for %d ms" % self._hang_ms
            if self._until_ms and now > self._until_ms:
                return "the agent hung: no sign of life, and the lease of what it runs has ended"
        up = self._time_is_up()
        if up:
            return up
        if self._shutdown_ms is not None and now > self._shutdown_ms:
            return "the agent did not end in time after SIGTERM"
        return ""

    def _look_s(self) -> float:
        """How long to wait for news before the next look."""
        left_ms = max(self._until_ms + 1, self._patient_ms()) - now_ms() if self._until_ms else _LOOK_MS
        return max(min(left_ms, _LOOK_MS), 20) / 1000

    def _patient_ms(self) -> int:
        """Until when an agent that stood still with this process is not taken for hung."""
        return self._woke_ms + _WAKE_MS if self._woke_ms else 0

    def _time_is_up(self) -> str:
        """Why the VM must end now whatever the agent does, or ""."""
        timer = self._timer
        if timer is not None and timer.left_ms(now_ms() - self._born_ms, timer.plan.ends_ms - wall_ms()) <= 0:
            return "the guest timer ended: the dispatcher did not say that the VM may live on"
        if self._lifetime_ms and now_ms() > self._born_ms + self._lifetime_ms + LIFETIME_GRACE_MS:
            return "the agent outlived the instance's lifetime"
        return ""

    def _words(self) -> str:
        return str(0 if self._timer is None else self._timer.words)

    def _shut_down(self) -> None:
        if self._shutdown_ms is None:
            self._shutdown_ms = now_ms() + SHUTDOWN_MS
        self._forward()

    def _forward(self) -> None:
        if self._child is not None:
            kill_each([self._child], signal.SIGTERM)

    def _sweep(self) -> bool:
        """Kill every descendant: the tasks of a dead agent must not live on. Whether none is left."""
        killers = self._warden.close() if self._warden is not None else []
        self._warden = None
        deadline = now_ms() + _SWEEP_MS
        while True:
            reap()
            left = [pid for pid in tree(os.getpid()) if pid != os.getpid()]
            if not left or now_ms() > deadline:
                return not left
            spared = killers if now_ms() < deadline - _SWEEP_MS + _KILLERS_MS else []
            kill_each([pid for pid in left if pid not in spared], signal.SIGKILL)
            pause(0.005)


def _milliseconds(said: str) -> Optional[int]:
    """The number that `said` is; None for anything else, as an agent that was taken over may say what it likes."""
    return int(said) if said.isdigit() and len(said) <= _MOST_DIGITS else None


def _born_ms(said: str) -> int:
    """When the VM's life began, as the boot script said it, or now."""
    now = now_ms()
    seconds, _, hundredths = said.partition(".")
    if not (seconds.isdigit() and len(hundredths) == 2 and hundredths.isdigit()):
        return now
    return min(int(seconds) * 1000 + int(hundredths) * 10, now)


def _relieve(pid: str) -> None:
    """End the boot script's timer: this process holds the timer from here on."""
    if pid.isdigit() and int(pid) in tree(os.getpid()):  # and nobody else's
        kill_each([int(pid)], signal.SIGKILL)  # before its sleep, whose end it would take for the end of the time
        kill_each([left for left in tree(os.getpid()) if left != os.getpid()], signal.SIGKILL)


def fork_agent(arguments: List[str], keeping: Set[int]) -> int:
    """The pid of an agent that is this very process once more, with the interpreter and the modules that it has: twice
    as fast as a new one, and they share memory. Not for one that has to have fewer rights, nor for a later one: by then
    the zipapp may be another than the one that these modules came from."""

    def live() -> int:
        try:
            os.setsid()
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) not in keeping:
                    with contextlib.suppress(OSError):  # the listing's own
                        os.close(int(name))
            os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
            from cloud_dispatch.agent.incarnation import run_agent

            return run_agent(arguments)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            return 1
        finally:
            sys.stderr.flush()

    return fork(live)


def own_command(python: str = sys.executable) -> List[str]:
    """How to start this very program again."""
    program = os.path.abspath(sys.argv[0])
    if program.endswith(".py"):  # of the package, not its zipapp
        return [python, "-m", "cloud_dispatch.agent"]
    return [python, "-S", "-I", program]


def run_end_command(command: List[str]) -> None:
    """End the VM as its driver said; repeated when it fails, and never for ever."""
    for attempt in range(_END_COMMAND_TRIES if command else 0):
        try:
            if subprocess.run(command, stdin=subprocess.DEVNULL, timeout=_END_COMMAND_S, check=False).returncode == 0:
                return
        except (OSError, subprocess.TimeoutExpired) as error:
            _say("end command: %s" % error)
        pause(1 << attempt)


def _rest(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def _say(text: str) -> None:
    sys.stderr.write("cloud-dispatch supervisor: %s\n" % text)
    sys.stderr.flush()
