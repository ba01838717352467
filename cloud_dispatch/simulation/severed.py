"""The ports of one incarnation of the dispatcher, which its death severs. Owns what passes while it lives, and that
nothing passes afterwards: a `finally` of the dead can't write, launch, name or answer anything.

Past the cut every call raises `Severed`. It is a cancellation, so that no `except Exception` keeps the dead walking.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy.engine import Connection, Engine

from cloud_dispatch.ports.clock import Clock
from cloud_dispatch.ports.entropy import Entropy
from cloud_dispatch.provider.funnel import Call, Wrapper
from cloud_dispatch.provider.spi import Provider
from cloud_dispatch.statestore import Line
from cloud_dispatch.statestore.batch import Batch, Statements
from cloud_dispatch.statestore.lock import AdvisoryLock, FileLock

T = TypeVar("T")


class Severed(asyncio.CancelledError):
    """The incarnation that asks is dead."""


class StoreFaults(Protocol):
    """What goes wrong now between the dispatcher and its statestore."""

    def store_delay_ms(self) -> int:
        """How long the statestore makes its callers wait now."""

    def store_fails(self) -> bool:
        """Whether the statestore fails now."""

    def store_is_cut(self) -> bool:
        """Whether nothing passes between the dispatcher and its statestore now."""

    def answer_lost(self) -> bool | None:
        """Whether the transaction that begins now is carried out though its answer is lost; None: its answer comes."""


class Hooks(Protocol):
    """What the world sees of the dispatcher's calls."""

    def committed(self, batch: Batch) -> None:
        """A transaction is durable; nobody has been told yet."""

    def point(self, name: str) -> None:
        """The dispatcher passes this point, e.g. `commit`, `launch sent`, `launch answered`: it may die here."""


class Cut:
    """Whether the incarnation is severed."""

    def __init__(self) -> None:
        self.severed = False
        #: Set while the world closes what the dead left open.
        self.burying = False
        #: Set while it lets go of its store, which needs no answer.
        self.leaving = False

    def check(self) -> None:
        if self.severed and not self.burying:
            raise Severed


class SeveredClock:
    """`ports.clock.Clock`."""

    def __init__(self, cut: Cut, clock: Clock) -> None:
        self._cut, self._clock = cut, clock

    def now(self) -> int:
        if self._cut.severed:
            self._cut.check()
        return self._clock.now()

    def monotonic(self) -> int:
        if self._cut.severed:
            self._cut.check()
        return self._clock.monotonic()


class SeveredEntropy:
    """`ports.entropy.Entropy`."""

    def __init__(self, cut: Cut, entropy: Entropy) -> None:
        self._cut, self._entropy = cut, entropy

    def name(self, purpose: str, length: int = 12) -> str:
        self._cut.check()
        return self._entropy.name(purpose, length)

    def secret(self, purpose: str) -> str:
        self._cut.check()
        return self._entropy.secret(purpose)

    def fraction(self, purpose: str) -> float:
        self._cut.check()
        return self._entropy.fraction(purpose)


class StoreExecutor:
    """Where the statestore's work runs: on the loop, after the delay that the scenario wants, failing when it says."""

    def __init__(self, cut: Cut, hooks: Hooks, faults: StoreFaults) -> None:
        self._cut, self._hooks, self._faults = cut, hooks, faults

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        self._cut.check()
        delay = self._faults.store_delay_ms()
        if delay and not self._cut.burying:
            await asyncio.sleep(delay / 1000)
            self._cut.check()
        batch = args[0] if args and isinstance(args[0], Batch) else None
        if batch is not None and self._faults.store_fails():
            raise sqlite3.OperationalError("disk I/O error")
        if batch is None and self._faults.store_is_cut() and not (self._cut.burying or self._cut.leaving):
            raise _cut()  # who reads, or opens it, can't either
        result = work(*args)
        if batch is not None:
            self._hooks.point("commit")
        self._cut.check()
        return result

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        return await self.run(work, *args)

    async def close(self) -> None:
        """Nothing runs between calls."""


def _cut() -> sqlite3.OperationalError:
    return sqlite3.OperationalError("the connection is lost")


class BreakingLine(Line):
    """The line to the statestore: cut where the scenario says so, which loses the answer of what is under way."""

    def __init__(self, hooks: Hooks, faults: StoreFaults) -> None:
        self._hooks, self._faults = hooks, faults

    def connect(self, engine: Engine, lock: FileLock | AdvisoryLock) -> Connection:
        if self._faults.store_is_cut():
            raise _cut()
        return super().connect(engine, lock)

    def perform(self, connection: Connection, statements: Statements, batch: Batch) -> dict[int, bytes]:
        lost = self._faults.answer_lost()
        if lost is False:
            raise _cut()
        specs = super().perform(connection, statements, batch)
        self._hooks.committed(batch)
        if lost:
            raise _cut()
        return specs


class PlanExecutor:
    """Plans beside the loop: the world goes on for `takes_ms` while the planner thinks."""

    def __init__(self, cut: Cut, takes_ms: int) -> None:
        self._cut, self._takes_ms = cut, takes_ms

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        self._cut.check()
        if self._takes_ms:
            await asyncio.sleep(self._takes_ms / 1000)
            self._cut.check()
        return work(*args)

    async def run_long(self, work: Callable[..., T], *args: Any) -> T:
        return await self.run(work, *args)

    async def close(self) -> None:
        """Nothing runs between calls."""


class SeveredProvider(Wrapper):
    """A driver that the dead can't reach, and points before and after each call at which to die."""

    def __init__(self, driver: Provider, cut: Cut, hooks: Hooks) -> None:
        super().__init__(driver)
        self._cut, self._hooks = cut, hooks

    async def call(self, name: Call, *args: Any) -> Any:
        self._cut.check()
        self._hooks.point(f"{name} asked")
        self._cut.check()
        try:
            result = await self.pass_on(name, *args)
        finally:
            self._cut.check()
        self._hooks.point(f"{name} answered")
        self._cut.check()
        return result
