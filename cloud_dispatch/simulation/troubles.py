"""What goes wrong in a run, carried out. Owns which faults hold now, traps for crashes, and what operators do.

A fault is the scenario's; what it does to the world is decided here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloud_dispatch.domain.errors import Conflict, DispatchError, IllegalTransition
from cloud_dispatch.domain.ids import InstanceId, TaskId
from cloud_dispatch.domain.stop import Stop, StopLevel
from cloud_dispatch.ports.store import Store, Target, TaskFilter
from cloud_dispatch.reconcile.settings import Timing
from cloud_dispatch.simulation.clouds.faults import FaultKind as CloudFaultKind
from cloud_dispatch.simulation.configurations import other
from cloud_dispatch.simulation.disk import NOTHING
from cloud_dispatch.simulation.dispatcher import House, Incarnation
from cloud_dispatch.simulation.faults import NOTICED_MS, Fault, FaultKind
from cloud_dispatch.simulation.guest import Guest

if TYPE_CHECKING:
    from cloud_dispatch.simulation.world import World

_EARLIER_BACKUPS = 100
#: An operator tries for so many seconds to let go of an instance that is not known any more.
_RESUMES = 600


class Troubles:
    """The faults of one run."""

    def __init__(self, world: World) -> None:
        self._w = world
        self.holding: list[Fault] = []
        self._traps: list[Any] = []  # [fault, how often its point may still be passed]
        self._backups: dict[int, Any] = {}
        self._let_go: list[InstanceId] = []  # what was held for a while
        self._lost: list[str] = []  # ids of the stores that are gone
        self._answers = world.streams.stream("store", "answers")
        self._level: StopLevel | None = None  # where the operator has the kill switch
        #: What the dispatcher is made from while no fault has it otherwise.
        self.house: House | None = None

    @property
    def waiting(self) -> bool:
        """Whether a fault holds or a trap is still set."""
        return bool(self.holding)

    @property
    def trapped(self) -> bool:
        """Whether the dispatcher may die at any moment."""
        return bool(self._traps)

    def schedule(self, fault: Fault) -> None:
        self._w.at(fault.at_ms, lambda: self._begin(fault))
        if fault.kind in (FaultKind.RESTORE, FaultKind.FALL_BACK):
            self._w.at(max(fault.at_ms - fault.amount, 1), lambda: self._back_up(fault))

    def _begin(self, fault: Fault) -> None:
        self._w.journal.write("fault", fault.describe())
        instant = _INSTANT.get(fault.kind)
        if instant is not None:
            instant(self, fault)
            return
        if fault.until_ms <= self._w.now_ms:
            return
        self.holding.append(fault)
        if fault.kind is FaultKind.CLOCK:
            self._w.told.step_ms = fault.amount
        if fault.kind is FaultKind.PAUSE:
            self._pause(True)
        if fault.kind is FaultKind.CONFIGURE:
            self._configure()
        self._w.judge_health()
        self._w.at(fault.until_ms, lambda: self._cease(fault))

    def _cease(self, fault: Fault) -> None:
        self.holding.remove(fault)
        self._w.journal.write("fault", f"over: {fault.describe()}")
        if fault.kind is FaultKind.CLOCK:
            self._w.told.step_ms = 0
        if fault.kind is FaultKind.PAUSE:
            self._pause(False)
        if fault.kind is FaultKind.CONFIGURE:
            self._configure()
        self._w.judge_health()

    def _set_trap(self, fault: Fault) -> None:
        if fault.point == "step" and fault.which == 0:
            self._w.crash(fault.amount)
            return
        self._traps.append([fault, max(fault.which, 1)])
        self.watch_steps()

    def watch_steps(self) -> None:
        """Count the living incarnation's steps while a trap waits for one: that costs time."""
        living = self._w.incarnation
        wanted = living is not None and any(fault.point == "step" for fault, _ in self._traps)
        self._w.loop.watched = living.group if living is not None and wanted else None
        self._w.loop.trap = (lambda: self.point("step")) if wanted else None

    def point(self, name: str) -> None:
        """The dispatcher is at the point `name`: it dies there if a trap is set for it."""
        if not self._traps:
            return
        for trap in self._traps:
            fault, left = trap
            if fault.point == name:
                trap[1] = left - 1
        sprung = next((trap for trap in self._traps if trap[1] <= 0), None)
        if sprung is not None:
            self._traps.remove(sprung)
            self._w.crash(sprung[0].amount)

    def _back_up(self, fault: Fault) -> None:
        if self._w.store is not None and len(self._backups) < _EARLIER_BACKUPS:
            self._backups[id(fault)] = self._w.disk.copy()

    def _restore(self, fault: Fault) -> None:
        backup = self._backups.pop(id(fault), None)
        if backup is not None:
            self._w.crash(1_000, restore=backup)

    def _lose(self, fault: Fault) -> None:
        """The store is gone with all that it knew. What it made is nobody's until an operator says whose."""
        living = self._w.incarnation
        if living is None or living.store is None or living.parts is None or living.dead() or living.stopped:
            return
        self._lost.append(living.store.id)
        self.holding.append(fault)
        self._w.crash(1_000, restore=NOTHING)
        self._w.go(self._take_over(fault))

    async def _take_over(self, fault: Fault) -> None:
        await asyncio.sleep(max(fault.amount, 1) / 1000)
        for lost in list(self._lost):

            async def adopt(living: Incarnation, lost: str = lost) -> bool:
                assert living.parts is not None
                await living.parts.fleet.adopt(lost)
                return True

            while not await self._w.inside(adopt):
                pass  # the dispatcher may be down for hours
        self.holding.remove(fault)
        self._w.judge_health()
        self._w.submit_anew()

    def _fall_back(self, fault: Fault) -> None:
        """Who starts anew meanwhile finds it told; otherwise the operator stops the dispatcher for it."""
        backup, living = self._backups.pop(id(fault), None), self._w.incarnation
        if backup is None or living is None or living.parts is None or living.dead() or living.stopped:
            return  # nobody writes: that is a restore that nobody was told of
        self._w.disk.fall_back(backup)
        self._w.fallen_back = True
        if living.store is not None and living.store.in_doubt():
            # Of a commit that nobody was told of it is as if it had never been: who looks it up makes it again.
            self._w.forget()
        self._w.at(self._w.now_ms + NOTICED_MS, self._notice)

    def _notice(self) -> None:
        if self._w.fallen_back:
            self._w.crash(1_000)

    def _stop(self, fault: Fault) -> None:
        self._w.go(self._w.stop(fault.amount))

    def _pause(self, paused: bool) -> None:
        living = self._w.incarnation
        if living is not None and living.parts is not None:
            level = StopLevel.LAUNCHES if paused else StopLevel.NOTHING
            living.parts.context.stops["operator"] = Stop(level, "a fault")

    def timing(self) -> Timing:
        """What a dispatcher and its agents go by that starts now."""
        timing, now = self._w.scenario.timing, self._w.now_ms
        terms = [f for f in self._w.scenario.faults if f.kind is FaultKind.TERMS and f.at_ms <= now < f.until_ms]
        times = max((fault.amount for fault in terms), default=1)
        return replace(
            timing,
            heartbeat_ms=times * timing.heartbeat_ms,
            poll_ms=times * timing.poll_ms,
            lease_ms=times * timing.lease_ms,
        )

    def configured(self, house: House) -> House:
        """`house` as its configuration has it now."""
        for fault in self.holding:
            if fault.kind is FaultKind.CONFIGURE:
                house = other(house, fault)
        return house

    def _configure(self) -> None:
        """Have the dispatcher read the configuration that is there now; what comes up later finds it anyway."""

        async def follow(living: Incarnation) -> None:
            if self.house is not None:
                await living.follow(self.configured(self.house))

        self._w.go(self._w.inside(follow))

    def _choose_guest(self, which: int) -> Guest | None:
        living = [guest for guest in self._w.guests.values() if guest.shell is not None and not guest.frozen]
        return living[which % len(living)] if living else None

    def _crash_agent(self, fault: Fault) -> None:
        guest = self._choose_guest(fault.which)
        if guest is not None:
            self._w.journal.write(guest.vm.id, "its agent crashes")
            guest.crash_agent()

    def _hang_agent(self, fault: Fault) -> None:
        guest = self._choose_guest(fault.which)
        if guest is not None:
            self._w.journal.write(guest.vm.id, "its agent hangs")
            guest.hang_agent(self._w.scenario.agents.hang_ms)

    def _operate(self, fault: Fault) -> None:
        self._w.go(self._as_operator(fault))

    def _hold(self, fault: Fault) -> None:
        """Hold one instance, and let go of that one when the fault is over."""
        store = self._w.store
        chosen = _choose(store, fault.which) if store is not None else None
        if chosen is None:
            return

        async def ask() -> None:
            """Nobody takes back what was not answered yet."""
            until_ms = max(fault.until_ms, self._w.now_ms + 1_000)
            await self._as_operator(fault)
            await asyncio.sleep(max(until_ms - self._w.now_ms, 0) / 1000)
            self._let_go.append(chosen)
            await self._resume(chosen)

        self._w.go(ask())

    async def _resume(self, chosen: InstanceId) -> None:
        async def resume(living: Incarnation) -> None:
            assert living.parts is not None
            # What can't be stored is tried again, and what a restored store does not know until it may have adopted it.
            with contextlib.suppress(Conflict, IllegalTransition):
                await living.parts.fleet.resume(chosen, "as the scenario says")

        await self._w.inside(resume, tries=_RESUMES)

    def _stop_all(self, fault: Fault) -> None:
        """Pull the kill switch, and let go of it when the fault is over."""

        async def ask() -> None:
            """Nobody lets go of what was not pulled yet, where the dispatcher is down meanwhile."""
            await self._switch(tuple(StopLevel)[fault.which % len(StopLevel)])
            if fault.until_ms:
                await asyncio.sleep(max(fault.until_ms - self._w.now_ms, 0) / 1000)
                await self._switch(StopLevel.NOTHING)

        self._w.go(ask())

    async def _switch(self, level: StopLevel) -> None:
        """Have the kill switch there, or where it is wanted by then, once there is a dispatcher to tell."""

        async def pull(living: Incarnation) -> None:
            assert living.parts is not None
            wanted = self._level  # which may be another one by now
            assert wanted is not None
            await living.parts.fleet.stop(wanted, "as the scenario says")
            self._w.journal.write("operator", f"stops {wanted}")

        self._level = level
        await self._w.inside(pull)

    def restored(self) -> None:
        """The store is older than it was: its operator looks where the kill switch is, and has it where it was. What
        was held may be held again, by its row or by its tag: who has let go of it does so once more."""
        if self._level is not None:
            self._w.go(self._switch(self._level))
        for chosen in self._let_go:
            self._w.go(self._resume(chosen))

    async def _as_operator(self, fault: Fault) -> None:
        """Once, on what the living dispatcher has; a refusal is an answer."""
        living = self._w.incarnation
        if living is None or living.parts is None or living.store is None or living.dead():
            return
        if fault.kind is FaultKind.TARGET:
            work: Coroutine[Any, Any, Any] | None = self._set_target(living.store, fault)
        else:
            work = _operator_act(living, fault)
        if work is not None:
            task = self._w.loop.start(work, living.group)
            await asyncio.wait({task})
            if (
                not task.cancelled()
                and (error := task.exception()) is not None
                and not isinstance(error, DispatchError)
            ):
                raise error

    async def _set_target(self, store: Store, fault: Fault) -> None:
        pools = self._w.scenario.pools
        lasts_ms = max(fault.until_ms - self._w.now_ms, 1)
        expires_ms = self._w.told.now() + lasts_ms
        await store.set_target(Target(pools[fault.which % len(pools)].name, "operator", fault.amount, expires_ms))

    def ail(self) -> bool:
        """Whether a fault of the scenario holds."""
        now = self._w.now_ms
        return any(fault.at_ms <= now < fault.ends_ms for fault in self._w.scenario.faults) or any(
            fault.from_ms <= now and (now < fault.until_ms or not fault.until_ms)
            for account in self._w.scenario.accounts
            for fault in account.faults
            if fault.kind is not CloudFaultKind.NEIGHBOUR
        )

    def store_delay_ms(self) -> int:
        return sum(fault.amount for fault in self.holding if fault.kind is FaultKind.STORE_SLOW)

    def store_fails(self) -> bool:
        return any(fault.kind is FaultKind.STORE_FAILS for fault in self.holding)

    def store_is_cut(self) -> bool:
        return any(fault.kind is FaultKind.STORE_CUT for fault in self.holding)

    def answer_lost(self) -> bool | None:
        """Half of them are carried out."""
        mute = max((fault.amount for fault in self.holding if fault.kind is FaultKind.STORE_MUTE), default=0)
        lost = self.store_is_cut() or (mute and self._answers.below(100) < mute)
        return self._answers.chance(0.5) if lost else None

    def loss_percent(self) -> int:
        return max((f.amount for f in self.holding if f.kind is FaultKind.LOSS), default=0)

    def extra_ms(self) -> int:
        return sum(f.amount for f in self.holding if f.kind is FaultKind.DELAY)

    def partitioned(self) -> bool:
        return any(fault.kind is FaultKind.PARTITION for fault in self.holding)


