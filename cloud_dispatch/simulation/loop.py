"""An asyncio event loop in virtual time. Owns the order of all that happens in a run; knows no product.

It jumps to the next timer when nothing else is left to do. Time is whole milliseconds since its start: a wait is
rounded up, and timers of one moment fire in the order in which they were set. There is no I/O and there are no threads.
When nobody can ever go on it says so, and who waits (`Deadlock`); a moment that never ends is found too (`Livelock`).
"""

from __future__ import annotations

import asyncio
import heapq
import math
from asyncio import base_events, events
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence, Set
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple

from msgspec import Struct

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
#: So many steps without a millisecond passing are a livelock.
MAX_STEPS_A_MOMENT = 1_000_000
#: The keys of cancelled timers are swept when there are so many, and more of them than of the others.
_SWEEP = 1_000
#: A timer's key is its moment, and behind it so many bits that number all timers: one number is compared faster than
#: two.
_ORDER_BITS = 40
_NAMED = 20
#: So many steps, and asyncio has another look at whether it shall stop.
_STEPS_AT_ONCE = 1_000


class Deadlock(RuntimeError):
    """Nothing is left to run and no timer is set, but somebody still waits."""


class Livelock(RuntimeError):
    """The same virtual moment goes on and on."""


class Group:
    """The tasks of one part of a run, e.g. of one incarnation of the dispatcher: what is started from one of them, or
    from a callback in `context`, is of the group too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = Context()
        self.context.run(_GROUP.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = 256

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) >= self._sweep_at:
            self._tasks = self.tasks
            self._sweep_at = max(256, 4 * len(self._tasks))

    def cancel(self) -> None:
        """Cancel them all, oldest first."""
        for task in self.tasks:
            task.cancel()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that are not done, oldest first."""
        return [task for task in self._tasks if not task.done()]


_GROUP: ContextVar[Group | None] = ContextVar("simulation_group", default=None)


class _Step(Struct, eq=False):
    """What is to happen: as much of asyncio's handle as anybody in a run looks at. A run makes millions of them, and a
    struct is made without a call of Python's."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    called_off: bool = False

    def cancel(self) -> None:
        self.called_off = True

    def __repr__(self) -> str:
        return f"<step {getattr(self.callback, '__qualname__', self.callback)}>"


class _Timer(Struct, eq=False):
    """The same for a moment: the loop forgets those that are called off."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    waiting: dict[int, _Timer | _Step]  # where it waits, by its
    key: int
    called_off: bool = False

    def cancel(self) -> None:
        self.called_off = True
        self.waiting.pop(self.key, None)

    def __repr__(self) -> str:
        return f"<timer {getattr(self.callback, '__qualname__', self.callback)}>"


class Frost:
    """Groups that stand still: none of their steps is taken, and what falls due meanwhile is kept. Ended by `thaw`."""

    def __init__(self, loop: VirtualLoop, groups: Iterable[Group]) -> None:
        self._loop = loop
        self._groups: frozenset[Group | None] = frozenset(groups)
        self._since_ms = loop.now_ms
        self._kept: list[tuple[int, _Step | _Timer]] = []
        loop.frosts = (*loop.frosts, self)

    def holds(self, step: _Step | _Timer) -> bool:
        """Whether `step` is of a group that stands still; it is kept then."""
        held = step.context.get(_GROUP) in self._groups
        if held:
            self._kept.append((self._loop.now_ms, step))
        return held

    def thaw(self, *, later: bool = False) -> int:
        """They go on: with all that fell due, at once and in its order, or, as if no time had passed for them, with
        everything so much `later`. Returns for how many milliseconds they stood still; 0 if they did no more."""
        loop = self._loop
        if self not in loop.frosts:
            return 0
        loop.frosts = tuple(frost for frost in loop.frosts if frost is not self)
        stood_ms = loop.now_ms - self._since_ms
        loop.go_on(self._kept, self._groups, stood_ms if later else 0)
        self._kept = []
        return stood_ms


