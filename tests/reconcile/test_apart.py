"""The dispatcher's clock and a provider's that are further apart than money allows for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from cloud_dispatch.domain.errors import OverBudget
from cloud_dispatch.domain.ids import PoolName, ProfileName
from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.domain.offering import InstanceType
from cloud_dispatch.domain.pool import EndRules, Pool
from cloud_dispatch.domain.resources import GIB, Resources
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.plan import Launch
from cloud_dispatch.provider.errors import CapacityUnavailable, InDoubt
from cloud_dispatch.provider.spi import HardEnd, LaunchRequest, LaunchResult
from cloud_dispatch.reconcile import apart, explain
from cloud_dispatch.reconcile.apart import AGAIN_MS, apart_ms
from cloud_dispatch.spend.budget import Budget
from cloud_dispatch.spend.clocks import CLOCKS_MS
from cloud_dispatch.spend.commitment import EVERYTHING, Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, POOL, Cloud, ManualClock, World, world

ALONE = Shape(Resources(1_000, GIB), exclusive=True)
MINUTE = 60_000
DAY = EndRules()


class Ours(ManualClock):
    """Ahead of the provider's by so much."""

    ahead_ms = 0

    def now(self) -> int:
        return super().now() + self.ahead_ms


def set_ahead(w: World, by_ms: int) -> None:
    assert isinstance(w.clock, Ours)
    w.clock.ahead_ms = by_ms


class Theirs(ManualClock):
    def __init__(self, ours: Ours) -> None:
        self.ours = ours

    def now(self) -> int:
        return self.ours.ms


@asynccontextmanager
async def wrong(
    folder: Path,
    ahead_ms: int,
    budgets: tuple[Budget, ...],
    end: EndRules = DAY,
    profiles: tuple[ProfileName, ...] = (LOCAL,),
) -> AsyncIterator[World]:
    """There is a VM, whose launch has told."""
    ours = Ours()
    ours.ahead_ms = ahead_ms
    pool = Pool(POOL, profiles, minimum=1, boot_deadline_ms=60 * MINUTE, end=end)
    async with world(folder, clock=ours, pool=pool) as w:
        w.cloud.clock = Theirs(ours)
        await w.store.set_limits(budgets, {})
        await w.passes()
        yield w


HOURLY = (Budget(EVERYTHING, Window.HOUR, Amount(10**9)),)
OF_A_PROJECT = (Budget(Key(Scope.PROJECT, "rich"), Window.HOUR, Amount(10**9)),)


async def alone(w: World, count: int) -> int:
    """So many tasks that want a VM each, one of which is there."""
    return (await w.submit(count, shape=ALONE))[0]


async def events(w: World) -> list[str]:
    return [event.detail for event in await w.store.events() if event.action == "clock.apart"]


@pytest.mark.parametrize("budgets", [HOURLY, OF_A_PROJECT], ids=["total", "a project's"])
@pytest.mark.parametrize(("by_ms", "words"), [(70 * MINUTE, "70m ahead of"), (-3 * MINUTE, "3m behind")])
async def test_what_a_limit_covers_is_not_launched(
    tmp_path: Path, by_ms: int, words: str, budgets: tuple[Budget, ...]
) -> None:
    """The first VM has told; who waits is told, and whoever asks for health, and once in the events. One VM at a time
    shows whether it is still so."""
    async with wrong(tmp_path, by_ms, budgets) as w:
        task = await alone(w, 4)
        await w.passes(3)
        assert len(w.cloud.vms) == 1
        said = f"the dispatcher's clock is at least {words} the provider's"
        assert said in str((await w.fleet.explain_task(task))["reasons"])
        assert said in str(apart.words(w.context))
        assert len(await events(w)) == 1
        w.clock.ms += AGAIN_MS
        await w.passes(3)
        assert len(w.cloud.vms) == 2
        w.clock.ms += AGAIN_MS
        await w.passes(3)
        assert len(w.cloud.vms) == 3
        assert len(await events(w)) == 1


