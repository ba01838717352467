"""Quotas and prices: asked beside the loop, seldom, and what is told counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cloud_dispatch.adapters.executors import Inline
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.money import Rate
from cloud_dispatch.domain.offering import Market, Offering
from cloud_dispatch.domain.pricing import OwnPrice
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.provider.errors import CredentialsRejected, QuotaExceeded, Scope
from cloud_dispatch.provider.priced import Priced
from cloud_dispatch.provider.spi import Price, Quota, QuotaUnit
from cloud_dispatch.reconcile import asking, explain
from cloud_dispatch.reconcile.asking import DOUBTED_QUOTAS_MS, OFFERINGS_TTL_MS, PRICES_MS, QUOTAS_MS
from cloud_dispatch.reconcile.calls import MAX_AT_ONCE
from cloud_dispatch.reconcile.context import ProfileView
from cloud_dispatch.reconcile.quotas import GOOD_MS, _with_ours, use
from tests.reconcile.examples import NOW, instance, offering
from tests.reconcile.fake import LOCAL, NAMED, Cloud, ManualClock, World, world


class Account(Cloud):
    """A cloud that tells its quotas and prices, and counts how often it is asked."""

    def __init__(self, clock: ManualClock | None = None, limit: int = 100) -> None:
        super().__init__(clock or ManualClock(), traits=replace(NAMED, quotas=True, prices=True))
        self.limit = limit
        self.asked = {"quotas": 0, "prices": 0}
        self.fails = ""
        self.hangs = ""

    async def _ask(self, what: str) -> None:
        self.asked[what] += 1
        if self.hangs == what:
            await asyncio.Event().wait()
        if self.fails == what:
            raise CredentialsRejected("you may not")

    async def quotas(self) -> Sequence[Quota]:
        await self._ask("quotas")
        used = sum(vm.type == "t" for vm in self.vms.values()) * 2
        return [
            Quota("standard", Scope(family="f"), QuotaUnit.VCPUS, self.limit, used),
            Quota("dark", Scope(family="f"), QuotaUnit.VCPUS, None, used),
        ]

    async def prices(self) -> Sequence[Price]:
        await self._ask("prices")
        return [Price("t", "z", Market.ON_DEMAND, Rate(900))]


async def test_nothing_is_launched_that_a_quota_has_no_room_for(tmp_path: Path) -> None:
    """No call is made that would be refused; whoever waits is told which quota, and it goes on once there is room."""
    async with world(tmp_path, cloud=Account(limit=0)) as w:
        (task,) = await w.submit(1)
        await w.passes(1)
        await w.passes(2)
        assert w.cloud.requests == []
        assert "quota standard of profile local has no room" in str((await w.fleet.explain_task(task))["reasons"])
        assert explain.unserved(w.context)[Obstacle.QUOTA] == 1
        w.cloud.limit = 2  # type: ignore[attr-defined]
        w.clock.ms += DOUBTED_QUOTAS_MS  # what has ended may have made room
        await w.passes(3)
        assert len(w.cloud.requests) == 1


def test_what_each_profile_was_told_of_is_not_counted_again() -> None:
    """Profiles are asked at different times: what was launched after one's question and before the other's is in the
    answer of the other."""
    known = use(LOCAL, Quota("standard", Scope(family="f"), QuotaUnit.VCPUS, 10, 4))
    assert known is not None
    rows = [instance(InstanceState.IDLE, intended_ms=moment) for moment in (100, 200)]
    one = offering()
    assert {row.offering_key for row in rows} == {one.key}
    told = [
        quota.used
        for asked_ms in (50, 150, 250)
        for quota in _with_ours(rows, LOCAL, ProfileView(offerings=(one,), quotas_asked_ms=asked_ms), [known])
    ]
    assert told == [4 + 2 * one.type.vcpus, 4 + one.type.vcpus, 4]


async def test_quotas_are_asked_every_few_minutes_and_soon_after_a_refusal(tmp_path: Path) -> None:
    """Never more often than that, however many launches are refused."""
    async with world(tmp_path, cloud=Account()) as w:
        asked = w.cloud.asked  # type: ignore[attr-defined]
        await w.passes(5)
        assert asked["quotas"] == 1
        w.cloud.refusals[offering().key] = QuotaExceeded("no more", scope=Scope(family="f"))
        await w.submit(1)
        await w.passes(5)
        assert asked["quotas"] == 1
        w.clock.ms += DOUBTED_QUOTAS_MS
        await w.passes(5)
        assert asked["quotas"] == 2
        w.clock.ms += DOUBTED_QUOTAS_MS
        await w.passes(5)
        assert asked["quotas"] == 2
        w.clock.ms += QUOTAS_MS
        await w.passes(5)
        assert asked["quotas"] == 3


async def test_a_question_that_fails_leaves_quotas_in_doubt(tmp_path: Path) -> None:
    """What was refused for one is asked about again as soon as it can be, not minutes later."""
    async with world(tmp_path, cloud=Account()) as w:
        asked = w.cloud.asked  # type: ignore[attr-defined]
        await w.passes(2)
        w.cloud.refusals[offering().key] = QuotaExceeded("no more", scope=Scope(family="f"))
        await w.submit(1)
        await w.passes(2)
        w.cloud.fails = "quotas"  # type: ignore[attr-defined]
        w.clock.ms += DOUBTED_QUOTAS_MS
        await w.passes(1)
        w.cloud.fails = ""  # type: ignore[attr-defined]
        w.clock.ms += QUOTAS_MS - 2 * DOUBTED_QUOTAS_MS - 10_000
        await w.passes(1)
        assert asked["quotas"] == 3


async def test_questions_do_not_wait_for_the_turns_of_launches(tmp_path: Path) -> None:
    """Whatever is launched and ended, and however long its calls take, VMs are still looked after."""
    async with world(tmp_path) as w:
        await w.passes(1)
        busy = asyncio.Event()
        for number in range(MAX_AT_ONCE + 1):
            w.context.calls.start(f"launch:{number}", _until(busy), LOCAL)
        listed = w.context.view(LOCAL).listed_ms
        w.clock.ms += 60_000
        await w.loop.one_pass()
        assert w.context.view(LOCAL).listed_ms != listed
        busy.set()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def test_offerings_that_were_under_way_when_prices_were_told_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are at the prices of before: for ten minutes launches would go by those."""
    monkeypatch.setattr(asking, "PATIENCE_MS", 10)
    async with world(tmp_path, cloud=Account()) as w:
        answers, going = w.cloud.offerings, asyncio.Event()

        async def slow() -> Sequence[Offering]:
            await going.wait()
            return await answers()

        await w.passes(3)
        w.cloud.offerings = slow  # type: ignore[method-assign]
        w.clock.ms += max(PRICES_MS, OFFERINGS_TTL_MS) + 1
        await w.loop.one_pass()
        assert w.cloud.asked["prices"] == 2  # type: ignore[attr-defined]
        going.set()
        await w.context.calls.settle()
        assert w.context.view(LOCAL).offered_ms is None