class VirtualLoop(base_events.BaseEventLoop):
    """See the module. `now_ms` is the virtual time; `steps` counts callbacks run."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.steps = 0
        self.watched: Group | None = None
        self.trap: Callable[[], None] | None = None
        self.frosts: tuple[Frost, ...] = ()
        self._keys: list[int] = []  # a heap, with those of timers that were called off
        self._waiting: dict[int, _Timer | _Step] = {}
        self._order = 0
        self._moment_began = 0
        self._tasks_made = 0

    # -- time
    def time(self) -> float:
        """Virtual seconds."""
        return self.now_ms / 1000

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; see `call_at`."""
        return self._set(math.ceil((self.now_ms / 1000 + delay) * 1000 - 1e-4), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; the moment is rounded up to a millisecond (a hair over one is floating point's doing)."""
        return self._set(math.ceil(when * 1000 - 1e-4), callback, args, context)

    def at_ms(
        self, when_ms: int, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """`call_at` for whole milliseconds of virtual time."""
        return self._set(when_ms, callback, args, context)

    def _set(
        self, when_ms: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        key = self._key(when_ms)
        timer = _Timer(callback, args, copy_context() if context is None else context, self._waiting, key)
        self._waiting[key] = timer
        return timer  # type: ignore[return-value]

    def post(self, when_ms: int, context: Context, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """`at_ms` for good: nobody can call it off."""
        self._waiting[self._key(when_ms)] = _Step(callback, args, context)

    def _key(self, when_ms: int) -> int:
        """Of one more timer. Keys of those that were called off are swept when most of them are."""
        self._order += 1
        key = when_ms << _ORDER_BITS | self._order
        heapq.heappush(self._keys, key)
        if self._order % _SWEEP == 0 and len(self._keys) > 2 * len(self._waiting) + _SWEEP:
            self._keys = sorted(self._waiting.keys() | {key})
        return key

    # -- tasks
    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:
        """As asyncio's, but names count within this loop, and the task joins its creator's group."""
        self._tasks_made += 1
        task: asyncio.Task[_T] = asyncio.Task(
            coro,
            loop=self,
            name=str(name or f"task-{self._tasks_made}"),
            context=context,
        )
        group = _GROUP.get() if context is None else context.get(_GROUP)
        if group is not None:
            group.add(task)
        return task

    def start(self, coro: Coroutine[Any, Any, _T], group: Group, name: str = "") -> asyncio.Task[_T]:
        """Run `coro` as a member of `group`."""
        return self.create_task(coro, name=name or None, context=group.context)

    def begin(self, coro: Coroutine[Any, Any, Any], group: Group, name: str = "") -> None:
        """`start` for work that nobody waits for; the group keeps it."""
        _kept_by_group = self.create_task(coro, name=name or None, context=group.context)

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's."""
        step = _Step(callback, args, copy_context() if context is None else context)
        self._ready.append(step)  # type: ignore[attr-defined]
        return step  # type: ignore[return-value]

    # -- running
    def _run_once(self) -> None:
        """Many steps: all that is ready now and what follows from it; when nothing is, time passes. The order is
        asyncio's: first come, first served."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        for _ in range(_STEPS_AT_ONCE):
            if not ready:
                self._advance(ready)
                if not ready:
                    return
            step = ready.popleft()
            self.steps += 1
            if step.called_off or (self.trap is not None and self._trapped(step)):
                continue
            if self.frosts and any(frost.holds(step) for frost in self.frosts):
                continue
            try:
                step.context.run(step.callback, *step.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._failed(step, error)
            if self._stopping:  # type: ignore[attr-defined]
                return
        if self.steps - self._moment_began > MAX_STEPS_A_MOMENT:
            raise Livelock(f"{MAX_STEPS_A_MOMENT} steps at {self.now_ms} ms: {self._describe()}")

    def _failed(self, step: _Step | _Timer, error: BaseException) -> None:
        """An exception of a callback that nobody waits for."""
        self.call_exception_handler({"message": f"Exception in callback {step!r}", "exception": error, "handle": step})

    def _trapped(self, step: _Step | _Timer) -> bool:
        """Call `trap` before a step of the watched group; whether that took the step back."""
        if self.trap is not None and self.watched is not None and step.context.get(_GROUP) is self.watched:
            self.trap()
        return step.called_off

    def go_on(self, kept: Sequence[tuple[int, _Step | _Timer]], groups: Set[Group | None], later_ms: int) -> None:
        """Take the steps that were `kept`, each with the moment it was due, and all that `groups` wait for `later_ms`
        later than it would have been; 0: take what was kept now."""
        if not later_ms:
            self._ready.extend(step for _, step in kept)  # type: ignore[attr-defined]
            return
        waiting = self._waiting
        pending = sorted(key for key, step in waiting.items() if step.context.get(_GROUP) in groups)
        due = [*kept, *((key >> _ORDER_BITS, waiting.pop(key)) for key in pending)]
        for due_ms, step in due:
            if not step.called_off:
                key = self._key(due_ms + later_ms)
                waiting[key] = step
                if isinstance(step, _Timer):
                    step.key = key

    def _advance(self, ready: Any) -> None:
        """On to the next moment at which a timer is set; everything of that moment is ready then."""
        keys, waiting = self._keys, self._waiting
        while keys and keys[0] not in waiting:
            heapq.heappop(keys)
        if not keys:
            if self._stopping:  # type: ignore[attr-defined]
                return
            raise Deadlock(f"nothing will ever happen after {self.now_ms} ms: {self._describe()}")
        moment = keys[0] >> _ORDER_BITS
        if moment > self.now_ms:
            self.now_ms = moment
            self._moment_began = self.steps
        after = moment + 1 << _ORDER_BITS
        while keys and keys[0] < after:
            timer = waiting.pop(heapq.heappop(keys), None)
            if timer is not None:
                ready.append(timer)

    def _describe(self) -> str:
        waiting = sorted((task.get_name(), _place(task)) for task in asyncio.all_tasks(self))
        shown = "; ".join(f"{name} at {place}" for name, place in waiting[:_NAMED])
        more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
        return f"{len(waiting)} tasks wait: {shown}{more}"

    # -- what there is not
    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """RuntimeError: a thread would make the order of things depend on the machine."""
        raise RuntimeError(f"no threads in the simulation: {func}")


def _place(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the innermost frame, as `file:function`."""
    awaited: Any = task.get_coro()
    place = "its start"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return place


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]) -> _T:
    """Run `main(loop)` on a loop of its own until it returns; tasks that are left are cancelled."""
    loop = VirtualLoop()
    previous = events._get_running_loop()
    if previous is not None:
        raise RuntimeError("a simulation can't run inside a running event loop")
    try:
        return loop.run_until_complete(main(loop))
    finally:
        _cancel_rest(loop)
        loop.close()


def _cancel_rest(loop: VirtualLoop) -> None:
    """End what still waits, in order of creation, so that a run leaves nothing behind."""
    for frost in loop.frosts:
        frost.thaw()
    for _ in range(3):
        left = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
        if not left:
            return
        for task in left:
            task.cancel()
        try:
            loop.run_until_complete(_settle(left))
        except (Deadlock, Livelock):
            return


async def _settle(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=1)
