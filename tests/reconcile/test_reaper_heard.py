"""Whether the hand that ends VMs beside the cloud is alive: asked beside the loop, told when it is not, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from cloud_dispatch.assembly import _problems, reapers_in_doubt
from cloud_dispatch.provider.errors import CredentialsRejected, Transient
from cloud_dispatch.provider.hand import patience_ms
from cloud_dispatch.provider.spi import Heard
from cloud_dispatch.reconcile.asking import HAND_MS
from cloud_dispatch.telemetry.metrics import Reapers
from tests.reconcile.fake import LOCAL, NAMED, Cloud, ManualClock, World, world

MINUTE_MS = 60_000


class Watched(Cloud):
    """A cloud with a hand beside it: alive, it looks whenever it is asked for; None: it never was there."""

    def __init__(self, clock: ManualClock | None = None, period_ms: int = MINUTE_MS) -> None:
        super().__init__(clock or ManualClock(), traits=replace(NAMED, hand_period_ms=period_ms))
        self.last_ms = self.clock.now()
        self.alive = True
        self.asked = 0
        self.fails: Exception | None = None
        self.hangs = False

    async def heard(self, deployment: str) -> Heard:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails
        if self.alive:
            self.last_ms = self.clock.now()
        return Heard(self.last_ms, "" if self.last_ms else "it has left no sign of life")


def told(lines: Sequence[MutableMapping[str, Any]]) -> list[str]:
    """What was said about it, the oldest first."""
    return [one["event"] for one in lines if one["event"].startswith("reaper.") or one["event"].endswith("signs")]


def doubted(w: World) -> tuple[bool, bool]:
    """Whether health, and whether the metric, says that it is not known to be alive."""
    registry = CollectorRegistry()
    registry.register(Reapers(lambda: reapers_in_doubt(w.context)))
    wanted = f'cloud_dispatch_reaper_silent{{profile="{LOCAL}"}} 1.0'
    in_force: Any = SimpleNamespace(refused="")
    health = any("reaper" in one for one in _problems(w.context, in_force))
    return health, wanted in generate_latest(registry).decode()


async def minutes(w: World, count: int) -> None:
    """So long, with a pass at the end of each."""
    for _ in range(count):
        w.clock.ms += HAND_MS
        await w.passes(1, 0)


async def test_a_hand_that_is_alive_is_asked_each_minute_and_nothing_is_said(tmp_path: Path) -> None:
    cloud = Watched()
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        with capture_logs() as lines:
            await w.passes(5)
            assert cloud.asked == 1
            await minutes(w, 30)
        assert cloud.asked == 31
        assert told(lines) == []
        assert doubted(w) == (False, False)


async def test_one_that_was_never_there_is_told_at_the_first_pass(tmp_path: Path) -> None:
    """Once, with the reason; an operator hears of it from health and metric for as long as it lasts. It keeps nothing
    from being launched."""
    cloud = Watched()
    cloud.alive, cloud.last_ms = False, 0
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        with capture_logs() as lines:
            await w.submit(1)
            await w.passes(3)
            await minutes(w, 3)
            assert told(lines) == ["reaper.silent"]
            (line,) = [one for one in lines if one["event"] == "reaper.silent"]
            assert "it has left no sign of life" in line["detail"]
            assert line["log_level"] == "warning"
            assert doubted(w) == (True, True)
            assert w.cloud.requests
            cloud.alive = True
            await minutes(w, 1)
        assert told(lines) == ["reaper.silent", "reaper.heard"]
        assert doubted(w) == (False, False)


async def test_one_that_falls_silent_is_told_within_its_patience_and_a_minute(tmp_path: Path) -> None:
    """Three periods and ten minutes: thirteen."""
    cloud = Watched()
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        await w.passes(1, 0)
        cloud.alive = False
        patience = patience_ms(cloud.traits) // MINUTE_MS
        assert patience == 13
        with capture_logs() as lines:
            await minutes(w, patience)
            assert told(lines) == []
            await minutes(w, 1)
            assert told(lines) == ["reaper.silent"]
        assert doubted(w) == (True, True)


async def test_a_question_that_fails_says_nothing_of_the_hand_until_what_is_known_is_old(tmp_path: Path) -> None:
    """An API that does not answer for a while is no dead hand; one that can't be asked for long is no living one."""
    cloud = Watched()
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        await w.passes(1, 0)
        cloud.fails = Transient("no answer")
        with capture_logs() as lines:
            await minutes(w, 5)
            assert told(lines) == ["provider.no-signs"]
            assert doubted(w) == (False, False)
            await minutes(w, 9)
            assert told(lines) == ["provider.no-signs", "reaper.silent"]
            assert doubted(w) == (True, True)
            cloud.fails = None
            await minutes(w, 1)
            assert set(told(lines)[2:]) == {"provider.signs", "reaper.heard"}
        assert doubted(w) == (False, False)


async def test_one_that_may_not_be_asked_is_not_known_to_be_alive(tmp_path: Path) -> None:
    """A right that is missing from the start."""
    cloud = Watched()
    cloud.fails = CredentialsRejected("you may not")
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        with capture_logs() as lines:
            await w.passes(2, 0)
        assert told(lines) == ["provider.no-signs"]
        assert doubted(w) == (True, True)
        assert w.context.view(LOCAL).trouble == ""


async def test_no_pass_waits_for_the_answer(tmp_path: Path) -> None:
    cloud = Watched()
    cloud.hangs = True
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        await w.submit(1)
        async with asyncio.timeout(5):
            await w.loop.one_pass()
            while not w.cloud.requests:
                await asyncio.sleep(0)
        await w.context.calls.cancel()


async def test_a_profile_without_a_hand_to_hear_is_not_asked(tmp_path: Path) -> None:
    cloud = Watched(period_ms=0)
    async with world(tmp_path, cloud=cloud, clock=cloud.clock) as w:
        await minutes(w, 3)
        assert cloud.asked == 0
        assert reapers_in_doubt(w.context) == {}
