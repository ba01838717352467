"""Attempts on a simulated VM: virtual processes that take their task's time. Owns what a command, a signal and an
exit are there; what the agent does about them is the agent's own state machine.

Logs go through the agent's own upload; outputs are sent to the dispatcher under the attempt's token.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from cloud_dispatch.agent.logs import LogStream
from cloud_dispatch.agent.uploads import ChannelPool, LogUpload
from cloud_dispatch.simulation.conduct import Conduct, conduct_of
from cloud_dispatch.wire.messages import OUTPUTS_PATH, Order, OutputFile, Result

SPAWN_MS = 2
#: From a signal to the exit that it causes.
DYING_MS = 5


class Host(Protocol):
    """The shell that an attempt lives in."""

    log_pool: ChannelPool
    log_limit: int

    @property
    def in_contact(self) -> bool: ...

    def after(self, milliseconds: int, callback: Callable[..., None], *args: Any) -> None:
        """Call it then, whatever happens meanwhile: it must do nothing once the attempt is over."""

    def spawn(self, work: Any) -> None:
        """Run a coroutine as long as the agent lives."""

    def started(self, attempt: VirtualAttempt) -> None: ...

    def exited(self, attempt: VirtualAttempt) -> None:
        """Nothing of it lives any more."""

    def vacated(self, attempt: VirtualAttempt) -> None: ...

    def ended(self, attempt: VirtualAttempt, result: Result) -> None: ...

    async def request(self, method: str, path: str, body: bytes, bearer: str) -> tuple[int, bytes]: ...


class VirtualAttempt:
    """One claim in the hands of the shell."""

    __slots__ = (
        "_conduct",
        "_delivering",
        "_exit",
        "_host",
        "_log",
        "_over",
        "_simulated",
        "alive",
        "gpus",
        "order",
        "token",
    )

    def __init__(self, order: Order, host: Host, gpus: tuple[int, ...] = ()) -> None:
        self.order = order
        self.gpus = gpus  # that its command is told of
        self.token = order.token
        self.alive = False
        self._host = host
        conduct = conduct_of(tuple(order.spec.argv))
        self._simulated = conduct is not None
        self._conduct = conduct or Conduct()
        self._exit: tuple[str, int | None, int | None] | None = None
        self._over = False
        self._delivering: Result | None = None  # what to report if it is killed while it delivers
        self._log: LogUpload | None = None

    def begin(self) -> None:
        """Start towards the command."""
        if not self._simulated:
            self._report(Result(self.order.task, self.token, "cannot-start", detail="not a simulated command"))
            return
        self._host.after(SPAWN_MS, self._launch)

    def signal(self, number: int) -> None:
        """A signal reaches the process, or ends the attempt before there is one."""
        if self._over:
            return
        kills = number == signal.SIGKILL
        if not self.alive:
            if self._exit is None:
                self._report(Result(self.order.task, self.token, "cancelled", detail="killed before it started"))
            elif kills and self._delivering is not None:
                self._report(self._delivering)  # what is not brought away by now stays behind
            return
        if (kills and not self._conduct.unkillable) or not (kills or self._conduct.ignores_term):
            self._host.after(DYING_MS, self._leave, ("signal", None, number))

    def prod(self, number: int) -> None:
        """A signal reaches the main process alone."""
        after_ms = self._conduct.checkpoint_ms
        self._host.after(
            max(after_ms, DYING_MS), self._leave, ("exit-code", 75, None) if after_ms >= 0 else ("signal", None, number)
        )

    def vanish(self) -> None:
        """The agent or its VM has gone, and the process with it, without a word."""
        if self.alive:
            self.alive = False
            self._host.exited(self)
        self._over = True
        if self._log is not None:
            self._log.close()

    @property
    def unkillable(self) -> bool:
        return self._conduct.unkillable

    @property
    def run_ms(self) -> int:
        """For so long it runs where nothing ends it."""
        return self._conduct.run_ms if self._simulated else 0

    @property
    def exit(self) -> tuple[str, int | None, int | None] | None:
        """Cause, exit code and signal, once the command has exited."""
        return self._exit

    # -- its way
    def _launch(self) -> None:
        if self._over:
            return
        self.alive = True
        self._host.started(self)
        self._print()
        self._host.after(max(self._conduct.run_ms, 1), self._finish)

    def _finish(self) -> None:
        conduct = self._conduct
        if self.order.attempt <= conduct.fails:
            self._leave(("exit-code", 1, None))
        elif conduct.cause == "success":
            self._leave(("success", 0, None))
        elif conduct.cause == "exit-code":
            self._leave(("exit-code", conduct.exit_code or 1, None))
        else:
            self._leave((str(conduct.cause), None, signal.SIGKILL if conduct.cause == "signal" else None))

    def _leave(self, how: tuple[str, int | None, int | None]) -> None:
        """The process exits; only the first exit counts."""
        if self._over or not self.alive:
            return
        self.alive = False
        self._exit = how
        self._host.exited(self)
        self._print()
        cause, exit_code, number = how
        result = Result(self.order.task, self.token, cause, exit_code, number)
        brings = bool(self.order.spec.outputs) and cause == "success"
        if not brings and (self._log is None or self._log.finish()):
            self._report(result)
            return
        self._delivering = (
            result
            if not brings
            else Result(self.order.task, self.token, "cancelled", detail="killed while its outputs were stored")
        )
        self._host.vacated(self)
        self._host.spawn(self._deliver(result, brings))

    async def _deliver(self, result: Result, brings: bool) -> None:
        if self._log is not None:
            self._log.finish()
        if brings:
            await self._bring(result)
        if self._log is not None:
            await self._log.linger(lambda: self._host.in_contact, lambda: False)
        self._report(result)

    async def _bring(self, result: Result) -> None:
        """Each output's content is the token: so a file of another attempt is known for what it is."""
        for output in self.order.spec.outputs:
            query = f"?task={self.order.task}&token={self.token}&path={output.path}"
            content, bearer = str(self.token).encode(), self.order.task_token
            status, body = await self._host.request("PUT", OUTPUTS_PATH + query, content, bearer)
            if status >= 300:
                result.cause, result.detail = "output-failed", f"HTTP {status}"
                return
            stored = msgspec.json.decode(body)
            result.outputs.append(OutputFile(output.path, "", stored["size"], stored["sha256"]))

    def _print(self) -> None:
        count = self._conduct.log_bytes // 2
        if count and self._host.log_limit:
            if self._log is None:
                stream = LogStream("", self._host.log_limit)
                self._log = LogUpload(stream, self._host.log_pool, self.order.task, self.token, self.order.task_token)
            self._log.stream.feed(b"." * count)
            self._log.fed()

    def _report(self, result: Result) -> None:
        if not self._over:
            self._over = True
            if self._log is not None:
                self._log.close()
            self._host.ended(self, result)
