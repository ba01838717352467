"""Breakers around a cloud in memory: what a template that never registers burns, and how launches go on again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from cloud_dispatch.assembly import InForce, Rules, _problems
from cloud_dispatch.domain.errors import NotFound
from cloud_dispatch.domain.events import Event
from cloud_dispatch.domain.ids import TaskId
from cloud_dispatch.domain.instance import InstanceState
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.domain.task import Cause, Outcome
from cloud_dispatch.ports.fleet import Ended, Heard
from cloud_dispatch.ports.store import ClaimResult, SyncCall
from cloud_dispatch.spend import breaker
from cloud_dispatch.spend.breaker import FIRST_MS
from tests.reconcile.examples import offering
from tests.reconcile.fake import LOCAL, POOL, Cloud, ManualClock, World, world

S = InstanceState
MINUTE = 60_000
#: A boot until its deadline, and ending it, are 12 minutes: $1.20.
DEAR = offering(rate=6_000_000_000, image="ami-1")
BOOT = 1_200_000
NAME = "boot/local/agent/z/ami-1"
CHECK = "health check test -w /data failed 3 times in a row: exit code 1"


def cloud() -> Cloud:
    return Cloud(ManualClock(), offers=(DEAR,))


async def until(w: World, moment_ms: int, step_ms: int = 15_000) -> None:
    """Passes until then."""
    while w.clock.ms < moment_ms:
        await w.passes(1, step_ms)


async def tripped(w: World, tasks: int = 50) -> None:
    """Nothing registers until the breaker has opened."""
    await w.submit(tasks)
    for _ in range(400):
        await w.passes(1, 15_000)
        if any(one["state"] == "open" for one in w.context.breakers.listing()):
            return
    raise AssertionError("it never opened")


async def said(w: World, action: str) -> Sequence[Event]:
    await w.passes()
    return [event for event in await w.store.events(limit=1000) if event.action == action]


async def burnt(w: World) -> int:
    return sum(entry.bound for entry in await w.store.ledger() if entry.registered_ms is None)


async def test_of_what_never_registered_only_so_many_boot_as_the_allowance_bears(tmp_path: Path) -> None:
    """Fifty are wanted, five dollars bear four; why the others wait is said."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await w.submit(50)
        await w.passes(3)
        assert len(w.cloud.vms) == 4
        (waiting,) = (await w.fleet.preview())["waiting"]
        assert "nothing of it has failed yet; 4 boot, as many as its allowance bears" in waiting["reason"]


async def test_what_registers_is_repeated_on_its_own_scale(tmp_path: Path) -> None:
    """Four that came up let four more boot at once whatever the allowance, then eight."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await w.submit(100)
        counts = []
        for _ in range(4):
            await w.passes(3, 6_000)
            counts.append(len(w.cloud.vms))
            for row in w.rows:
                if row.state is S.BOOTING:
                    await w.register(row)
        assert counts == [4, 8, 16, 32]


async def test_a_template_that_never_registers_burns_its_allowance_and_then_waits(tmp_path: Path) -> None:
    """Then one VM is tried, for the first time after five minutes; the second wait is twice as long."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await tripped(w)
        assert 5_000_000 <= await burnt(w) <= 5_000_000 + BOOT
        (one,) = w.fleet.breakers()
        opened = one["until_ms"] - FIRST_MS
        assert (one["name"], one["state"], one["trips"]) == (NAME, "open", 1)
        made = len(w.cloud.requests)
        await until(w, one["until_ms"] - 15_000)
        assert len(w.cloud.requests) == made, "launched while it was open"
        preview = await w.fleet.preview()
        assert "burnt by" in preview["waiting"][0]["reason"]
        assert "one VM is tried after that" in preview["quarantined"][0]
        await until(w, opened + 60 * MINUTE)
        events = await said(w, "breaker.opened")
        assert "for 10m" in events[-2].detail
        assert "for 5m" in events[-1].detail
        assert events[-1].detail.splitlines()[-2:] == ["line one", "no such image"]
        assert await burnt(w) <= 5_000_000 + (1 + len(events)) * BOOT
        assert max(len(request.instances) for request in w.cloud.requests[made:]) == 1


