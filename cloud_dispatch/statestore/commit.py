"""Group commit. Owns the gathering of concurrent calls into one transaction, and what a failure does to each of them.

Each call of the store is an `Operation`. A drain takes all that wait (at most `MAX_GROUP`), lets each plan in order
against the memory, writes what they planned in one transaction, and only then answers them: an answer means durable.

- A call that may not be made (DispatchError while planning) gets its error; the others of its group never notice.
  Operations check everything before they move anything, so such an error has nothing to take back.
- When the transaction fails, or an operation breaks in the middle, every move of the group is taken back, and each
  operation is tried once more alone: only what fails by itself gets the error.
- When the database does not answer, the calls of the group hear it at once. How long it is waited for is the
  connection's (`patience`).
- When the answer to a COMMIT is lost, the writer looks whether it landed (each transaction carries a number). As long
  as it can't look, calls are refused; before the next one the memory is loaded anew.

Where the transaction runs is the executor's matter. Planning is on the loop, so plain reads are always consistent;
while a commit is under way on a thread, or waits for calls that join it, they may already show moves of tasks (never of
instances, targets or facts) that are being committed, and show them taken back if it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import structlog
from msgspec import Struct
from sqlalchemy.engine import Connection

from cloud_dispatch.domain.errors import DispatchError, InvalidInput, Overloaded, StoreUnavailable
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.ports.executor import Executor, give_way
from cloud_dispatch.statestore.batch import Batch
from cloud_dispatch.statestore.engine import Unanswered
from cloud_dispatch.statestore.memory import Memory

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
#: Is told a shape and how many tasks of it were queued.
Listener = Callable[[Shape, int], object]
MAX_GROUP = 1024
MAX_WAITING = 100_000
GATHER_TURNS = 12
#: So many rows of instances and the like are some milliseconds of planning, and as much of writing.
COLD_AT_ONCE = 100
#: What the memory alone knows is written after so long, if no commit took it along before.
WRITE_SOON_S = 1.0
log = structlog.get_logger(__name__)


class Operation(Protocol[T_co]):
    """One call. The methods are called in this order, each once a try.

    `prepare`: reads that planning needs, on the writer's connection, off the loop. `plan`: check, then move the memory
    and fill the batch; raises DispatchError before the first move or not at all. `answer`: after the commit.
    """

    reads: bool

    def prepare(self, connection: Connection) -> None: ...

    def plan(self, batch: Batch) -> None: ...

    def answer(self, specs: Mapping[int, bytes]) -> T_co: ...


class Writer(Protocol):
    """The database's side: `prepare` and `perform` run where the executor puts them."""

    #: Whether it is not known if the last transaction was committed.
    doubtful: bool

    def reload(self) -> Memory: ...

    def prepare(self, operations: list[Operation[Any]]) -> None: ...

    def perform(self, batch: Batch) -> dict[int, bytes]: ...

    def error(self, error: BaseException) -> StoreUnavailable | InvalidInput | None:
        """What the callers get for an error that the database raises: it fails, or what it was given does. None for an
        error that is not the database's."""


class _Waiting(Struct, Generic[T], eq=False):
    operation: Operation[T]
    future: asyncio.Future[T]

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Nothing:
    """A call of its own for what the memory alone knows."""

    reads = False

    def prepare(self, connection: Connection) -> None:
        """Reads nothing."""

    def plan(self, batch: Batch) -> None:
        """Any group writes it."""

    def answer(self, specs: Mapping[int, bytes]) -> None:
        return None


