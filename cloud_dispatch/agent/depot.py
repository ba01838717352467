"""What an attempt knows of transfers before it has any: where outputs go, how a transfer fails, how it is ended early.

Apart from `transfers`, whose part of the standard library takes long to load, and which most tasks never need.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, List, Optional  # noqa: UP035

if TYPE_CHECKING:
    import ssl

#: What the kernel says of a disk, or of a user's part of it, that is full.
FULL = (errno.ENOSPC, errno.EDQUOT)


class TransferFailed(Exception):
    """An input is not to be had, or an output can't be stored; the text is for the task's user."""


class NoRoom(TransferFailed):
    """The disk of the VM has no room for the inputs, which need `needs` bytes as far as is known."""

    def __init__(self, why: str, needs: int) -> None:
        super().__init__(why)
        self.needs = needs


class TransferStopped(Exception):
    """The attempt is killed: its transfers stop."""


class Stop:
    """Whether an attempt's transfers are to end. Set by the event loop, asked by the thread that transfers: one that
    waits for another machine can't ask, so the connections that it waits on end with it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._watched: List[socket.socket] = []

    def set(self) -> None:
        """From now on `check` raises, and nothing more goes or comes over what is watched."""
        with self._lock:
            self._event.set()
            for each in self._watched:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        if self._event.is_set():
            raise TransferStopped

    def watch(self, connection: socket.socket) -> None:
        """`connection` ends when this is set, until `unwatch`."""
        own = connection.dup()  # of its own: the other may be closed at any time, and its number given to another
        with self._lock:
            self._watched.append(own)
        self.check()

    def unwatch(self) -> None:
        """What was watched is over."""
        with self._lock:
            while self._watched:
                self._watched.pop().close()


@dataclass(frozen=True)
class Depot:
    """Where outputs without a URL go: the dispatcher, by its URL and a token: the agent's of the moment, or the
    attempt's own."""

    url: str
    token: Callable[[], str]
    tls: Optional[ssl.SSLContext]
    fingerprint: str