async def test_what_is_not_launched_keeps_nothing_of_its_payer_from_being_tried_elsewhere(tmp_path: Path) -> None:
    """No limit is used up, nor is it told as if one were."""
    far, dear = ProfileName("far"), replace(offering(), rate=Rate(10**9), boot_ms=MINUTE)
    async with wrong(tmp_path, 70 * MINUTE, (), profiles=(LOCAL, far)) as w:
        large = InstanceType("large", Resources(64_000, 2 * GIB, 10 * GIB))
        w.cloud.traits = replace(w.cloud.traits, hard_end=HardEnd.EXTENDABLE)
        wide = InstanceType("wide", Resources(4_000, 8 * GIB, 10 * GIB))
        w.context.view(LOCAL).offerings = (offering(), replace(dear, type=wide))
        there = (replace(dear, profile=far, type=large),)
        providers = cast("dict[ProfileName, object]", w.context.settings.providers)
        providers[far] = Cloud(w.clock, there, replace(w.cloud.traits, vm_name="far-{instance}"))
        await w.fleet.set_limit(Key(Scope.PROJECT, "rich"), Window.TOTAL, Amount(20_000_000), "")
        for shape in (Shape(Resources(4_000, 4 * GIB)), Shape(Resources(64_000, GIB))):
            await w.submit(1, project="rich", shape=shape)
        await w.passes(4)
        assert sorted(row.profile for row in w.rows) == [far, LOCAL]
        assert {word: count for word, count in explain.unserved(w.context).items() if count} == {"clock": 1}


async def test_one_vm_tells_however_many_launches_are_decided_together(tmp_path: Path) -> None:
    """As of a plan for several offerings, or of one that was made before it was seen."""
    async with wrong(tmp_path, 70 * MINUTE, HOURLY) as w:
        for due, vms in ((False, 1), (True, 2)):
            w.clock.ms += AGAIN_MS * due
            less = await w.loop._launcher.launch([Launch(POOL, offering(), 2, "test", ())] * 3)
            await w.context.calls.settle()
            assert len(w.cloud.vms) == vms
            assert [one.slots for one in less.values()] == [int(due), 0, 0]
            assert all("70m ahead" in one.why for one in less.values())


async def test_once_the_clock_is_set_right_launches_go_on(tmp_path: Path) -> None:
    async with wrong(tmp_path, 70 * MINUTE, HOURLY) as w:
        await alone(w, 4)
        await w.passes(3)
        assert len(w.cloud.vms) == 1
        set_ahead(w, 0)
        await w.passes(3)
        assert len(w.cloud.vms) == 4
        assert apart.words(w.context) == []


