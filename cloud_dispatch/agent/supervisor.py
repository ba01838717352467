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
import zipfile
from typing import List, Optional  # noqa: UP035

from cloud_dispatch.agent.adapters import now_ms, pause, wall_ms
from cloud_dispatch.agent.identity import Config, ConfigError, load_config
from cloud_dispatch.agent.processes import become_subreaper, kill_each, reap, tree
from cloud_dispatch.agent.timer import GuestTimer

#: An agent that dies is started again so often.
MOST_RESTARTS = 3
#: How long past its lifetime the agent may take to end by itself.
LIFETIME_GRACE_MS = 60_000
#: How long the agent may take to end after the operating system told it to.
SHUTDOWN_MS = 45_000
_SWEEP_MS = 10_000
_END_COMMAND_TRIES = 3
_END_COMMAND_S = 60
_LOOK_MS = 1_000
#: Whoever did not look for so long was not running, and nor was the agent: it gets one more look's time.
_STALL_MS = 3_000
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
    except (ConfigError, OSError) as error:
        _say(str(error))
        return 2
    supervisor = Supervisor(config, os.path.abspath(path), _born_ms(os.environ.pop(BORN_VARIABLE, "")))
    _relieve(os.environ.pop(EARLY_TIMER_VARIABLE, ""))
    reason = supervisor.run()
    _say("over: %s" % reason)
    run_end_command(config.end_command)
    return 0


class Supervisor:
    """Keeps one agent running until it says that it is done, may not be started again, or the VM's time is up, which
    began at `born_ms`."""

    def __init__(self, config: Config, path: str, born_ms: int) -> None:
        self._path = path
        self._hang_ms = config.hang_ms
        self._lifetime_ms = config.lifetime_ms
        self._born_ms = born_ms
        self._timer = GuestTimer(config.timer) if config.timer.anchor else None
        self._shutdown_ms: Optional[int] = None
        self._child: Optional[int] = None
        self._status: Optional[int] = None
        self._ended = ""
        self._beat_ms = 0
        self._until_ms = 0
        self._looked_ms = 0
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
            if self._status is not None and os.WIFEXITED(self._status) and os.WEXITSTATUS(self._status) == 2:
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
        command = [*own_command(), "--agent", self._path, str(writing), str(self._born_ms), self._words()]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(writing,), start_new_session=True)
        child.returncode = 0  # reaped by `reap`
        os.close(writing)
        self._child, self._status, self._beat_ms, self._until_ms = child.pid, None, now_ms(), 0
        if self._shutdown_ms is not None:
            self._forward()
        why = ""
        unread = b""
        while self._alive():
            ready, _, _ = select.select([self._wake_read.fileno(), reading], [], [], self._look_s())
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)
            if reading in ready:
                piece = os.read(reading, 65_536)
                unread = self._hear(unread + piece)
                if not piece:
                    pause(0.01)  # the agent closed it: it is about to be gone, or is no use any more
            self._reap()
            if self._alive():
                why = why or self._verdict()
                if why:
                    kill_each([child.pid], signal.SIGKILL)
        self._hear(unread + _rest(reading))
        os.close(reading)
        self._child = None
        return why or "the agent died (wait status %s)" % self._status

    def _hear(self, text: bytes) -> bytes:
        """Act on whole lines of the agent's report; the rest."""
        *lines, rest = text.split(b"\n")
        said = ""
        for line in lines:
            word, _, value = line.decode("ascii", "replace").partition(" ")
            self._beat_ms = now_ms()
            if word == "beat":
                self._until_ms = int(value) if value.isdigit() else 0
            elif word == "lifetime" and value.isdigit():
                self._lifetime_ms = int(value)
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

    def _verdict(self) -> str:
        """Why the agent must be killed now, or ""."""
        now = now_ms()
        stalled, self._looked_ms = now > self._looked_ms + _STALL_MS, now
        if now > self._beat_ms + self._hang_ms:
            return "the agent hung: no sign of life for %d ms" % self._hang_ms
        if self._until_ms and now > self._until_ms and not stalled:
            return "the agent hung: no sign of life, and the lease of what it runs has ended"
        up = self._time_is_up()
        if up:
            return up
        if self._shutdown_ms is not None and now > self._shutdown_ms:
            return "the agent did not end in time after SIGTERM"
        return ""

    def _look_s(self) -> float:
        """How long to wait for news before the next look."""
        left_ms = self._until_ms + 1 - now_ms() if self._until_ms else _LOOK_MS
        return max(min(left_ms, _LOOK_MS), 20) / 1000

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
        deadline = now_ms() + _SWEEP_MS
        while True:
            reap()
            left = [pid for pid in tree(os.getpid()) if pid != os.getpid()]
            if not left or now_ms() > deadline:
                return not left
            kill_each(left, signal.SIGKILL)
            pause(0.005)


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


def own_command() -> List[str]:
    """How to start this very program again."""
    program = os.path.abspath(sys.argv[0])
    if zipfile.is_zipfile(program):
        return [sys.executable, "-S", "-I", program]
    return [sys.executable, "-m", "cloud_dispatch.agent"]


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
