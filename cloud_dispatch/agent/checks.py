"""Runs one health check: a command with a deadline. Owns its process and the last of its output, decides nothing."""

from __future__ import annotations

import asyncio
import os
from typing import Callable, Dict, Optional, Tuple  # noqa: UP035

from cloud_dispatch.agent.depot import FULL
from cloud_dispatch.agent.folders import NoneFree
from cloud_dispatch.agent.processes import CROWDED, Exit, Processes, describe_failure
from cloud_dispatch.wire.messages import HealthCheck

#: So much of the end of its output is told: no more fits into the reason of a condemned instance.
_OUTPUT_BYTES = 400
#: What a pipe holds, unless somebody made it larger.
_READ_BYTES = 65_536


class CheckRun:
    """One run of check `index`; `done(index, passed, detail)` is called once, with None for what could not be run.
    `beside`: there are attempts on the machine."""

    def __init__(
        self, index: int, check: HealthCheck, processes: Processes, env: Dict[str, str], beside: bool,
        done: Callable[[int, Optional[bool], str], None],
    ) -> None:  # fmt: skip
        self.pid = 0
        self._index = index
        self._check = check
        self._processes = processes
        self._env = env
        self._beside = beside
        self._done = done
        self._late = False
        self._pipe = -1
        self._said = b""
        self._timer: Optional[asyncio.TimerHandle] = None

    def begin(self) -> bool:
        """Start the command; False when it could not start, which is told at once: a failure, unless there was no room
        for it."""
        ends: Tuple[int, ...] = ()
        try:
            ends = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ends[0], False)  # the check's own end blocks: programs do not expect another
            self.pid = self._processes.spawn(self._check.argv, self._env, "/", ends[1], "")
        except (OSError, ValueError) as error:
            for end in ends:
                os.close(end)
            passed = None if self._excuses(error) else False
            self._done(self._index, passed, describe_failure(error, self._check.argv, "/"))
            return False
        self._pipe, writing = ends
        os.close(writing)
        self._processes.own_check(self.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._read)
        self._timer = loop.call_later(self._check.timeout_ms / 1000, self._expire)
        return True

    def _excuses(self, error: Exception) -> bool:
        """Whether `error` says nothing of the machine: what attempts have taken all of, they will give back."""
        taken = isinstance(error, OSError) and error.errno in (*CROWDED, *FULL)
        return isinstance(error, NoneFree) or (taken and self._beside)

    def _read(self) -> None:
        """Take what it has printed, so that it never waits for us; the end of it is kept."""
        try:
            piece = os.read(self._pipe, _READ_BYTES)
        except OSError:
            return
        if not piece:
            asyncio.get_running_loop().remove_reader(self._pipe)
        self._said = (self._said + piece)[-_OUTPUT_BYTES:]

    def _expire(self) -> None:
        self._late = True
        self._processes.end_check(self.pid)

    def exited(self, end: Exit) -> None:
        """Its process was reaped; what it left in its group goes with it."""
        if self._timer is not None:
            self._timer.cancel()
        self._processes.end_check(self.pid)
        self._processes.disown_check(self.pid)
        self._read()
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        said = self._said.decode("utf-8", "replace").strip()
        how = "no end within %d ms" % self._check.timeout_ms if self._late else end.describe()
        self._done(self._index, end.exit_code == 0 and not self._late, (how + " " + said).strip())
