"""Projects and users with a limit, as operators see them: what is withheld and why, and that it launches nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloud_dispatch.domain.money import Amount, Rate
from cloud_dispatch.provider.spi import HardEnd
from cloud_dispatch.reconcile import explain
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.examples import offering
from tests.reconcile.fake import world

POOR = Key(Scope.PROJECT, "poor")


async def test_who_can_not_pay_is_told_so_and_gets_no_vm(tmp_path: Path) -> None:
    """Any name may have a limit, also one that no task has yet; others of the same shape are not held up."""
    async with world(tmp_path) as w:
        await w.fleet.set_limit(POOR, Window.DAY, Amount(0), "holidays")
        (poor,) = await w.submit(1, project="poor")
        await w.passes(3)
        assert w.rows == []
        (said,) = (await w.fleet.explain_task(poor))["reasons"]
        assert said == "$0.00 of the budget project poor day of $0.00 are spent"
        assert explain.unserved(w.context)["budget"] == 1
        (rich,) = await w.submit(1, project="rich")
        await w.passes(2)
        assert len(w.rows) == 1
        assert "the budget" not in str((await w.fleet.explain_task(rich))["reasons"])
        await w.fleet.set_limit(POOR, Window.DAY, None, "")
        await w.passes(1)
        assert "the budget" not in str((await w.fleet.explain_task(poor))["reasons"])


async def test_only_what_can_be_paid_for_is_launched_for(tmp_path: Path) -> None:
    """A hundred tasks, and money for an hour of one machine, or of a third of three: not ten machines."""
    async with world(tmp_path) as w:
        w.cloud.traits = replace(w.cloud.traits, hard_end=HardEnd.FIXED)
        w.cloud.offers = (replace(offering(), rate=Rate(1_000_000_000)),)
        await w.fleet.set_limit(POOR, Window.TOTAL, Amount(1_000_000), "")
        await w.submit(100, project="poor", expected_runtime_ms=1_800_000)
        await w.passes(2)
        assert len(w.rows) == 2  # for three tasks, two a machine
        waiting = w.context.last[1].waiting if w.context.last else ()
        assert any("the budget project poor total" in one.reason and one.left for one in waiting)


async def test_where_no_hand_keeps_hard_ends_nothing_is_launched_for_who_has_a_limit(tmp_path: Path) -> None:
    """Nobody could say what it costs at most."""
    async with world(tmp_path) as w:
        await w.fleet.set_limit(POOR, Window.TOTAL, Amount(10**9), "")
        (poor,) = await w.submit(1, project="poor")
        await w.passes(2)
        assert w.rows == []
        assert "what it costs at most" in str((await w.fleet.explain_task(poor))["reasons"])
