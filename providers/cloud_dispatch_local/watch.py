"""`python -m cloud_dispatch_local.watch ROOT`: the watchdog of a registry, a process of its own.

Its composition root, and the other side of `Watch`, by which drivers see to it that one runs. Beside `vm` the only
place of the package that reads a clock. ROOT/watchdog is its post: locked for as long as it stands there, and with its
pid and start time in it. Who finds the post taken leaves at once, so that starting another one is harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from cloud_dispatch_local import detached, processes
from cloud_dispatch_local.processes import Process
from cloud_dispatch_local.registry import Registry
from cloud_dispatch_local.watchdog import PATIENCE_S, PERIOD_MS, Watchdog

#: How long a new watchdog may take to stand at its post.
_START_TRIES = 1_000
_START_WAIT_S = 0.01
#: Looks in a row without anything to watch, after which it leaves.
_IDLE_LOOKS = 2


class Watch:
    """What drivers ask of the watchdog of `registry`: to be there."""

    def __init__(self, registry: Registry) -> None:
        self._root = registry.root
        self._post = Post(registry.root)

    def process(self) -> Process | None:
        """The watchdog that stands there now."""
        found = self._post.holder()
        return found if found is not None and processes.alive(found) else None

    def start(self) -> None:
        """Start one unless it is there; one too many leaves by itself. Under the registry's lock it is the one that
        watches what is made there: it leaves under that lock only."""
        if self.process() is None:
            detached.start(__name__, self._root, self._root / "watchdog.log", {})

    async def stands(self) -> None:
        """Return when one that was started stands there; TimeoutError when none will."""
        for _ in range(_START_TRIES):
            if self.process() is not None:
                return
            await asyncio.sleep(_START_WAIT_S)
        raise TimeoutError(f"the watchdog of hard ends does not start: see {self._root / 'watchdog.log'}")


class Post:
    """The file of the watchdog: locked by it alone, read by everybody."""

    def __init__(self, root: Path) -> None:
        self._path = root / "watchdog"
        self._handle = -1

    def holder(self) -> Process | None:
        """Who wrote itself down there last, dead or alive."""
        try:
            values = json.loads(self._path.read_bytes())
            return Process(int(values["pid"]), str(values["started"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # nobody yet, nobody any more, or about to

    def take(self) -> bool:
        """Stand there; False where another one does."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        me = processes.identify(os.getpid())
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        assert me is not None
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": me.pid, "started": me.started}).encode(), 0)
        self._handle = handle
        return True

    def is_ours(self) -> bool:
        """Whether the file that we hold is still the one that others find: a root may be deleted, and made again."""
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        except OSError:
            return False

    def leave(self) -> None:
        os.ftruncate(self._handle, 0)
        os.close(self._handle)


async def stand(watchdog: Watchdog, post: Post) -> None:
    """Look every period until there is nothing to watch, or no registry any more."""
    idle, told = 0, ""
    while post.is_ours():
        begin = time.monotonic()
        try:
            idle = 0 if await watchdog.look() else idle + 1
            if idle >= _IDLE_LOOKS and await watchdog.relieved(post.leave):
                return
        except Exception as error:  # whatever it was: the next look comes
            if told != repr(error):
                told = repr(error)
                _say(traceback.format_exc())
        await asyncio.sleep(max(PERIOD_MS / 1000 - (time.monotonic() - begin), 0.1))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk is no reason to stop
        sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
        sys.stderr.flush()


def main() -> int:
    os.setsid()  # the shell led the session that we were born in
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    registry = Registry(Path(sys.argv[1]), PATIENCE_S)
    post = Post(registry.root)
    if post.take():
        asyncio.run(stand(Watchdog(registry, _now, _say), post))
    return 0


if __name__ == "__main__":
    sys.exit(main())
