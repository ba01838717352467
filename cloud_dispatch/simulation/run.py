"""One run of a scenario, from nothing to its outcome. Owns the order of its beginning and its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.task import TaskState
from cloud_dispatch.simulation import loop as virtual
from cloud_dispatch.simulation.checkers import ALL
from cloud_dispatch.simulation.checkers.base import Checker, Finding
from cloud_dispatch.simulation.clock import VirtualClock
from cloud_dispatch.simulation.clouds.make import open_account
from cloud_dispatch.simulation.disk import Disk
from cloud_dispatch.simulation.dispatcher import Incarnation
from cloud_dispatch.simulation.entropy import SeededStreams
from cloud_dispatch.simulation.journal import Journal
from cloud_dispatch.simulation.loop import Deadlock, Livelock, VirtualLoop
from cloud_dispatch.simulation.ports import BillLine, CloudAccount
from cloud_dispatch.simulation.scenario import Scenario
from cloud_dispatch.simulation.world import World

#: Keys of log records that are the same in every process.
_SAID = ("instance", "task", "detail", "why", "key")


@dataclass(frozen=True)
class Outcome:
    """What came of a run. `digest` is of the whole journal; `steps` of the loop say how much happened."""

    scenario: Scenario
    findings: tuple[Finding, ...]
    journal: Journal
    virtual_ms: int
    steps: int
    commits: int
    deaths: int
    tasks: dict[TaskState, int]
    bill: tuple[BillLine, ...]

    @property
    def digest(self) -> str:
        return self.journal.digest

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def broken(self) -> frozenset[str]:
        """The checkers that found something."""
        return frozenset(finding.checker for finding in self.findings)


def run(
    scenario: Scenario,
    *,
    checkers: Sequence[type[Checker]] = ALL,
    keep: int | None = None,
    prepare: Callable[[World], None] = lambda world: None,
    finish: Callable[[World], Any] = lambda world: None,
    sought: str = "",
) -> Outcome:
    """Run `scenario` to its end. The journal keeps its last `keep` lines (None: all of them).

    `prepare` is called before anything happens (tests plant their bugs there), `finish` at the end while the store can
    still be read; a coroutine that it returns is awaited. With the first finding of the checker that is `sought` a run
    is over: who asks whether it finds anything need not see what a broken promise comes to in hours. Must not be called
    while an event loop runs.
    """
    disk = Disk()
    disk.format()
    found: list[Outcome] = []

    async def main(loop: VirtualLoop) -> None:
        journal = Journal(loop, keep, hidden=str(disk.folder))
        world = _world(scenario, loop, disk, journal, checkers)
        loop.set_exception_handler(lambda _, context: _unhandled(world, context))
        world.sought = sought
        prepare(world)
        with _logs_in(journal):
            try:
                await _live(world)
                ending = finish(world)
                if ending is not None:
                    await ending
            finally:
                found.append(_outcome(world))
                await _leave(world)

    collecting = gc.isenabled()
    gc.disable()  # a run makes few cycles, and looking for them took a tenth of its time
    try:
        try:
            virtual.run(main)
        except (Deadlock, Livelock) as stuck:
            if not found:
                raise
            found[0] = _with(found[0], Finding("loop", found[0].virtual_ms, str(stuck)))
    finally:
        disk.close()
        if collecting:
            gc.enable()
    return found[0]


def _world(
    scenario: Scenario, loop: VirtualLoop, disk: Disk, journal: Journal, checkers: Sequence[type[Checker]]
) -> World:
    clock, streams = VirtualClock(loop, scenario.begins_ms), SeededStreams(scenario.seed)
    world = World(scenario, loop, disk, journal, _accounts(scenario, clock, streams), streams, clock)
    world.checkers = [make(world) for make in checkers]
    return world


def _accounts(scenario: Scenario, clock: VirtualClock, streams: SeededStreams) -> dict[ProfileName, CloudAccount]:
    """By profile. Accounts of one name are one, with the settings of the first and the faults of all."""
    opened: dict[str, CloudAccount] = {}
    for spec in scenario.accounts:
        name = spec.settings.name
        if name not in opened:
            faults = [fault for one in scenario.accounts if one.settings.name == name for fault in one.faults]
            opened[name] = open_account(clock, streams, spec.settings, faults)
    return {spec.profile: opened[spec.settings.name] for spec in scenario.accounts}


async def _live(world: World) -> None:
    world.start()
    await world.ended.wait()
    world.end()
    if world.store is not None:
        for problem in await world.inside(_check, tries=3) or ():
            world.report("store", problem)


async def _check(living: Incarnation) -> Sequence[str]:
    assert living.store is not None
    return await living.store.check()


async def _leave(world: World) -> None:
    """Sever what lives, so that nothing outlasts the run."""
    for guest in list(world.guests.values()):
        guest.die()
    living = world.incarnation
    if living is not None and not living.dead():
        living.die()
        await living.bury()


def _outcome(world: World) -> Outcome:
    store = world.store
    return Outcome(
        scenario=world.scenario,
        findings=tuple(world.findings),
        journal=world.journal,
        virtual_ms=world.now_ms,
        steps=world.loop.steps,
        commits=world.commits,
        deaths=world.deaths,
        tasks=dict(store.task_counts()) if store is not None else {},
        bill=tuple(line for account in world.accounts for line in account.bill()),
    )


def _with(outcome: Outcome, finding: Finding) -> Outcome:
    return replace(outcome, findings=(*outcome.findings, finding))


def _unhandled(world: World, context: dict[str, Any]) -> None:
    """An exception that nobody waited for; deaths are no news."""
    error = context.get("exception")
    if error is not None and not isinstance(error, asyncio.CancelledError):
        world.report("world", f"{context.get('message')}: {error!r}")


@contextlib.contextmanager
def _logs_in(journal: Journal) -> Iterator[None]:
    """The product's own log goes to the journal, without what differs from one process to the next."""

    def keep(_: object, level: str, event: Any) -> Any:
        said = " ".join(f"{key}={event[key]}" for key in _SAID if event.get(key) not in (None, ""))
        journal.write("log", f"{level} {event['event']} {said}".rstrip())
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
