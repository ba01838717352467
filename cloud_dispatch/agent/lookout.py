"""Watches the memory of running attempts. Owns when each is looked at and ends the ones past their limit."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import Any, Dict  # noqa: UP035

from cloud_dispatch.agent.memory import LOOK_LEAST_MS, next_look_ms, resident

#: The first look at an attempt: most tiny ones are over by then.
FIRST_LOOK_MS = 100


@dataclass
class _Watched:
    attempt: Any
    limit: int
    next_s: float
    seen_s: float
    used: int = 0


class Lookout:
    """One timer for all attempts that have a memory limit."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._watched: Dict[int, _Watched] = {}
        self._running = False

    def watch(self, attempt: Any) -> None:
        limit = attempt.order.spec.shape.resources.memory
        if limit <= 0:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._watched[attempt.token] = _Watched(attempt, limit, now + FIRST_LOOK_MS / 1000, now)
        if not self._running:
            self._running = True
            loop.call_later(LOOK_LEAST_MS / 1000, self._look)

    def unwatch(self, attempt: Any) -> None:
        self._watched.pop(attempt.token, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for watched in list(self._watched.values()):
            if now >= watched.next_s:
                self._measure(watched, now)
        self._running = bool(self._watched)
        if self._running:
            loop.call_later(LOOK_LEAST_MS / 1000, self._look)

    def _measure(self, watched: _Watched, now: float) -> None:
        attempt = watched.attempt
        pids = self._host.processes.alive(attempt.token)
        used = resident(pids)
        if used > watched.limit:
            used = self._host.processes.proportional(
                attempt.token
            )  # processes that share pages are not to blame for them twice
        if used > watched.limit:
            attempt.out_of_memory = "used %d bytes of memory, its limit is %d" % (used, watched.limit)
            self._host.processes.signal(attempt.token, signal.SIGKILL)
        pause = next_look_ms(used, watched.used, int((now - watched.seen_s) * 1000), watched.limit)
        watched.used, watched.seen_s, watched.next_s = used, now, now + pause / 1000