def _operator_act(living: Incarnation, fault: Fault) -> Coroutine[Any, Any, Any] | None:
    """What an operator does to one of the instances or tasks that the dispatcher shows; None if there is none."""
    assert living.parts is not None
    assert living.store is not None
    if fault.kind is FaultKind.CANCEL:
        return _cancel(living.store, fault.which)
    chosen = _choose(living.store, fault.which)
    if chosen is None:
        return None
    verb = getattr(living.parts.fleet, str(fault.kind))
    act: Coroutine[Any, Any, Any] = verb(chosen, "as the scenario says")
    return act


def _choose(store: Store, which: int) -> InstanceId | None:
    rows = list(store.instances())
    return rows[which % len(rows)] if rows else None


async def _cancel(store: Store, which: int) -> None:
    last = sum(store.task_counts().values())
    if last:
        await store.cancel(TaskFilter(ids=(TaskId(which % last + 1),)))


_INSTANT: Mapping[FaultKind, Callable[[Troubles, Fault], None]] = {
    FaultKind.CRASH: Troubles._set_trap,
    FaultKind.STOP: Troubles._stop,
    FaultKind.RESTORE: Troubles._restore,
    FaultKind.LOSE: Troubles._lose,
    FaultKind.FALL_BACK: Troubles._fall_back,
    FaultKind.AGENT_CRASH: Troubles._crash_agent,
    FaultKind.AGENT_HANG: Troubles._hang_agent,
    FaultKind.DRAIN: Troubles._operate,
    FaultKind.HOLD: Troubles._hold,
    FaultKind.KILL: Troubles._operate,
    FaultKind.CANCEL: Troubles._operate,
    FaultKind.TARGET: Troubles._operate,
    FaultKind.STOP_ALL: Troubles._stop_all,
}