async def test_what_of_ours_has_ended_makes_room_at_once(tmp_path: Path) -> None:
    """Work that waits for a quota is not kept for half a minute from what its own VMs have given back."""
    async with world(tmp_path, cloud=Account(limit=2)) as w:
        await w.submit(1)
        await w.passes(2)
        (row,) = w.rows
        w.clock.ms += QUOTAS_MS
        await w.passes(1)  # now it is told that all is used
        await w.submit(1, shape=Shape(exclusive=True))
        await w.submit(1, shape=Shape(exclusive=True, max_per_instance=1))
        await w.passes(2)
        assert len(w.cloud.requests) == 1
        await w.fleet.kill(row.id, "to make room")
        await w.passes(8)
        assert len(w.cloud.requests) == 2


async def test_an_old_answer_keeps_nobody_from_launching(tmp_path: Path) -> None:
    """Where quotas can't be asked for any more the provider refuses by itself; that it can't is told once."""
    async with world(tmp_path, cloud=Account(limit=0)) as w:
        await w.submit(1)
        await w.passes(2)
        w.cloud.fails = "quotas"  # type: ignore[attr-defined]
        with capture_logs() as lines:
            w.clock.ms += GOOD_MS // 2
            await w.passes(2)
            assert w.cloud.requests == []
            w.clock.ms += GOOD_MS
            await w.passes(2)
        assert len(w.cloud.requests) == 1
        (line,) = [line for line in lines if line["event"] == "provider.no-quotas"]
        assert (line["log_level"], "CredentialsRejected: you may not" in line["detail"]) == ("warning", True)
        assert w.context.view(LOCAL).trouble == ""


async def test_no_pass_waits_for_a_price_service_that_does_not_answer(tmp_path: Path) -> None:
    """Launches go on by the prices that are known."""
    account = Account()
    account.hangs = "prices"
    async with world(tmp_path, cloud=account) as w:
        await w.submit(1)
        async with asyncio.timeout(0.9):  # a pass waits a second for what it waits for
            for _ in range(3):
                await w.loop.one_pass()
                await asyncio.sleep(0)
        assert account.asked["prices"] == 1
        assert len(w.rows) == 1
        await w.context.calls.cancel()


async def test_prices_are_asked_once_a_day_and_count_at_once(tmp_path: Path) -> None:
    """And not again after a restart, while what is kept is of today."""

    def wire(w: World) -> Priced:
        priced = Priced(w.cloud, [OwnPrice("u", Rate(5))], tmp_path, w.clock.now, Inline())
        settings = w.context.settings
        w.context.settings = replace(settings, providers={LOCAL: priced}, prices_ms={LOCAL: priced.told.told_ms})
        return priced

    async with world(tmp_path, cloud=Account()) as w:
        w.cloud.offers = (offering(priced_ms=NOW - 1), offering("u", priced_ms=NOW - 1))
        asked = w.cloud.asked  # type: ignore[attr-defined]
        wire(w)
        await w.passes(3)
        assert asked["prices"] == 1
        assert [one.rate for one in w.context.view(LOCAL).offerings] == [900, 5]
        await w.restart()
        wire(w)
        await w.passes(3)
        assert asked["prices"] == 1
        w.clock.ms += PRICES_MS
        await w.passes(3)
        assert asked["prices"] == 2


async def test_a_price_service_that_fails_is_told_once_and_asked_again_later(tmp_path: Path) -> None:
    """It keeps nothing from being launched, and is no trouble of the profile's."""
    account = Account()
    account.fails = "prices"
    async with world(tmp_path, cloud=account) as w:
        with capture_logs() as lines:
            await w.submit(1)
            await w.passes(5)
            assert account.asked["prices"] == 1
            w.clock.ms += 3_600_000
            await w.passes(5)
        assert account.asked["prices"] == 2
        assert len([line for line in lines if line["event"] == "provider.no-prices"]) == 1
        assert w.context.view(LOCAL).trouble == ""
        assert w.cloud.requests