async def test_a_trial_that_shows_clocks_that_agree_ends_it(tmp_path: Path) -> None:
    """A clock that NTP brings right slowly is never set; nor is the dispatcher's where the other was wrong."""
    async with wrong(tmp_path, 3 * MINUTE, HOURLY) as w:
        await alone(w, 4)
        w.cloud.clock = w.clock
        await w.passes(AGAIN_MS // MINUTE, step_ms=MINUTE)
        assert len(w.cloud.vms) == 1
        await w.passes(3)
        assert len(w.cloud.vms) == 4
        assert apart.words(w.context) == []


async def test_a_trial_of_which_no_vm_came_is_not_waited_for(tmp_path: Path) -> None:
    """The next offering of a launch that was refused, or the next launch, shows what it could not. Each ten minutes the
    same was refused, and no other tried, for as long as it was."""
    async with wrong(tmp_path, 70 * MINUTE, HOURLY) as w:
        w.clock.ms += AGAIN_MS
        w.cloud.refusals[offering().key] = CapacityUnavailable("none left")
        await w.loop._launcher.launch([Launch(POOL, offering(), 2, "test", (offering("other"),))])
        await w.context.calls.settle()
        assert len(w.cloud.vms) == 2
        w.cloud.refusals.clear()
        w.clock.ms += AGAIN_MS
        for amount, vms in ((1, 2), (10**9, 3), (10**9, 3)):
            await w.store.set_limits((Budget(EVERYTHING, Window.HOUR, Amount(amount)),), {})
            await w.loop._launcher.launch([Launch(POOL, offering(), 2, "test", ())])
            await w.context.calls.settle()
            assert len(w.cloud.vms) == vms


async def test_a_trial_that_a_limit_refuses_as_it_is_stored_is_not_waited_for(tmp_path: Path) -> None:
    """Somebody else has spent what was left since it was prepared."""
    async with wrong(tmp_path, 70 * MINUTE, HOURLY) as w:
        w.clock.ms += AGAIN_MS
        intend, w.store.intend = w.store.intend, refuse  # type: ignore[method-assign]
        for vms in (1, 2):
            await w.loop._launcher.launch([Launch(POOL, offering(), 2, "test", ())])
            await w.context.calls.settle()
            assert len(w.cloud.vms) == vms
            w.store.intend = intend  # type: ignore[method-assign]


async def refuse(*_: object) -> None:
    raise OverBudget("nothing is left")


async def test_what_is_launched_freely_lets_nothing_else_be_tried(tmp_path: Path) -> None:
    """Another pool's launches, which no limit covers, and which are refused time after time."""
    free = PoolName("free")
    limits = (Budget(Key(Scope.POOL, POOL), Window.HOUR, Amount(10**9)),)
    async with wrong(tmp_path, 70 * MINUTE, limits) as w:
        pools = cast("dict[PoolName, Pool]", w.context.settings.pools)
        pools[free] = replace(w.pool, name=free)
        w.cloud.refusals[offering("none").key] = CapacityUnavailable("none left")
        for launch in (Launch(free, offering("none"), 1, "test", ()), Launch(POOL, offering(), 1, "test", ())):
            await w.loop._launcher.launch([launch])
            await w.context.calls.settle()
        assert len(w.cloud.requests) == 2
        assert len(w.cloud.vms) == 1


async def test_a_clock_that_is_set_wrong_again_is_told_again(tmp_path: Path) -> None:
    async with wrong(tmp_path, 70 * MINUTE, HOURLY) as w:
        set_ahead(w, 5 * MINUTE)
        await alone(w, 2)
        await w.passes(3)
        assert ["5m ahead" in said for said in await events(w)] == [True, False]  # the newest first


@pytest.mark.parametrize(("before", "after"), [(12 * MINUTE, 0), (0, 12 * MINUTE)], ids=["was wrong", "was right"])
async def test_a_vm_that_is_known_already_tells_of_no_clock(tmp_path: Path, before: int, after: int) -> None:
    """One that a listing misses, and a question finds after all: how clocks stood when it was made is over."""
    async with wrong(tmp_path, before, HOURLY) as w:
        old = set(w.cloud.vms)
        set_ahead(w, after)
        await alone(w, 2)
        await w.passes(3)
        assert len(w.cloud.vms) == 2
        known = len(apart.words(w.context))
        assert known == (after > 0)
        w.cloud.hidden = old
        await w.passes(20, step_ms=MINUTE)
        assert w.context.absences.keys() == {row.id for row in w.rows if row.vm in old}
        assert len(apart.words(w.context)) == known


@pytest.mark.parametrize("by_ms", [0, CLOCKS_MS, -CLOCKS_MS])
async def test_clocks_within_what_money_allows_for_hold_nothing(tmp_path: Path, by_ms: int) -> None:
    async with wrong(tmp_path, by_ms, HOURLY) as w:
        await alone(w, 4)
        await w.passes(3)
        assert len(w.cloud.vms) == 4
        assert await events(w) == apart.words(w.context) == []


async def test_without_a_limit_nothing_is_held_and_it_is_told(tmp_path: Path) -> None:
    async with wrong(tmp_path, 70 * MINUTE, ()) as w:
        await alone(w, 4)
        await w.passes(3)
        assert len(w.cloud.vms) == 4
        assert len(await events(w)) == len(apart.words(w.context)) == 1


@pytest.mark.parametrize(("lifetime_ms", "vms"), [(70 * MINUTE, 1), (200 * MINUTE, 4)])
async def test_what_has_its_hard_end_before_it_has_booted_is_not_launched(
    tmp_path: Path, lifetime_ms: int, vms: int
) -> None:
    """By the provider's clock, which is an hour ahead. Limits or not."""
    async with wrong(tmp_path, -60 * MINUTE, (), EndRules(lifetime_ms=lifetime_ms)) as w:
        task = await alone(w, 4)
        await w.passes(3)
        assert len(w.cloud.vms) == vms
        assert ("before it has booted" in str((await w.fleet.explain_task(task))["reasons"])) is (vms == 1)


@pytest.mark.parametrize("lost", [False, True], ids=["answered late", "found by a listing"])
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(5 * MINUTE, 0, ""), (70 * MINUTE, 0, ""), (0, 70 * MINUTE, ""), (70 * MINUTE, 5 * MINUTE, "5m ahead")],
    ids=["set right", "set back by more than it took", "set forward, or a machine that slept", "still wrong"],
)
async def test_a_clock_that_is_set_during_a_launch_raises_no_false_alarm(
    tmp_path: Path, before: int, after: int, words: str, lost: bool
) -> None:
    """The VM, which was asked for ten minutes ago, tells what is so whichever clock is right."""
    ours = Ours()
    ours.ahead_ms = before
    async with world(tmp_path, clock=ours, pool=Pool(POOL, (LOCAL,), minimum=1)) as w:
        launch, w.cloud.clock = w.cloud.launch, Theirs(ours)

        async def slow(request: LaunchRequest) -> LaunchResult:
            result = await launch(request)
            ours.ms += 10 * MINUTE
            ours.ahead_ms = after
            if lost:
                raise InDoubt("no answer")
            return result

        w.cloud.launch = slow  # type: ignore[method-assign]
        await w.passes(4)
        assert [row.vm != "" for row in w.rows] == [True]
        assert [words in said for said in apart.words(w.context)] == [True] * bool(words)


