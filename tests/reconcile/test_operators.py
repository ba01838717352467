"""What operators say of the whole deployment, and what the loop makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.money import Amount
from cloud_dispatch.reconcile import explain
from cloud_dispatch.spend.commitment import Key, Scope
from cloud_dispatch.spend.windows import Window
from tests.reconcile.fake import POOL, world


async def test_a_limit_is_tightened_for_what_there_is(tmp_path: Path) -> None:
    """From then on nothing is launched that it does not pay for, and `explain` says so; a misspelt pool is refused."""
    async with world(tmp_path) as w:
        with pytest.raises(InvalidInput, match="no such pool 'pol'"):
            await w.fleet.set_limit(Key(Scope.POOL, "pol"), Window.DAY, Amount(1), "")
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, Amount(0), "holidays")
        (task,) = await w.submit(1)
        await w.passes(3)
        assert w.rows == []
        said = await w.fleet.explain_task(task)
        assert any("the budget pool" in reason for reason in said["reasons"]), said
        assert explain.unserved(w.context)["budget"] == 1
        await w.fleet.set_limit(Key(Scope.POOL, POOL), Window.DAY, None, "")
        w.clock.ms += 60_000
        await w.passes(2)
        assert len(w.rows) == 1
