"""Housekeeping. Owns that what is past retention is deleted, a bounded piece at a time, beside the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from cloud_dispatch.domain.errors import DispatchError
from cloud_dispatch.domain.ids import FencingToken, TaskId
from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.store import Retention, Store
from cloud_dispatch.reconcile.steady import Steady

log = structlog.get_logger(__name__)
INTERVAL_S = 600
PIECE = 1_000
#: Outputs are stored before their task ends; when its row goes they are as old as that, and a little.
OUTPUTS_LONGER_MS = 86_400_000


class Prunable(Protocol):
    def prune(self, before_ms: int, held: Callable[[TaskId, FencingToken], bool]) -> bool:
        """Delete the files of claims that were neither written to nor `held` since `before_ms`, of a bounded number of
        them; returns whether there are others."""


class SlowlyPrunable(Protocol):
    async def prune(self, before_ms: int, held: Callable[[TaskId, FencingToken], bool]) -> bool:
        """Delete files older than `before_ms`, as `Prunable.prune`, waiting for the disk beside the loop."""


class Keeper:
    """Prunes the store by its retention settings, logs by theirs (`logs_ms` None: for ever), and outputs a little after
    the tasks that they belong to; files of held claims stay."""

    def __init__(
        self, store: Store, clock: Clock, retention: Retention, logs: Prunable, logs_ms: int | None,
        outputs: SlowlyPrunable,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._retention = retention
        self._logs = logs
        self._logs_ms = logs_ms
        self._outputs = outputs
        self._stopped = asyncio.Event()
        self._steady = Steady(clock)

    def follow(self, retention: Retention, logs_ms: int | None) -> None:
        """From the next time on these are the settings."""
        self._retention, self._logs_ms = retention, logs_ms

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Prune now and at intervals, until `stop`."""
        while not self._stopped.is_set():
            await self.prune()
            try:
                async with asyncio.timeout(INTERVAL_S):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def prune(self) -> None:
        """Delete everything that is past retention, in pieces, so that claims are never held up for long. Where one
        kind can't be deleted the others are: a full disk takes no commit, and what is deleted first there is files.
        Nothing is while the clock has moved: what is a year old by it may be of today."""
        if not self._steady.look():
            return
        now = self._clock.now()
        for kind in (self._prune_rows, self._prune_logs, self._prune_outputs):
            try:
                await kind(now)
            except (DispatchError, OSError) as error:
                log.warning("keeping.failed", error=str(error))

    async def _prune_rows(self, now: int) -> None:
        deleted = await self._store.prune(now, self._retention, batch=PIECE)
        # The others are not looked through each time: of millions of rows that takes seconds.
        while more := [kind for kind, count in deleted.items() if count >= PIECE]:
            await asyncio.sleep(0.05)
            deleted = await self._store.prune(now, self._retention, batch=PIECE, of=more)

    # Files are looked at to the last, whichever are old: where more are written than looked at they would grow without
    # bound.
    async def _prune_logs(self, now: int) -> None:
        more = self._logs_ms is not None
        while more and not self._stopped.is_set():
            more = self._logs.prune(now - (self._logs_ms or 0), self._held)
            await asyncio.sleep(0.05)

    async def _prune_outputs(self, now: int) -> None:
        more = self._retention.tasks_ms is not None
        while more and not self._stopped.is_set():
            before_ms = now - (self._retention.tasks_ms or 0) - OUTPUTS_LONGER_MS
            more = await self._outputs.prune(before_ms, self._held)
            await asyncio.sleep(0.05)

    def _held(self, task: TaskId, token: FencingToken) -> bool:
        return self._store.token_of(task) == token
