"""A local VM's machine: the process that is the VM. Owns its life from power-on to power-off.

It is the parent of everything in the VM (a child subreaper: what loses its parent becomes its child), so that power-off
is certain: it ends only when nothing of the VM lives. Knows its own folder and nothing of drivers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from cloud_dispatch_local import processes
from cloud_dispatch_local.cloudconfig import BadUserData, BootFile, parse
from cloud_dispatch_local.folder import Damaged, MachineRecord, Phase, VmFolder, VmRecord

_PR_SET_CHILD_SUBREAPER = 36
_TICK_MS = 500
_KILL_ROUNDS = 500
_KILL_WAIT_MS = 20
_SLOW_BOOT_MS = 30_000
#: Ignored by the interpreter or by the shell that started us; a VM's programs expect the defaults.
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP)


class PowerOff(Exception):
    """The VM shall end, for the reason given; `grace_ms` is how long its command may take to end by itself."""

    def __init__(self, why: str, grace_ms: int) -> None:
        super().__init__(why)
        self.why = why
        self.grace_ms = grace_ms


class Machine:
    """One boot of one VM. `now` gives milliseconds since the epoch, `ticks` milliseconds that never step back."""

    def __init__(
        self, folder: VmFolder, environment: Mapping[str, str], now: Callable[[], int], ticks: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._now = now
        self._ticks = ticks
        self._me = processes.identify(os.getpid())
        self._vm_stamp = (0, 0)
        self._ends_ms = 0
        self._asked = False
        self._command: int | None = None
        self._ended: dict[int, int] = {}

    def run(self) -> None:
        """Boot, run, power off. Returns when nothing of the VM lives but this process."""
        record = self._folder.vm()
        if record is None or self._me is None:
            return  # discarded before it was switched on
        self._catch_signals()
        why = "fault of the machine"
        try:
            self._say(Phase.BOOTING)
            self._boot(record)
            why = "the last boot command ended"
        except PowerOff as end:
            why = end.why
            self._log(f"power-off: {why}")
            self._say(Phase.STOPPING, why)
            self._shut_down(end.grace_ms)
        except BadUserData as error:
            why = f"user data refused: {error}"
        except Exception:
            traceback.print_exc()
        finally:
            if self._kill_everything():
                self._say(Phase.STOPPED, why)
                self._log(f"stopped: {why}")
            else:
                self._log("stopping, but some processes do not die of SIGKILL")

    def _boot(self, record: VmRecord) -> None:
        slow = _SLOW_BOOT_MS if record.boot_fault == "slow" else 0
        self._log(f"power-on, boot in {record.boot_delay_ms + slow} ms")
        self._wait(record.boot_delay_ms + slow, record)
        if record.boot_fault == "fail":
            raise PowerOff("boot failed (injected)", 0)
        while record.boot_fault == "hang":  # until somebody or the hard end ends it
            self._wait(_TICK_MS, record)
        plan = parse(self._folder.user_data.read_bytes().decode())
        for argv in plan.first:
            self._run_command(argv, record)
        for file in plan.files:
            self._write_file(file)
        self._say(Phase.RUNNING)
        for argv in plan.commands:
            self._run_command(argv, record)

    def _write_file(self, file: BootFile) -> None:
        target = self._folder.disk / file.path
        if not Path(os.path.normpath(target)).is_relative_to(self._folder.disk):
            raise BadUserData(f"{file.path} is outside the VM's disk: use a relative path")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(file.content)
        target.chmod(file.mode)

    def _run_command(self, argv: tuple[str, ...], record: VmRecord) -> None:
        """One boot command in a process group of its own; as in cloud-init, a failure does not stop the next."""
        try:
            self._command = os.posix_spawnp(argv[0], argv, self._environment, setpgroup=0, setsigdef=_DEFAULT_SIGNALS)
        except OSError as error:
            self._log(f"{argv[0]}: {error.strerror}")
            return
        while self._command not in self._ended:
            self._wait(_TICK_MS, record)
        code = os.waitstatus_to_exitcode(self._ended[self._command])
        self._command = None
        if code:
            self._log(f"{argv[0]}: " + (f"exit code {code}" if code > 0 else f"killed by signal {-code}"))

    def _wait(self, milliseconds: int, record: VmRecord) -> None:
        """Until the time has passed or the current command ended; PowerOff when the VM must end."""
        until = self._ticks() + milliseconds
        while True:
            self._reap()
            if self._asked:
                raise PowerOff("shutdown asked for", record.grace_ms)
            if self._past_hard_end():
                raise PowerOff("hard end reached", 0)
            left = until - self._ticks()
            if left <= 0 or self._command in self._ended:
                return
            self._sleep(min(left, _TICK_MS))

    def _past_hard_end(self) -> bool:
        """Whether the clock has passed `ends_ms` of vm.json, which is read again when the file changed."""
        try:
            stat = self._folder.vm_file.stat()
            if (stat.st_mtime_ns, stat.st_ino) != self._vm_stamp:
                record = self._folder.vm()
                self._vm_stamp = (stat.st_mtime_ns, stat.st_ino)
                self._ends_ms = record.ends_ms if record else self._ends_ms
        except FileNotFoundError:
            return True  # the folder was discarded under us: nobody knows of this VM any more
        except (OSError, Damaged):
            pass  # keep the end that we know
        return 0 < self._ends_ms <= self._now()

    def _shut_down(self, grace_ms: int) -> None:
        """What an operating system does: SIGTERM to the service, then wait a bounded time for it."""
        if self._command is None or self._command in self._ended or grace_ms <= 0:
            return
        try:
            os.killpg(self._command, signal.SIGTERM)
        except ProcessLookupError:
            return
        until = self._ticks() + grace_ms
        while self._command not in self._ended and self._ticks() < until:
            self._sleep(min(until - self._ticks(), _TICK_MS))
            self._reap()

    def _kill_everything(self) -> bool:
        """SIGKILL to all that descends from the machine until it has no child left; False when that never comes."""
        for _ in range(_KILL_ROUNDS):
            if not self._reap():
                return True
            for process in processes.of_vms([self._folder.path])[self._folder.path]:
                if process != self._me:
                    processes.send(process, signal.SIGKILL)
            self._sleep(_KILL_WAIT_MS)
        return False

    def _reap(self) -> bool:
        """Collect ended children; False when there is none left, living or dead."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command:
                self._ended[pid] = status

    def _catch_signals(self) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._awake, alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self._asked = True

    def _sleep(self, milliseconds: int) -> None:
        """Until a signal comes or the time has passed."""
        readable, _, _ = select.select([self._awake], [], [], max(milliseconds, 0) / 1000)
        if readable:
            os.read(self._awake, 4096)

    def _say(self, phase: Phase, why: str = "") -> None:
        assert self._me is not None
        try:
            self._folder.save_machine(MachineRecord(self._me.pid, self._me.started, phase, why))
        except OSError as error:
            self._log(f"can't write machine.json: {error}")

    def _log(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk ends no VM, nor keeps one from ending as it should
            sys.stderr.write(f"machine: {text}\n")
            sys.stderr.flush()