async def test_what_registered_while_the_clock_was_ahead_keeps_no_breaker_closed(tmp_path: Path) -> None:
    """It did so tomorrow, after all that fails today: the breaker is told as open all the same."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        w.clock.ms += 24 * 60 * MINUTE
        await w.submit(1)
        await w.passes(3)
        (row,) = w.rows
        await w.register(row)
        w.clock.ms -= 24 * 60 * MINUTE
        await tripped(w)
        assert w.context.breakers.tripped()["boot"] == 1


async def test_a_dispatcher_that_crashes_again_and_again_burns_no_more(tmp_path: Path) -> None:
    """It dies after every few passes: what it has burnt is in the ledger."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await w.submit(50)
        began = w.clock.ms
        while w.clock.ms < began + 4 * 60 * MINUTE:
            await w.passes(3, 20_000)
            await w.restart()
        (one,) = w.fleet.breakers()
        assert one["trips"] >= 3
        assert 5_000_000 <= await burnt(w) <= 5_000_000 + (1 + one["trips"]) * BOOT


async def test_one_that_registers_closes_it(tmp_path: Path) -> None:
    """And all wait for no longer; of what failed before nothing is known any more."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await tripped(w)
        while not w.rows:
            await w.passes(1, 15_000)
        (trial,) = w.rows
        (one,) = w.fleet.breakers()
        assert (one["state"], one["trial"]) == ("half-open", trial.id)
        await w.passes(20, 6_000)
        assert [row.id for row in w.rows] == [trial.id], "another one beside the trial"
        await w.register(trial)
        await w.passes(2, 6_000)
        assert w.fleet.breakers() == []
        assert len(w.rows) > 1
        assert len(await said(w, "breaker.closed")) == 1


async def test_one_that_has_registered_before_the_others_failed_does_not_keep_it_closed(tmp_path: Path) -> None:
    """It lives on and works; what failed after it counts all the same."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await w.submit(50)
        await w.passes(3)
        first = await w.register(w.rows[0])
        until_ms = w.clock.ms + 100 * MINUTE
        while not any(w.context.breakers.tripped().values()) and w.clock.ms < until_ms:
            w.fleet.heard(Heard(first.id, "i", "idle"))
            await w.passes(1, 6_000)
        assert first.id in [row.id for row in w.rows if row.registered_ms is not None]
        assert [one["state"] for one in w.fleet.breakers()] == ["open"]
        assert (await w.fleet.preview())["quarantined"]
        assert len(await said(w, "breaker.opened")) == 1


async def test_an_operator_resets_it_for_good(tmp_path: Path) -> None:
    """At once, over a restart too, and only what there is."""
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await tripped(w)
        with pytest.raises(NotFound):
            await w.fleet.reset_breakers("boot/local/other/z")
        await w.fleet.reset_breakers(NAME)
        assert w.fleet.breakers() == []
        await w.passes(2)
        assert (await said(w, "operator.breaker-reset"))[0].detail == NAME
        await w.restart()
        w.clock.ms += 20 * MINUTE  # the memory of the failed boot is over, too
        await w.passes(2)
        assert w.fleet.breakers() == []
        assert len([row for row in w.rows if row.state is S.BOOTING]) == 4


async def test_services_that_break_before_their_first_task_stop_their_pool(tmp_path: Path) -> None:
    """They register, fail their health check, and come again: until ten dollars are gone. One whose task ends, however
    it ends, is a success."""
    pool = Pool(POOL, (LOCAL,), target_drain_ms=60_000, futility_allowance=1_000_000)
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=1), pool=pool) as w:
        await w.submit(5)

        async def serve() -> bool:
            for _ in range(100):
                await w.passes(1, 15_000)
                row = next((row for row in w.rows if row.state is S.BOOTING), None)
                if row is not None:
                    await w.register(row)
                    w.clock.ms += 5 * MINUTE
                    return True
            return False

        for _ in range(2):
            assert await serve()
            (row,) = [row for row in w.rows if row.state is S.IDLE]
            news = w.fleet.heard(Heard(row.id, "i", "failed", ending="health"))
            assert news is not None
            await news
        await w.passes(4)
        (one,) = w.fleet.breakers()
        assert (one["name"], one["state"]) == ("futility/p/local/agent/z/ami-1", "open")
        assert "none did a task" in one["reason"]
        opened = one["until_ms"] - FIRST_MS
        assert await serve()
        assert w.clock.ms > opened + FIRST_MS
        (row,) = [row for row in w.rows if row.state is S.IDLE]
        (claim,) = (await w.store.sync(SyncCall(row.id, 1, want=1))).claims
        done = ClaimResult(claim.task, claim.token, 5, Outcome(Cause.EXIT_CODE, exit_code=1))
        await w.store.sync(SyncCall(row.id, 2, results=(done,)))
        news = w.fleet.heard(Heard(row.id, "i", "idle", ended=(Ended(TaskId(1), Cause.SUCCESS),)))
        assert w.fleet.breakers() == []