class GroupCommit:
    """See the module. One a store; used on one event loop."""

    def __init__(self, memory: Memory, writer: Writer, executor: Executor) -> None:
        self._memory = memory
        self._writer = writer
        self._executor = executor
        self._waiting: deque[_Waiting[Any]] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._closed = False
        self._listeners: list[Listener] = []
        self._early: list[Listener] = []
        self._soon: asyncio.Task[None] | None = None
        #: What the database said when it last refused to be written, "" once it has been written again.
        self.trouble = ""
        #: Set when it did.
        self.troubled = asyncio.Event()

    def subscribe(self, listener: Listener, *, early: bool = False) -> None:
        """`listener` hears of tasks put into the queue: after the commit, or `early`, in time to share it."""
        (self._early if early else self._listeners).append(listener)

    @property
    def quiet(self) -> bool:
        """Whether the memory can be trusted as it is, and no group moves it."""
        return self._drain is None and not self._closed and not self._writer.doubtful

    def write_soon(self) -> None:
        """Have what the memory alone knows written before long."""
        if self._soon is None or self._soon.done():
            self._soon = asyncio.get_running_loop().create_task(self._write_later(), name="statestore-write-soon")

    async def _write_later(self) -> None:
        await asyncio.sleep(WRITE_SOON_S)
        await self.settle()

    async def settle(self) -> None:
        """Write what the memory alone knows, so that who reads the tables finds it. What can't be written now is in the
        memory still; who needs to know that the store fails finds out by himself."""
        if self._memory.unwritten and not self._closed:
            with contextlib.suppress(StoreUnavailable, Overloaded):
                await self.run(_Nothing())

    async def run(self, operation: Operation[T]) -> T:
        """Plan and commit `operation` with whatever else waits; its answer once it is durable."""
        if self._closed:
            raise StoreUnavailable("the statestore is closed")
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(f"{MAX_WAITING} calls wait for the statestore", hint="try again in a few seconds")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Waiting(operation, future))
        if self._drain is None:
            self._drain = loop.create_task(self._drain_all(), name="statestore-commit")
        return await future

    async def close(self) -> None:
        """Finish what waits, take nothing more."""
        if self._soon is not None and self._soon.cancel():  # it was to be soon: it is now
            await self.settle()
        self._closed = True
        if self._drain is not None and not self._drain.done():  # done: cancelled before its first step
            await self._drain

    async def _drain_all(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_GROUP))]
                if self._memory.unwritten and any(waiting.operation.reads for waiting in group):
                    await self._try([], last=True)
                if not await self._try(group, last=False):
                    for waiting in group:
                        await self._try([waiting], last=True)
        finally:
            self._drain = None

    async def _gather(self) -> None:
        """Let what is on its way join the group: a request takes two turns of the loop from its socket to here, and a
        commit costs as much as many turns (measured with 128 callers: 81 instead of 18 calls a commit)."""
        still = 0
        for _ in range(GATHER_TURNS):
            before = len(self._waiting)
            await asyncio.sleep(0)
            still = still + 1 if len(self._waiting) == before else 0
            if still == 2:
                return

    async def _try(self, group: list[_Waiting[Any]], *, last: bool) -> bool:
        """Commit `group`; False when it failed and its operations are to be tried alone."""
        batch = Batch(self._memory)
        planned: list[_Waiting[Any]] = []
        refused: list[tuple[_Waiting[Any], DispatchError]] = []
        specs: Mapping[int, bytes] = {}
        try:
            if self._writer.doubtful:
                self._memory.become(await self._executor.run(self._writer.reload))
            reading = [waiting.operation for waiting in group if waiting.operation.reads]
            if reading:
                await self._executor.run(self._writer.prepare, reading)
                await give_way()
            await self._plan(group, batch, planned, refused)
            told = {} if last else dict(batch.queued)
            if told and self._early:
                group += await self._join(batch, planned, refused)
            unwritten = list(self._memory.unwritten)
            batch.bring_unwritten()
            batch.counters = self._memory.counters()
            if batch.writes:
                batch.serial = self._memory.commits + 1
                run = self._executor.run if batch.cold < COLD_AT_ONCE else self._executor.run_long
                specs = await run(self._writer.perform, batch)
        except Exception as error:
            self._memory.undo()
            said = self._troubled(error, len(group), last)
            # What may have been committed must not be made twice: in doubt nothing is tried again. Nor where nobody
            # answers: each call would wait as long for that, one after the other.
            if not last and not self._writer.doubtful and not isinstance(said, Unanswered):
                return False
            for waiting in group:
                waiting.fail(said or error)
            return True
        for task in unwritten:
            del self._memory.unwritten[task]
        self._memory.commits = max(self._memory.commits, batch.serial)
        if batch.writes and self.trouble:
            self.trouble = ""
            log.info("store.commits_again")
        self._apply(batch)
        for waiting, refusal in refused:
            waiting.fail(refusal)
        for waiting in reversed(planned):  # who joined last was waiting for what the others brought
            if not waiting.future.done():
                _answer(waiting, specs)
        self._announce(self._listeners, batch.queued)
        self._announce(self._early, {shape: count - told.get(shape, 0) for shape, count in batch.queued.items()})
        return True

    def _troubled(self, error: Exception, calls: int, alone: bool) -> StoreUnavailable | InvalidInput | None:
        """What `error` means to the callers; None for a bug in what they asked. The database's own is logged once while
        it is the same: everybody's calls fail meanwhile, many times a second."""
        said = self._writer.error(error)
        if not isinstance(said, StoreUnavailable):
            log.warning("store.commit_failed", calls=calls, error=repr(error), alone=alone)
            return said
        if said.message != self.trouble:
            log.error("store.commit_failed", calls=calls, error=repr(error), alone=alone)
        self.trouble = said.message
        self.troubled.set()
        return said

    async def _join(
        self, batch: Batch, planned: list[_Waiting[Any]], refused: list[tuple[_Waiting[Any], DispatchError]]
    ) -> list[_Waiting[Any]]:
        """Tell those who wait for work what this group is about to queue, and let their calls share its transaction: a
        task that somebody waits for is submitted and claimed by one commit. Should it fail, they looked in vain."""
        self._announce(self._early, batch.queued)
        await self._gather()
        joined: list[_Waiting[Any]] = []
        while self._waiting and len(joined) < MAX_GROUP and not self._waiting[0].operation.reads:
            joined.append(self._waiting.popleft())
        await self._plan(joined, batch, planned, refused)
        return joined

    async def _plan(
        self,
        group: list[_Waiting[Any]],
        batch: Batch,
        planned: list[_Waiting[Any]],
        refused: list[tuple[_Waiting[Any], DispatchError]],
    ) -> None:
        """Let each plan in turn. After many rows the loop has a turn: nothing else moves the memory meanwhile, and who
        reads it finds it moved, as while the group is written."""
        memory, rested = self._memory, batch.cold
        for waiting in group:
            if batch.cold - rested >= COLD_AT_ONCE:
                rested = batch.cold
                await give_way()
            moved = memory.moved
            try:
                waiting.operation.plan(batch)
            except DispatchError as error:
                if memory.moved != moved:
                    raise RuntimeError(f"{type(waiting.operation).__name__} was refused after it had moved") from error
                refused.append((waiting, error))
            else:
                planned.append(waiting)

    def _apply(self, batch: Batch) -> None:
        self._memory.keep()
        for instance in batch.instances.values():
            self._memory.put_instance(instance)
        for effect in batch.effects:
            effect()

    def _announce(self, listeners: Sequence[Listener], queued: Mapping[int, int]) -> None:
        for shape, count in [(shape, count) for shape, count in queued.items() if count > 0]:
            for listener in listeners:
                try:
                    listener(self._memory.shapes[shape], count)
                except Exception:  # a listener's bug must not stop the commits of others
                    log.exception("store.listener_failed")


def _answer(waiting: _Waiting[Any], specs: Mapping[int, bytes]) -> None:
    try:
        waiting.future.set_result(waiting.operation.answer(specs))
    except Exception as error:  # committed, yet there is no answer: a bug that must not stop the commits of others
        log.exception("store.answer_failed")
        waiting.fail(error)
