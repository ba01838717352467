"""`python -m cloud_dispatch.provider.process_child FD`: a driver, alone in a process, served over an inherited socket.

The composition root of that process, and the only place here that reads a clock. Ends with the socket, and with the
process that started it, even while the driver blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import importlib
import io
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from cloud_dispatch import collector
from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.provider import codec
from cloud_dispatch.provider.codec import CANCEL, CLOSE, Failure, Hello, Init, Reply, Request
from cloud_dispatch.provider.funnel import Call
from cloud_dispatch.provider.spi import Plugin, ProfileContext, Provider

_PR_SET_PDEATHSIG = 1
_CLOSE_S = 5.0


async def serve(sock: socket.socket) -> None:
    """Make the driver that the first frame names, answer calls until the other side closes, then let the driver go."""
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        init: Init = codec.read(await _frame(reader), Init)
        try:
            driver = _make(init)
        except Exception as error:
            if not isinstance(error, ImportError):
                traceback.print_exc()
            writer.write(codec.frame(Hello(failure=codec.failure_of(error))))
            await writer.drain()
            return
        writer.write(codec.frame(Hello(traits=driver.traits)))
        await _Service(driver, writer).run(reader)
    except (asyncio.IncompleteReadError, ConnectionError):
        return  # the other side is gone
    finally:
        writer.close()


class _Service:
    """The driver's calls under way, by the numbers of their requests."""

    def __init__(self, driver: Provider, writer: asyncio.StreamWriter) -> None:
        self._driver = driver
        self._writer = writer
        self._running: dict[int, asyncio.Task[msgspec.Raw]] = {}

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Take requests to the end of the stream; how many are under way is bounded by the other side."""
        closing: Request | None = None
        try:
            while closing is None:
                request: Request = codec.read(await _frame(reader), Request)
                if request.call == CLOSE:
                    closing = request
                elif request.call == CANCEL:
                    (number,) = codec.read(bytes(request.args), tuple[int])
                    if number in self._running:
                        self._running[number].cancel()
                else:
                    task = asyncio.create_task(self._carried_out(request))
                    self._running[request.number] = task
                    task.add_done_callback(functools.partial(self._answer, request.number))
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._driver.close()
        self._say(Reply(closing.number))
        await self._writer.drain()

    async def _carried_out(self, request: Request) -> msgspec.Raw:
        call = Call(request.call)
        return codec.raw(await getattr(self._driver, call)(*codec.arguments(call, request.args)))

    def _answer(self, number: int, task: asyncio.Task[msgspec.Raw]) -> None:
        """Say what a call came to. Here and not in the call's own task: one that is taken back before its first step
        runs none of it, and it is the answer by which the other side knows that this process is well."""
        del self._running[number]
        if task.cancelled():
            reply = Reply(number, failure=Failure("CancelledError", "the caller gave up"))
        elif (error := task.exception()) is not None:
            reply = Reply(number, failure=codec.failure_of(error))
            if codec.is_bug(error):
                traceback.print_exception(error)
        else:
            reply = Reply(number, task.result())
        self._say(reply)

    def _say(self, reply: Reply) -> None:
        """Put it in the way out, whose bound is that of the calls under way."""
        try:
            body = codec.frame(reply)
        except Exception as error:  # too large, or nothing that travels
            body = codec.frame(Reply(reply.number, failure=codec.failure_of(error)))
        self._writer.write(body)


def _make(init: Init) -> Provider:
    module, _, name = init.target.partition(":")
    plugin: Plugin = getattr(importlib.import_module(module), name)
    settings: Any = init.settings
    if hasattr(plugin.settings, "model_validate"):
        settings = plugin.settings.model_validate(settings)
    return plugin.create(ProfileContext(ProfileName(init.profile), settings, Path(init.state_dir), now=_now))


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(codec.length(await reader.readexactly(codec.HEADER)))


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends: a driver that blocks would not see the socket close."""
    with contextlib.suppress(OSError, AttributeError):  # not on Linux: the closed socket has to do
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


class _Said(io.TextIOWrapper):
    """Standard error, for what a driver logs. What a full disk, or a pipe without a reader, does not take is lost,
    and is no error of the call that said it."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def _to_stderr() -> None:
    """Unbuffered: what was once not taken must not come up in later records."""
    raw = io.FileIO(2, "w", closefd=False)
    sys.stdout = sys.stderr = _Said(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def main() -> int:
    _to_stderr()
    collector.spare()  # an SDK is hundreds of thousands of objects
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    with socket.socket(fileno=descriptor) as sock:
        sock.setblocking(False)
        asyncio.run(serve(sock))
    return 0


if __name__ == "__main__":
    sys.exit(main())