async def test_a_launch_of_a_dispatcher_before_this_one_tells_only_of_a_clock_that_is_behind(tmp_path: Path) -> None:
    """How that one's stood is not known: a machine that boots may have set it since."""
    ours = Ours()
    for ahead_ms, told in ((0, 0), (-70 * MINUTE, 1)):
        async with world(tmp_path / str(told), clock=ours, pool=Pool(POOL, (LOCAL,), minimum=1)) as w:
            ours.ahead_ms, w.cloud.clock, w.cloud.lose_reply = 5 * MINUTE, Theirs(ours), True
            await w.passes(1)
            (row,) = w.rows
            assert row.vm == ""
            w.context.contacts.keep_only(set())  # as a dispatcher has none at its start
            ours.ahead_ms = ahead_ms
            await w.passes(3)
            assert [row.vm != "" for row in w.rows] == [True]
            assert len(apart.words(w.context)) == told


async def test_a_launch_that_was_not_answered_tells_as_well(tmp_path: Path) -> None:
    """By the listing that finds its VM."""
    ours = Ours()
    ours.ahead_ms = 70 * MINUTE
    async with world(tmp_path, clock=ours, pool=Pool(POOL, (LOCAL,), minimum=1)) as w:
        w.cloud.clock, w.cloud.lose_reply = Theirs(ours), True
        await w.passes(4)
        assert [row.vm != "" for row in w.rows] == [True]
        assert len(apart.words(w.context)) == 1


@pytest.mark.parametrize(
    ("asked", "made", "now", "by"),
    [
        (1_000, 1_500, 2_000, 0),  # in between, as it should be
        (1_000, 1_000, 1_000, 0),
        (1_000, 400, 2_000, 600),
        (1_000, 2_600, 2_000, -600),
        (0, 400, 2_000, 0),  # nobody knows when it was asked for
        (0, 2_600, 2_000, -600),
    ],
)
def test_how_far_apart_they_are(asked: int, made: int, now: int, by: int) -> None:
    assert apart_ms(asked, made, now) == by
