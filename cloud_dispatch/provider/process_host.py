"""A driver in a process of its own, seen as a provider. Owns the child: starting it, its death, its successor.

For drivers that parse much: their work costs the dispatcher's loop nothing but the decoding of answers. When the child
dies, calls that may have changed something are in doubt, the others had no effect; the next call starts another one,
after a pause that grows while children do not live. What a driver knows must therefore be in its cloud.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from cloud_dispatch.domain.errors import InvalidInput, Unavailable
from cloud_dispatch.provider import codec
from cloud_dispatch.provider.codec import CANCEL, CLOSE, Hello, Init, Reply, Request
from cloud_dispatch.provider.errors import InDoubt, ProviderError, Transient
from cloud_dispatch.provider.funnel import Call, Funnel
from cloud_dispatch.provider.spi import ProfileContext, Traits

log = structlog.get_logger(__name__)
#: How long a driver may take to be made (importing a large SDK takes seconds), to let go, and to be gone.
CREATE_S = 30.0
CLOSE_S = 6.0
GONE_S = 2.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
#: A child that lived so long died of something else than its start.
HEALTHY_S = 60.0
#: A child that has not even taken back a call for so long is stuck: it is ended, and the next call starts another one.
STUCK_S = 60.0
MAX_IN_FLIGHT = 256
#: Calls that a dead child may have carried out.
CHANGES = frozenset({Call.LAUNCH, Call.TERMINATE, Call.EXTEND, Call.TAG, Call.DELETE_LEFTOVER})


class Child(Protocol):
    """What serves the other end of a socket."""

    def poll(self) -> object | None:
        """None while it lives."""

    def kill(self) -> None: ...

    def wait(self, timeout: float) -> object:
        """Block until it has ended, for so many seconds at most."""


Spawn = Callable[[socket.socket], Child]


def spawn(sock: socket.socket) -> Child:
    """A child on `sock`. Its arguments say nothing of the driver or its settings; Ctrl-C does not reach it."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cloud_dispatch.provider.process_child", str(sock.fileno()), str(os.getpid())],
        env={**os.environ, "PYTHONPATH": paths},
        pass_fds=[sock.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )


