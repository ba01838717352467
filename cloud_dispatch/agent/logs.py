"""The log of one attempt until the dispatcher has it. Owns its bounds: memory, disk, and the limit of the policy.

Up to the limit the head is kept; past it the last 64 KiB, and a line that says how much is missing between. A command
that writes faster than the dispatcher takes is never blocked: what is not yet sent goes to disk, what can't is dropped.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections import deque
from typing import Deque, Optional  # noqa: UP035

from cloud_dispatch.agent.baggage import Unsent

#: Unsent bytes kept in memory before they go to disk.
MEMORY_BYTES = 262_144
#: Most bytes in one upload.
CHUNK_BYTES = 262_144
TAIL_BYTES = 65_536


class LogStream:
    """Bytes in by `feed`, out by `peek` and `advance`, at offsets that count from 0 without holes. What is in memory
    comes before what is on disk."""

    def __init__(self, spill_path: str, limit: int) -> None:
        self.offset = 0  # of the next byte to send
        self.finished = False
        self._spill_path = spill_path
        self._spill: Optional[int] = None
        self._spill_read = 0
        self._spill_size = 0
        self._memory = bytearray()
        self._head_left = max(limit - TAIL_BYTES, 0)
        self._tail: Deque[bytes] = deque()
        self._tail_size = 0
        self._tail_most = min(TAIL_BYTES, limit)
        self._dropped = 0
        self._told_at = -1  # at which offset it is said how much was dropped

    def pack(self) -> Unsent:
        """What another program needs to go on with it; the file on disk stays where it is."""
        tail = base64.b64encode(b"".join(self._tail)).decode("ascii")
        memory = base64.b64encode(self._memory).decode("ascii")
        return Unsent(self.offset, memory, self._spill_read, self._spill_size, self._head_left, tail, self._dropped)

    def take_over(self, unsent: Unsent) -> None:
        """Go on where the stream stood that `pack` was asked of. What of it can't be had any more counts as dropped."""
        self.offset = unsent.offset
        self._memory += base64.b64decode(unsent.memory)
        self._head_left = unsent.head_left
        tail = base64.b64decode(unsent.tail)
        if tail:
            self._tail.append(tail)
            self._tail_size = len(tail)
        self._dropped = unsent.dropped
        if unsent.spill_size > unsent.spill_read:
            try:
                self._spill = os.open(self._spill_path, os.O_RDWR | os.O_CLOEXEC)
                self._spill_read, self._spill_size = unsent.spill_read, unsent.spill_size
            except OSError:
                self._dropped += unsent.spill_size - unsent.spill_read

    def feed(self, piece: bytes) -> None:
        """Take what the command wrote; never fails and never waits."""
        if self._head_left:
            head = piece[: self._head_left]
            self._head_left -= len(head)
            self._keep(head)
            piece = piece[len(head) :]
        if piece:
            self._tail.append(piece)
            self._tail_size += len(piece)
            while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_most:
                gone = self._tail.popleft()
                self._tail_size -= len(gone)
                self._dropped += len(gone)

    def finish(self) -> None:
        """The command is over: the tail follows the head, with a line about what was dropped between."""
        if self.finished:
            return
        self.finished = True
        tail = b"".join(self._tail)
        self._tail.clear()
        surplus = max(len(tail) - self._tail_most, 0)
        self._dropped += surplus
        if self._dropped:
            self._told_at = self.offset + self.pending
            self._keep(_line(self._dropped))
        if tail:
            self._keep(tail[surplus:])

    @property
    def pending(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._memory) + self._spill_size - self._spill_read

    def peek(self) -> bytes:
        """The next bytes to send, from `offset` on; empty when there is none."""
        if not self._memory and self._spill_size > self._spill_read and self._spill is not None:
            return os.pread(self._spill, CHUNK_BYTES, self._spill_read)
        return bytes(self._memory[:CHUNK_BYTES])

    def advance(self, count: int) -> None:
        """The dispatcher has the next `count` bytes."""
        self.offset += count
        if not self._memory and self._spill_size > self._spill_read and self._spill is not None:
            self._spill_read += count
            if self._spill_read == self._spill_size:
                self._empty_disk()
        else:
            del self._memory[:count]

    def abridge(self) -> None:
        """It is finished, and there is no time for all of it: what may be on its way stays, and the tail, with a line
        about what was dropped between, or before."""
        try:
            going, tail = self.peek(), self._last(TAIL_BYTES)
        except OSError:
            return
        missing = self.pending - len(going) - len(tail)
        if missing <= 0:
            return
        if len(going) <= self._told_at - self.offset < len(going) + missing:
            missing += self._dropped - len(_line(self._dropped))
        self._empty_disk()
        self._memory = bytearray(going + _line(missing) + tail)

    def _last(self, count: int) -> bytes:
        """The last bytes that wait to be sent."""
        begin = max(self._spill_size - count, self._spill_read)
        spilled = b"" if self._spill is None else os.pread(self._spill, self._spill_size - begin, begin)
        rest = count - len(spilled)
        return bytes(self._memory[-rest:] if rest else b"") + spilled

    def _empty_disk(self) -> None:
        if self._spill is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._spill, 0)
        self._spill_read = self._spill_size = 0

    def go_back(self, offset: int) -> None:
        """The dispatcher has lost what it had beyond `offset`, and it is not here any more: go on there, with a line
        that says how much is missing."""
        self._memory[:0] = b"\n[cloud-dispatch: %d bytes of output were lost here]\n" % (self.offset - offset)
        self.offset = offset

    def close(self) -> None:
        """Give everything up that is not sent, and the file on disk."""
        self.finished = True
        self._memory.clear()
        self._tail.clear()
        if self._spill is not None:
            os.close(self._spill)
            self._spill = None
            self._spill_read = self._spill_size = 0
            with contextlib.suppress(OSError):
                os.unlink(self._spill_path)

    def _keep(self, piece: bytes) -> None:
        """Append to what is to be sent; a full disk turns it into dropped bytes."""
        try:
            self._memory_or_disk(piece)
        except OSError:
            self._dropped += len(piece)

    def _memory_or_disk(self, piece: bytes) -> None:
        on_disk = self._spill_size > self._spill_read
        if not on_disk and len(self._memory) + len(piece) <= MEMORY_BYTES:
            self._memory += piece
            return
        if self._spill is None:
            self._spill = os.open(self._spill_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        block = piece if on_disk else bytes(self._memory) + piece
        written = os.pwrite(self._spill, block, self._spill_size)
        if written != len(block):
            os.ftruncate(self._spill, self._spill_size)
            raise OSError("the disk is full")
        if not on_disk:
            self._memory.clear()
        self._spill_size += len(block)


def _line(missing: int) -> bytes:
    """What stands in the place of so many bytes."""
    return b"\n[cloud-dispatch: %d bytes of output were dropped here]\n" % missing
