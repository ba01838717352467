"""Takes logs to the dispatcher. Owns a few connections of its own, so that logs never delay a sync, and the rhythm:
the first bytes at once, later ones gathered. A log that can't be brought away never holds a result for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Callable, List, Optional, Tuple  # noqa: UP035

from cloud_dispatch.agent.channel import Channel, Unreachable
from cloud_dispatch.agent.logs import CHUNK_BYTES, LogStream
from cloud_dispatch.agent.waiting import within
from cloud_dispatch.wire.messages import LOGS_PATH

#: Later bytes are gathered for so long, unless a full chunk waits.
GATHER_S = 0.1
#: A result waits for its log at most so long after the command ended, the dispatcher's absence not counted.
LINGER_S = 10.0
#: What comes through too slowly for that is cut down to its end, which has so long once more.
LAST_S = 5.0
#: With syncs answered and logs unreachable all the same, it waits at most so long.
AWAY_S = 60.0
_LINGER_STEP_S = 0.25
_ANSWER_S = 15.0
_RETRY_FIRST_S = 0.2
_RETRY_MOST_S = 5.0
#: Answers after which the same bytes need not be offered again: refused, unknown, stale, too large, over the limit.
_FINAL = frozenset({400, 404, 409, 410, 413})
#: Unless they say that what was sent before is not there any more.
_CONFLICT, _GAP = 409, "gap"


class ChannelPool:
    """At most `count` connections, made when needed, each for one request at a time."""

    def __init__(self, make: Callable[[], Channel], count: int) -> None:
        self._make = make
        self._free: List[Channel] = []
        self._places = asyncio.Semaphore(count)

    async def request(self, method: str, path: str, body: bytes, bearer: str = "") -> Tuple[int, bytes]:
        async with self._places:
            channel = self._free.pop() if self._free else self._make()
            try:
                asking = channel.request(method, path, body, "application/octet-stream", bearer)
                return await within(_ANSWER_S, asking)
            except asyncio.TimeoutError:
                raise Unreachable("no answer within %d s" % _ANSWER_S) from None
            finally:
                self._free.append(channel)

    def close(self) -> None:
        for channel in self._free:
            channel.close()


class LogUpload:
    """Brings one stream away while it grows, with the token of its attempt where there is one. `done` is set once it
    finished and all of it is sent, or was refused."""

    def __init__(self, stream: LogStream, pool: ChannelPool, task: int, token: int, bearer: str = "") -> None:
        self.stream = stream
        self.done = asyncio.Event()
        #: The last attempt to send found nobody.
        self.unreachable = False
        self._pool = pool
        self._bearer = bearer
        self._path = "%s?task=%d&token=%d&offset=" % (LOGS_PATH, task, token)
        self._news = asyncio.Event()
        self._dry = False  # all was sent: any byte is news
        self._work: Optional[asyncio.Task[None]] = None

    def fed(self) -> None:
        """The stream has more bytes."""
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._run())
        elif self._dry or self.stream.pending >= CHUNK_BYTES:
            self._news.set()

    def finish(self) -> bool:
        """The stream is complete. True when there is nothing left to wait for."""
        self.stream.finish()
        if self.stream.pending:
            self.fed()
        elif self._work is None:
            self.done.set()
        self._news.set()
        return self.done.is_set()

    async def linger(self, in_contact: Callable[[], bool], hurry: Callable[[], bool]) -> None:
        """Wait until it is brought away, for a bounded time, or until `hurry`. While the dispatcher is out of reach the
        result could not be told either: that time does not count, and the end of the lease bounds it. The log may find
        out first, since syncs can be a heartbeat apart. Of one that gets through too slowly the end is brought, which
        mostly says why a command failed."""
        began = self.stream.offset
        await self._wait(in_contact, hurry, LINGER_S)
        if not self.done.is_set() and self.stream.offset > began:
            self.stream.abridge()
            await self._wait(in_contact, hurry, LAST_S)

    async def _wait(self, in_contact: Callable[[], bool], hurry: Callable[[], bool], most_s: float) -> None:
        waited_s = away_s = 0.0
        while not self.done.is_set() and not hurry() and waited_s < most_s and away_s < AWAY_S:
            try:
                await within(_LINGER_STEP_S, self.done.wait())
            except asyncio.TimeoutError:  # noqa: PERF203
                if in_contact() and self.unreachable:
                    away_s += _LINGER_STEP_S
                elif in_contact():
                    waited_s += _LINGER_STEP_S

    def close(self) -> None:
        """Stop at once; what is not sent is lost."""
        self.stream.close()
        self.done.set()
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        retry_s = _RETRY_FIRST_S
        while True:
            piece = self.stream.peek()
            if piece:
                try:
                    path = self._path + str(self.stream.offset)
                    status, body = await self._pool.request("POST", path, piece, self._bearer)
                    self.unreachable = False
                except Unreachable:
                    status, body, self.unreachable = 503, b"", True
                if status == _CONFLICT and _said(body, "code") == _GAP:
                    if await self._go_back():
                        continue
                    status = 503
                if status in _FINAL:
                    break
                if status >= 300:
                    await asyncio.sleep(retry_s)
                    retry_s = min(retry_s * 2, _RETRY_MOST_S)
                    continue
                retry_s = _RETRY_FIRST_S
                self.stream.advance(len(piece))
            elif self.stream.finished:
                break
            await self._gather()
        self.stream.close()
        self.done.set()

    async def _gather(self) -> None:
        """Wait until there is a reason to send: a full chunk, the end, or bytes that waited long enough. A command that
        says nothing costs nothing."""
        stream = self.stream
        self._dry = not stream.pending and not stream.finished
        if self._dry:
            self._news.clear()
            await self._news.wait()
            self._dry = False
        if stream.pending < CHUNK_BYTES and not stream.finished:
            self._news.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(GATHER_S, self._news.wait())

    async def _go_back(self) -> bool:
        """Set the stream to where the dispatcher's part of the log ends, before `offset`, as it has lost the rest. An
        empty chunk asks for that. Whether it could be done."""
        try:
            _, body = await self._pool.request("POST", self._path + "0", b"", self._bearer)
        except Unreachable:
            return False
        stored = _said(body, "offset")
        if not isinstance(stored, int) or not 0 <= stored < self.stream.offset:
            return False
        self.stream.go_back(stored)
        return True


def _said(body: bytes, name: str) -> Any:
    try:
        return json.loads(body).get(name)
    except (ValueError, AttributeError):
        return None