class ProcessHost(Funnel):
    """The driver that `target` (`module:attribute`, a plugin) makes for `context`, in a child.

    The context's clock stays here: the child has its own.
    """

    def __init__(self, target: str, context: ProfileContext, *, spawn: Spawn = spawn) -> None:
        """Starts the first child and waits for its driver. ImportError for what it lacks, Unavailable when it does not
        come up, InvalidInput for settings that can't travel."""
        self._init = Init(target, context.profile, _travelling(context), str(context.state_dir))
        self._spawn = spawn
        self._numbers = itertools.count(1)
        self._in_flight: dict[int, tuple[Call, asyncio.Future[Any]]] = {}
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._starting = asyncio.Lock()
        self._taken_back: dict[int, float] = {}
        self._pause_s = 0.0
        self._not_before = 0.0
        self._started = 0.0
        self._closed = False
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        try:
            self._child, self._socket, self.traits = self._first()
        except TimeoutError as error:
            raise self._unavailable(f"not within {CREATE_S:.0f} s") from error

    async def call(self, name: Call, *args: Any) -> Any:
        async with self._room:
            writer = await self._connected()
            number = next(self._numbers)
            body = codec.frame(Request(number, name, codec.raw(args)))
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._in_flight[number] = (name, answer)
            try:
                writer.write(body)
                with contextlib.suppress(ConnectionError):  # then the answer is the child's death
                    await writer.drain()
                return await answer
            except asyncio.CancelledError:
                self._take_back(number, writer)
                raise
            finally:
                self._in_flight.pop(number, None)

    async def close(self) -> None:
        """Let the driver close, for a bounded time, and end the child; calls after it are Transient errors."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._child.poll() is None:
                await self._ask_to_close()
        finally:
            self._sever("the driver was closed")
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            if self._writer is None:
                self._socket.close()
            await self._gone()

    async def _ask_to_close(self) -> None:
        writer, reading = await self._attached()
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_S):
                writer.write(codec.frame(Request(next(self._numbers), CLOSE)))
                await writer.drain()
                await asyncio.shield(reading)  # it ends with the stream

    # -- the child

    def _bear(self) -> tuple[Child, socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            return self._spawn(theirs), ours

    def _first(self) -> tuple[Child, socket.socket, Traits]:
        """A child that has made its driver. Blocks: the dispatcher does not run yet."""
        child, sock = self._bear()
        try:
            sock.settimeout(CREATE_S)
            sock.sendall(codec.frame(self._init))
            traits = _welcome(codec.read(_receive(sock), Hello))
            sock.setblocking(False)
        except BaseException as error:
            sock.close()
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GONE_S)
            if isinstance(error, (OSError, EOFError)) and not isinstance(error, TimeoutError):
                raise self._unavailable(repr(error)) from error
            raise
        return child, sock, traits

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(
            f"the driver of profile {self._init.profile} did not come up: {why}",
            hint="the dispatcher's standard error has what it said",
        )

    async def _connected(self) -> asyncio.StreamWriter:
        """The way to a living child; Transient while one that died may not be followed yet."""
        if self._closed:
            raise Transient(f"profile {self._init.profile}: the driver was closed")
        async with self._starting:
            writer, reading = await self._attached()
            if self._is_stuck():
                self._child.kill()
                await asyncio.wait({reading}, timeout=GONE_S)
            return await self._restart() if reading.done() else writer

    async def _attached(self) -> tuple[asyncio.StreamWriter, asyncio.Task[None]]:
        """The streams to the first child, from the first call on."""
        if self._writer is None or self._reading is None:
            return self._attach(*await asyncio.open_connection(sock=self._socket))
        return self._writer, self._reading

    def _attach(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamWriter, asyncio.Task[None]]:
        self._started = asyncio.get_running_loop().time()
        self._writer = writer
        self._reading = asyncio.create_task(self._read(reader), name=f"provider-{self._init.profile}")
        return writer, self._reading

    async def _restart(self) -> asyncio.StreamWriter:
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            wait = round((self._not_before - now) * 1000) + 1
            raise Transient(f"profile {self._init.profile}: its driver restarts", retry_after_ms=wait)
        self._back_off(now)
        await self._gone()
        self._child, sock = self._bear()
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            async with asyncio.timeout(CREATE_S):
                writer.write(codec.frame(self._init))
                self.traits = _welcome(codec.read(await _frame(reader), Hello))
        except BaseException as error:
            writer.close()
            self._child.kill()
            if not isinstance(error, Exception):
                raise
            log.error("provider.driver_not_restarted", profile=self._init.profile, error=repr(error))
            raise Transient(f"profile {self._init.profile}: its driver does not start: {error!r}") from error
        log.info("provider.driver_restarted", profile=self._init.profile)
        return self._attach(reader, writer)[0]

    def _back_off(self, now: float) -> None:
        if now - self._started > HEALTHY_S:
            self._pause_s = 0.0
        self._pause_s = min(max(self._pause_s * 2, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        self._not_before = now + self._pause_s

    async def _gone(self) -> None:
        """Wait, for a bounded time, until the child that was killed has ended."""
        self._child.kill()
        for _ in range(round(GONE_S / 0.01)):
            if self._child.poll() is not None:
                return
            await asyncio.sleep(0.01)

    # -- answers

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hand out answers until the child ends; then every call under way fails."""
        why = "its process ended"
        try:
            while True:
                self._hand_out(codec.read(await _frame(reader), Reply))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:
            why = f"what it says makes no sense: {error}"
        finally:
            if not self._closed:
                log.error("provider.driver_died", profile=self._init.profile, why=why)
            self._sever(why)

    def _hand_out(self, reply: Reply) -> None:
        self._taken_back.pop(reply.number, None)
        name, answer = self._in_flight.pop(reply.number, (None, None))
        if name is None or answer is None or answer.done():
            return
        if reply.failure is not None:
            answer.set_exception(codec.error_of(reply.failure))
            return
        try:
            answer.set_result(codec.result(name, reply.value))
        except Exception as error:
            answer.set_exception(RuntimeError(f"{name}: the driver answered nonsense: {error}"))

    def _sever(self, why: str) -> None:
        self._child.kill()
        self._taken_back.clear()
        for name, answer in self._in_flight.values():
            if not answer.done():
                answer.set_exception(self._died(name, why))
        if self._writer is not None:
            self._writer.close()

    def _died(self, name: Call, why: str) -> ProviderError:
        kind = InDoubt if name in CHANGES else Transient
        return kind(f"{name}: the driver of profile {self._init.profile} was lost: {why}", code="driver-died")

    def _take_back(self, number: int, writer: asyncio.StreamWriter) -> None:
        """Of a call that was answered in the same moment, no word is to come by which the child would be heard."""
        if number in self._in_flight and not writer.is_closing():
            self._taken_back[number] = asyncio.get_running_loop().time()
            writer.write(codec.frame(Request(next(self._numbers), CANCEL, codec.raw((number,)))))

    def _is_stuck(self) -> bool:
        if not self._taken_back:
            return False
        since = asyncio.get_running_loop().time() - next(iter(self._taken_back.values()))
        if since > STUCK_S:
            log.error("provider.driver_stuck", profile=self._init.profile, seconds=round(since))
        return since > STUCK_S


def _welcome(hello: Hello) -> Traits:
    """The driver's traits; the error of its making where it has none."""
    if hello.traits is not None:
        return hello.traits
    raise RuntimeError("a child that says nothing") if hello.failure is None else codec.error_of(hello.failure)


def _travelling(context: ProfileContext) -> Any:
    """The settings as JSON values; InvalidInput where they would not arrive as they are (a secret among them, say)."""
    settings = context.settings
    if not hasattr(settings, "model_dump"):
        return settings
    values = settings.model_dump(mode="json")
    if type(settings).model_validate(values) != settings:
        raise InvalidInput(
            f"the settings of profile {context.profile} can't be handed to another process",
            place=f"profiles.{context.profile}",
            hint="a driver's settings must give themselves again from their JSON, and hold no secret",
        )
    return values


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(codec.length(await reader.readexactly(codec.HEADER)))


def _receive(sock: socket.socket) -> bytes:
    """One frame, blocking; EOFError when the other side ends first."""
    return _exactly(sock, codec.length(_exactly(sock, codec.HEADER)))


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = sock.recv(min(left, 1 << 20))
        if not part:
            raise EOFError("its process ended")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