async def test_services_that_break_and_cost_next_to_nothing_stop_their_pool_by_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten dollars would be thousands of them; what waits is told why nothing is launched: the check that failed."""
    monkeypatch.setattr(breaker, "MOST_FUTILE", 3)
    cheap = Cloud(ManualClock(), offers=(offering(rate=4_000_000, image="ami-1"),))
    pool = Pool(POOL, (LOCAL,), target_drain_ms=60_000)
    async with world(tmp_path, cloud=cheap, caps=Caps(instances=1), pool=pool) as w:
        await w.submit(5)
        failed = 0
        for _ in range(200):
            await w.passes(1, 15_000)
            for row in w.rows:
                if row.state is S.BOOTING:
                    await w.register(row)
                    news = w.fleet.heard(Heard(row.id, "i", "failed", ending="health", detail=CHECK))
                    assert news is not None
                    await news
                    failed += 1
            if any(one["state"] == "open" for one in w.fleet.breakers()):
                break
        assert failed == 3
        (one,) = w.fleet.breakers()
        assert one["burnt"] < one["allowance"] // 100
        assert "burnt by 3 VMs of which none did a task" in one["reason"]
        (opened,) = await said(w, "breaker.opened")
        assert "futility/p/local/agent/z/ami-1" in opened.detail
        waiting = (await w.fleet.preview())["waiting"]
        assert "burnt by 3 VMs of which none did a task" in waiting[0]["reason"]
        (problem,) = _problems(w.context, InForce(cast(Rules, None)))
        assert "one VM is tried after that" in problem
        (told,) = (await w.fleet.explain_task(5))["reasons"]
        (one,) = w.fleet.breakers()
        for text in (one["reason"], opened.detail, waiting[0]["reason"], problem, told):
            assert "burnt by 3 VMs of which none did a task" in text
            assert f"; the last, {one['last_failure']}: its agent says that it failed (health): {CHECK}" in text
        await w.restart()
        await w.passes()
        assert CHECK in w.fleet.breakers()[0]["reason"]


async def test_what_an_operator_ends_is_no_failure(tmp_path: Path) -> None:
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100)) as w:
        await w.submit(50)
        for _ in range(5):
            await w.passes(4, 30_000)
            for row in w.rows:
                w.clock.ms += 2 * MINUTE
                await w.fleet.kill(row.id, "test")
        await w.passes(2)
        assert await burnt(w) > 5_000_000
        assert w.fleet.breakers() == []


async def test_pools_share_what_their_template_may_burn(tmp_path: Path) -> None:
    """The least that one of them allows; what left the configuration is not spoken of."""
    pool = Pool(POOL, (LOCAL,), target_drain_ms=60_000)
    async with world(tmp_path, cloud=cloud(), caps=Caps(instances=100), pool=pool) as w:
        await tripped(w)
        pools = w.context.settings.pools
        assert isinstance(pools, dict)
        pools["q"] = replace(pool, name="q", boot_allowance=9_000_000)  # type: ignore[arg-type]
        assert w.fleet.breakers()[0]["allowance"] == 5_000_000
        pools["q"] = replace(pools["q"], boot_allowance=1_000_000)
        assert w.fleet.breakers()[0]["allowance"] == 1_000_000
        pools.clear()
        assert w.fleet.breakers() == []
        assert w.context.breakers.tripped() == {"boot": 0, "futility": 0}
